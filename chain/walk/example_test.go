package walk_test

import (
	"context"
	"fmt"
	"math/rand/v2"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
)

// upstreams is a Runner: small is down, large answers.
type upstreams struct{}

func (upstreams) Run(_ context.Context, a walk.Attempt, emit func(walk.Chunk) error) walk.Outcome {
	if a.Option.ID == "alpha/small" {
		return walk.Outcome{Class: chain.Status, Status: 503}
	}
	if err := emit(walk.Chunk{Data: []byte("hello"), Meaningful: true}); err != nil {
		return walk.Outcome{Class: chain.Canceled}
	}
	return walk.Outcome{Class: chain.OK, Status: 200}
}

func Example() {
	plan := walk.Plan{
		Options: []chain.Option{{ID: "alpha/small", Kind: chain.Provider}, {ID: "beta/large", Kind: chain.Provider}},
		Stream:  true,
	}
	standing := walk.NewStanding(rand.NewPCG(1, 2)) // one for the device, for all requests
	result := walk.Run(context.Background(), plan, standing, upstreams{}, func(a walk.Attempt, data [][]byte) error {
		fmt.Printf("attempt %d: %s\n", a.Number, data)
		return nil
	})
	fmt.Println(result.End, "by", result.Option, "after", result.Failures[0].Option, result.Failures[0].Class)
	// Output:
	// attempt 2: [hello]
	// answered by beta/large after alpha/small status
}
