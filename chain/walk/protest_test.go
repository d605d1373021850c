package walk

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
)

// After an extension has failed too the walk protests again, with all that failed,
// until the hub has nothing more, the attempts are spent, or four were asked for.
func TestOneOptionIsRevealedAfterAnother(t *testing.T) {
	for _, c := range []struct {
		name               string
		attempts, withheld int
		protests, tried    int
	}{
		{"the hub has nothing", 8, 0, 1, 1},
		{"two are withheld", 8, 2, 3, 3},
		{"many are withheld", 16, 9, maxProtests, 1 + maxProtests},
		{"the attempts are spent", 3, 9, 2, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := chaintest.Start
			protest := func(context.Context, []chain.Failure, time.Duration) ([]chain.Option, error) { return nil, nil }
			m := New(Plan{Options: chaintest.Options(t, "open/m"), Rules: chain.Rules{Attempts: c.attempts}, Hooks: Hooks{Protest: protest}},
				NewStanding(rand.NewPCG(1, 1)), now)
			protests, tried := 0, 0
			for {
				step := m.Next(now)
				switch {
				case step.Attempt != nil:
					tried++
					m.End(Outcome{Class: chain.Status, Status: 503}, now)
					continue
				case step.Protest:
					if len(step.Failed) != tried {
						t.Errorf("protest %d names %v, %d were tried", protests, step.Failed, tried)
					}
					var more []chain.Option
					if protests < c.withheld {
						more = chaintest.Options(t, fmt.Sprintf("more%d/m", protests))
					}
					protests++
					m.Protested(more, true, now)
					continue
				}
				break
			}
			if protests != c.protests || tried != c.tried || m.Result().End == Answered {
				t.Errorf("%d protests, %d tried, want %d and %d: %+v", protests, tried, c.protests, c.tried, m.Result())
			}
		})
	}
}
