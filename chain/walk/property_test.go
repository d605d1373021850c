package walk

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"pgregory.net/rapid"
)

// world is a random chain, device, hub, caller and upstreams, drawn before a
// bubble is entered.
type world struct {
	plan      Plan
	peers     []chain.PeerID
	turns     []turn // the n-th call of the runner goes so
	withdrawn int    // calls after which the first option is withdrawn; 0: never
	hubUp     bool
	protest   time.Duration // how long it takes
	extension []chain.Option
	leaves    time.Duration // when the caller leaves; 0: stays
	refuses   int           // the n-th delivery fails; 0: none
	reads     time.Duration // one delivery takes
	requests  int
}

var anyClass = []chain.Class{chain.OK, chain.OK, chain.OK, chain.Unreachable, chain.Unreachable, chain.Status, chain.Timeout, chain.BadAnswer,
	chain.RateLimited, chain.Credentials, chain.Credentials, chain.CallerError, chain.ContextLength, chain.Feature, chain.Filtered, chain.Cut,
	chain.Canceled, chain.Busy, chain.Declined, chain.Denied, chain.Offline, chain.Internal, chain.NoPeer, chain.KeyMissing, chain.Cooling, chain.Absent, "surprise", ""}

func drawWorld(t *rapid.T) world {
	flip := func(name string) bool { return rapid.Bool().Draw(t, name) }
	upTo := func(name string, d time.Duration) time.Duration {
		return time.Duration(rapid.Int64Range(0, int64(d/time.Millisecond)).Draw(t, name)) * time.Millisecond
	}
	w := world{hubUp: flip("hub"), protest: upTo("protest", 10*time.Second), requests: rapid.IntRange(1, 3).Draw(t, "requests")}
	for i := range rapid.IntRange(1, 10).Draw(t, "options") {
		w.plan.Options = append(w.plan.Options, drawOption(t, fmt.Sprintf("o%d", i)))
	}
	for i := range rapid.IntRange(0, 3).Draw(t, "extension") {
		w.extension = append(w.extension, drawOption(t, fmt.Sprintf("o%d", 9+i))) // the first may be in the chain already
	}
	for i := range rapid.IntRange(0, 5).Draw(t, "peers") {
		w.peers = append(w.peers, chain.PeerID(fmt.Sprintf("p%d", i)))
	}
	w.plan.Stream, w.plan.Strict = flip("stream"), flip("strict")
	w.plan.Budget = time.Millisecond + upTo("budget", 2*time.Minute)
	w.plan.Rules.Attempts = rapid.IntRange(1, 10).Draw(t, "cap")
	w.plan.Rules.FilterNext = flip("filter")
	for i := range 40 {
		w.turns = append(w.turns, drawTurn(t, i))
	}
	w.withdrawn = rapid.IntRange(0, 3).Draw(t, "withdrawn")
	if flip("leaves") {
		w.leaves = time.Millisecond + upTo("leaves at", 2*time.Minute)
	}
	if flip("refuses") {
		w.refuses = rapid.IntRange(1, 5).Draw(t, "refuses at")
	}
	w.reads = upTo("reads", time.Second)
	return w
}

func drawOption(t *rapid.T, id string) chain.Option {
	o := chain.Option{ID: chain.OptionID(id), Kind: rapid.SampledFrom([]chain.Kind{chain.Local, chain.Provider, chain.Provider, chain.Peer, "quantum"}).Draw(t, "kind")}
	o.Tries = rapid.IntRange(0, 3).Draw(t, "tries")
	o.Limits.Context = rapid.IntRange(0, 2).Draw(t, "context")
	o.Limits.FirstOutput = chain.Millis(rapid.IntRange(0, 20000).Draw(t, "first output"))
	o.Limits.Thinking = rapid.Bool().Draw(t, "thinking")
	if o.Kind == chain.Provider {
		o.Keys = []string{"k1", "k2", "k3"}[:rapid.IntRange(0, 3).Draw(t, "keys")]
	}
	return o
}

func drawTurn(t *rapid.T, i int) turn {
	x := turn{hang: rapid.IntRange(0, 5).Draw(t, "hang") == 0, gap: time.Duration(rapid.IntRange(0, 8000).Draw(t, "gap")) * time.Millisecond}
	x.end = Outcome{Class: rapid.SampledFrom(anyClass).Draw(t, "class"), Used: rapid.IntRange(-1, 9).Draw(t, "used"),
		RetryAfter: time.Duration(rapid.Int64().Draw(t, "retry")), HasRetryAfter: rapid.IntRange(0, 3).Draw(t, "asks") == 0}
	for j := range rapid.IntRange(0, 4).Draw(t, "chunks") {
		x.chunks = append(x.chunks, Chunk{Data: fmt.Appendf(nil, "<%d.%d>", i, j), Meaningful: rapid.IntRange(0, 2).Draw(t, "meaningful") > 0})
	}
	return x
}

// seen is what happened in one request of a world.
type seen struct {
	calls    []Attempt
	turns    []int // of w.turns, one for each call
	out      []string
	measured int
	settled  int
	reserved int
	protests int
	left     bool
	slow     time.Duration // spent by the caller
	took     time.Duration
	result   Result
}

