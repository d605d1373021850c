package daemon_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/edge"
	"github.com/chordwheel/chordwheel/mesh/exec"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// TestALateAccountDoesNotHideAnothersLie: a peer that was given up on ends well
// after all, while the one that answered lies about its answer.
func TestALateAccountDoesNotHideAnothersLie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, x := beside(t, withSlot)
		y := b.neighbour("liar", 11)
		asked := make(chan *box, 2)
		var held atomic.Pointer[box]
		late := func(x *box) func(context.Context, wire.ExecRequest, exec.Emit) (wire.ExecTrailer, error) {
			return func(ctx context.Context, r wire.ExecRequest, emit exec.Emit) (wire.ExecTrailer, error) {
				asked <- x
				if held.CompareAndSwap(nil, x) { // whoever is asked first holds its account back
					trailer, err := x.answers(ctx, r, emit)
					<-ctx.Done()
					time.Sleep(time.Second)
					return trailer, err
				}
				return x.answers(ctx, r, emit)
			}
		}
		for _, p := range []*box{x, y} {
			p.set(func(p *box) {
				p.runs = late(p)
				p.forge = func(t *wire.ExecTrailer) {
					if held.Load() != p {
						t.Signature = []byte("garbage")
					}
				}
			})
		}
		text, result, err := b.ask(edge.Work{})
		first, second := <-asked, <-asked
		if err != nil || text != "answer of "+second.name || len(result.Peers) != 2 || result.Peers[0] != first.id() {
			t.Fatalf("%q, %+v, %v", text, result, err)
		}
		if n := b.Status().Requests.Unproven; n != 1 {
			t.Errorf("%d alarms, want the one about the answer that the caller has", n)
		}
	})
}

// TestANoThatComesLateIsAFailure: a peer that sits on requests and then says that
// it has no room delays everybody who believes it.
func TestANoThatComesLateIsAFailure(t *testing.T) {
	for name, no := range map[string]func() (wire.ExecTrailer, error){
		"busy": func() (wire.ExecTrailer, error) { return wire.ExecTrailer{}, &wire.ExecRefusal{Code: wire.ExecBusy} },
		"too large": func() (wire.ExecTrailer, error) {
			return wire.ExecTrailer{}, &wire.ExecRefusal{Code: wire.ExecTooLarge}
		},
		"tomorrow":    func() (wire.ExecTrailer, error) { return wire.ExecTrailer{}, &wire.ExecRefusal{Code: "tomorrow"} },
		"in trailers": func() (wire.ExecTrailer, error) { return wire.ExecTrailer{Class: chain.Busy}, nil },
		"no key":      func() (wire.ExecTrailer, error) { return wire.ExecTrailer{Class: chain.KeyMissing}, nil },
		"cooling": func() (wire.ExecTrailer, error) {
			return wire.ExecTrailer{Class: chain.Cooling, HasRetryAfter: true}, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, x := beside(t, withSlot)
				x.set(func(x *box) {
					x.runs = func(context.Context, wire.ExecRequest, exec.Emit) (wire.ExecTrailer, error) {
						time.Sleep(20 * time.Second)
						return no()
					}
				})
				var waited time.Duration
				for range 6 {
					begin := time.Now()
					if text, _, _ := b.ask(edge.Work{}); text != "answer of beta/small" {
						t.Fatalf("%q", text)
					}
					waited += time.Since(begin)
					time.Sleep(200 * time.Millisecond)
				}
				if waited > 45*time.Second {
					t.Errorf("six requests waited %s for a peer that takes none", waited)
				}
			})
		})
	}
}

// TestABusyNoInATrailerIsBelievedForAWhile: it costs a round trip and the payload.
func TestABusyNoInATrailerIsBelievedForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, x := beside(t, withSlot)
		x.fails(wire.ExecTrailer{Class: chain.Busy})
		for range 10 {
			if text, _, _ := b.ask(edge.Work{}); text != "answer of beta/small" {
				t.Fatalf("%q", text)
			}
		}
		if n := len(x.asked()); n != 1 {
			t.Errorf("asked %d times", n)
		}
	})
}

// TestAPeerThatAnswersSlowlyIsAlive: its machine is busy with the very work.
func TestAPeerThatAnswersSlowlyIsAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, x := beside(t, withSlot)
		x.set(func(x *box) {
			x.slow = 8 * time.Second
			x.runs = func(ctx context.Context, r wire.ExecRequest, emit exec.Emit) (wire.ExecTrailer, error) {
				select {
				case <-time.After(50 * time.Second):
					return x.answers(ctx, r, emit)
				case <-ctx.Done():
					return wire.ExecTrailer{}, context.Cause(ctx)
				}
			}
		})
		if text, _, err := b.ask(edge.Work{Stream: true}); text != "answer of box" {
			t.Errorf("%q, %v: every ping was answered", text, err)
		}
	})
}

// TestAPeersContextIsNotThisDevices: that all a peer has is too small says
// nothing about options here.
func TestAPeersContextIsNotThisDevices(t *testing.T) {
	for _, class := range []chain.Class{chain.ContextLength, chain.Feature} {
		synctest.Test(t, func(t *testing.T) {
			b, x := beside(t, withSlot)
			x.fails(wire.ExecTrailer{Class: class, Status: 400, Used: 1})
			if text, result, _ := b.ask(edge.Work{}); text != "answer of beta/small" {
				t.Errorf("%s: %q, %+v", class, text, result)
			}
		})
	}
}

// TestAPeerThatPromisesChainsDoesNotHoldUpTheOthers: it offers thousands and
// gives none.
func TestAPeerThatPromisesChainsDoesNotHoldUpTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, x := beside(t, withSlot)
		y := b.neighbour("honest", 11)
		b.hub.set(true)
		time.Sleep(time.Second)
		body := b.hub.policy.Body(t, "gamma/x | peer")
		head := b.hub.policy.Head(t, body, time.Now())
		x.set(func(x *box) {
			x.stalls = true
			for i := range 1000 {
				x.heads = append(x.heads, wire.Held{Slot: chain.Slot{Scope: chain.DefaultScope, Primitive: chain.Primitive(string(rune('a'+i%26)) + ".p" + string(rune('a'+i/26%26)) + string(rune('a'+i/676)))}, Mark: chain.Mark{Seq: 1 << 60}})
			}
		})
		y.set(func(y *box) {
			y.chains[slot] = [2][]byte{head, body}
			y.heads = []wire.Held{{Slot: slot, Mark: chain.Mark{Seq: uint64(time.Now().UnixMilli()), Body: chain.CIDOf(body), Issued: chain.InstantOf(time.Now())}}}
		})
		b.hub.events.Contact(x.contact())
		time.Sleep(time.Second)
		b.hub.events.Contact(y.contact())
		time.Sleep(2 * time.Minute)
		if got := b.memory.Get(slot); got.Head().Body != chain.CIDOf(body) {
			t.Errorf("the newer chain of an honest peer was not asked for; the other was asked for %d", x.fetched)
		}
	})
}
