package daemon_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/edge"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// A request that says its stage, consumer or instance walks the most specific
// chain that the hub prepared, else the scope's own; a withdrawn one is forgotten
// with the next visit.
func TestStageConsumerAndInstanceSelectAChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, "home/m")
		prepare := func(q chain.Qualifier, option string) {
			h := b.hub.policy.For(chain.DefaultScope.With(q), chain.LLMChat)
			body := h.Body(t, option)
			if _, err := b.memory.Accept(h.Trust, h.Slot, h.Head(t, body, time.Now()), body, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		prepare(chain.Qualifier{Stage: "extract"}, "stage/m")
		prepare(chain.Qualifier{Consumer: "billing"}, "consumer/m")
		prepare(chain.Qualifier{Stage: "extract", Consumer: "billing"}, "both/m")
		answers := func(w edge.Work, want string) {
			t.Helper()
			if text, _, err := b.ask(w); text != "answer of "+want {
				t.Errorf("%+v: %q %v, want %s", w, text, err, want)
			}
		}
		answers(edge.Work{}, "home/m")
		answers(edge.Work{Stage: "extract"}, "stage/m")
		answers(edge.Work{Stage: "extract", Consumer: "billing", Instance: "eu-1"}, "both/m")
		answers(edge.Work{Stage: "nobody-knows", Consumer: "billing"}, "consumer/m")
		answers(edge.Work{Stage: "extract", Instance: "a;b=c"}, "stage/m")
		answers(edge.Work{Stage: "nobody-knows"}, "home/m")

		h := b.hub.policy.For(chain.DefaultScope.With(chain.Qualifier{Consumer: "guest"}), chain.LLMChat)
		body := chaintest.Encode(t, chain.Body{Primitive: chain.LLMChat, Options: []chain.Option{{ID: "nothing", Kind: "nothing"}}})
		if _, err := b.memory.Accept(h.Trust, h.Slot, h.Head(t, body, time.Now()), body, time.Now()); err != nil {
			t.Fatal(err)
		}
		if text, result, err := b.ask(edge.Work{Consumer: "guest"}); err != nil || text != "" || result.End != walk.NothingToTry {
			t.Errorf("all is denied: %q %+v %v", text, result, err)
		}

		b.hub.events.Invalidated(chain.Slot{Scope: chain.DefaultScope, Primitive: chain.Overrides}) // the hub offers none of them
		synctest.Wait()
		answers(edge.Work{Stage: "extract", Consumer: "billing"}, "home/m")
	})
}

// The hub calls a device in that is just visiting: it may have been asked already for what is
// new. So the device comes once more, and then when it wants to.
func TestACallDuringAVisit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, "home/m")
		visits := func() int {
			b.hub.mu.Lock()
			defer b.hub.mu.Unlock()
			return len(b.hub.hellos)
		}
		call := func() {
			b.hub.events.Invalidated(chain.Slot{Scope: chain.DefaultScope, Primitive: chain.Overrides})
		}
		var calls atomic.Int64
		before := visits()
		b.hub.mu.Lock()
		b.hub.first = func(wire.Hello) error {
			if calls.Add(1) == 1 {
				call()
			}
			return nil
		}
		b.hub.mu.Unlock()
		call()
		synctest.Wait()
		if n := visits() - before; n != 2 {
			t.Errorf("%d visits, want one for each call", n)
		}
	})
}