func (w *world) request(t *testing.T, s *Standing, next *int) *seen {
	x := &seen{}
	p := w.plan
	p.Hooks = Hooks{
		Bind:    binder(w.peers...),
		Hub:     func() bool { return w.hubUp },
		Measure: func(Measurement) { x.measured++ },
		Reserve: func(*chain.Option, string) (func(Measurement), *Short) {
			x.reserved++
			return func(Measurement) { x.settled++ }, nil
		},
		Current: func(id chain.OptionID) *chain.Option {
			for i := range p.Options {
				if p.Options[i].ID == id && (i > 0 || w.withdrawn == 0 || len(x.calls) < w.withdrawn) {
					return &p.Options[i]
				}
			}
			return nil
		},
		Protest: func(ctx context.Context, _ []chain.Failure, _ time.Duration) ([]chain.Option, error) {
			x.protests++
			if !pause(ctx, w.protest) {
				return nil, ctx.Err()
			}
			return w.extension, nil
		},
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if w.leaves > 0 {
		time.AfterFunc(w.leaves, cancel)
	}
	began := time.Now()
	x.result = Run(ctx, p, s, runner(func(ctx context.Context, a Attempt, emit func(Chunk) error) Outcome {
		i := *next % len(w.turns)
		*next++
		x.calls, x.turns = append(x.calls, a), append(x.turns, i)
		return script{string(a.Option.ID): w.turns[i]}.Run(ctx, a, emit)
	}), func(a Attempt, data [][]byte) error {
		time.Sleep(w.reads)
		x.slow += w.reads
		if w.refuses > 0 && len(x.out)+1 >= w.refuses {
			x.left = true
			return errGone
		}
		for _, d := range data {
			x.out = append(x.out, string(d))
		}
		return nil
	})
	x.took = time.Since(began)
	x.left = x.left || ctx.Err() != nil
	return x
}

// check gives what x breaks of what must always hold.
func (w *world) check(x *seen) string {
	r := x.result
	spent := 0
	var tried []string
	for i, a := range x.calls {
		name := fmt.Sprintf("%s#%s@%s", a.Option.ID, a.Key, a.Peer)
		if slices.Contains(tried, name) {
			return "tried twice: " + name
		}
		if i > 0 && a.Option.ID != x.calls[i-1].Option.ID && slices.ContainsFunc(x.calls[:i], func(b Attempt) bool { return b.Option.ID == a.Option.ID }) {
			return "went back to " + name
		}
		tried = append(tried, name)
		if a.Lent < 1 || a.Lent > w.plan.Rules.Attempts || a.Budget <= 0 || a.Number < 1 || a.Number > w.plan.Rules.Attempts {
			return fmt.Sprintf("an attempt that cannot be: %+v", a)
		}
		if class := w.turns[x.turns[i]].end.Class; class != chain.Busy && class != chain.Declined && class != chain.Denied && class != chain.NoPeer && class != chain.KeyMissing &&
			class != chain.Cooling && class != chain.Absent || w.turns[x.turns[i]].hang {
			spent++
		}
	}
	switch {
	case r.Attempts > w.plan.Rules.Attempts:
		return fmt.Sprintf("%d calls of %d", r.Attempts, w.plan.Rules.Attempts)
	case len(r.Peers) == 0 && spent > w.plan.Rules.Attempts:
		return fmt.Sprintf("%d calls were made of %d", spent, w.plan.Rules.Attempts)
	case x.measured != len(x.calls) || x.settled != x.reserved || x.reserved != len(x.calls):
		return fmt.Sprintf("%d calls, %d measured, %d of %d settled", len(x.calls), x.measured, x.settled, x.reserved)
	case x.took > w.plan.Budget+x.slow+w.overtime(x)+time.Second:
		return fmt.Sprintf("took %v of %v", x.took, w.plan.Budget+x.slow)
	case x.protests > min(maxProtests, 1+len(w.extension)) || x.protests > 0 && !w.hubUp:
		return fmt.Sprintf("%d protests", x.protests)
	case (r.End == Left) && !x.left:
		return "left although the caller stayed"
	case r.Delivered != (len(x.out) > 0):
		return fmt.Sprintf("delivered %v of %q", r.Delivered, x.out)
	case r.End == "" || r.Answer != nil && r.End != Refused:
		return fmt.Sprintf("no proper end: %+v", r)
	case len(x.out) > 0 && r.End != Answered && r.End != Broken && r.End != Left:
		return fmt.Sprintf("%s after %q", r.End, x.out)
	case len(x.out) > 0 && !w.plan.Stream && r.End != Answered:
		return fmt.Sprintf("plain: %s after %q", r.End, x.out)
	case r.End == Answered && len(x.out) == 0 && !x.left:
		return "answered with nothing"
	}
	return w.checkOutput(x)
}

// overtime is what an answer that reached the caller may take beyond the budget.
func (w *world) overtime(x *seen) time.Duration {
	if w.plan.Strict || len(x.out) == 0 {
		return 0
	}
	return x.calls[len(x.calls)-1].Limits.Total.Duration()
}

// checkOutput: what was delivered is one attempt's, in order, without a gap,
// and all of it if that is how it ended.
func (w *world) checkOutput(x *seen) string {
	if len(x.out) == 0 {
		return ""
	}
	var turn int
	if _, err := fmt.Sscanf(x.out[0], "<%d.", &turn); err != nil {
		return err.Error()
	}
	if x.turns[len(x.turns)-1] != turn {
		return "delivered from an attempt that is not the last"
	}
	var all []string
	for _, c := range w.turns[turn].chunks {
		all = append(all, string(c.Data))
	}
	sent, got := strings.Join(all, ""), strings.Join(x.out, "")
	if !strings.HasPrefix(sent, got) || x.result.End == Answered && sent != got {
		return fmt.Sprintf("%s: delivered %q of %q", x.result.End, got, sent)
	}
	return ""
}

func TestWhatAlwaysHolds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		w := drawWorld(rt)
		var broken string
		synctest.Test(t, func(t *testing.T) {
			s, next := NewStanding(rand.NewPCG(1, 1)), 0
			for range w.requests {
				x := w.request(t, s, &next)
				if broken = w.check(x); broken != "" {
					return
				}
			}
		})
		if broken != "" {
			rt.Fatal(broken)
		}
	})
}
