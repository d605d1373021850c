package daemon_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/mesh"
	"github.com/chordwheel/chordwheel/mesh/exchange"
	"github.com/chordwheel/chordwheel/mesh/exec"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// others plays the other devices and the way to them.
type others struct {
	peers      sync.Mutex
	boxes      map[chain.PeerID]*box
	introduced []wire.PeerAddress
}

func newOthers() *others { return &others{boxes: map[chain.PeerID]*box{}} }

// box is one other device. What it does is set by the test.
type box struct {
	t    *testing.T
	n    int // of its key
	name string

	mu       sync.Mutex
	runs     func(ctx context.Context, r wire.ExecRequest, emit exec.Emit) (wire.ExecTrailer, error)
	forge    func(*wire.ExecTrailer)
	dead     bool                     // there is no connection, or none that carries anything
	refuses  bool                     // pings are refused
	mute     bool                     // pings get lost as well
	slow     time.Duration            // pings are answered after it
	stalls   bool                     // a chain is promised and never comes
	heads    []wire.Held              // what it says that it caches
	chains   map[chain.Slot][2][]byte // what it gives: head, body
	requests []wire.ExecRequest       // that it was asked
	opens    []wire.ExecOpen
	pings    int
	fetched  int
}

func (b *box) id() chain.PeerID { return chaintest.PeerID(b.n) }

// set changes b while others may look.
func (b *box) set(change func(*box)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(b)
}

// asked gives the requests so far.
func (b *box) asked() []wire.ExecRequest {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.requests)
}

func (o *others) box(p chain.PeerID) *box {
	o.peers.Lock()
	defer o.peers.Unlock()
	return o.boxes[p]
}

func (o *others) Exec(ctx context.Context, to chain.PeerID, open wire.ExecOpen, payload []byte, emit exec.Emit) (wire.ExecTrailer, error) {
	b := o.box(to)
	b.mu.Lock()
	runs, forge, dead := b.runs, b.forge, b.dead
	b.mu.Unlock()
	if dead {
		return wire.ExecTrailer{}, mesh.ErrNotConnected
	}
	from, r, err := wire.OpenExecRequest(open.Request)
	if err != nil {
		b.t.Errorf("a request that no executor reads: %v", err)
	}
	sum := sha256.Sum256(payload)
	if from != chaintest.PeerID(device) || r.Executor != to || !slices.Equal(r.PayloadHash, sum[:]) || !slices.Equal(r.Membership, wire.EnvelopeHash(open.Membership)) ||
		!slices.Equal(r.Head, wire.EnvelopeHash(open.Head)) || r.Body != chain.CIDOf(open.Body) || r.Expires <= chain.InstantOf(time.Now()) || r.Hop != 1 {
		b.t.Errorf("a request that no executor takes: %+v", r)
	}
	b.mu.Lock()
	b.requests, b.opens = append(b.requests, r), append(b.opens, open)
	b.mu.Unlock()
	hash := receipt.NewResponse(r.Primitive, r.Stream)
	trailer, err := runs(ctx, r, func(data []byte, meaningful, more bool) error {
		hash.Add(data)
		return emit(data, meaningful, more)
	})
	if err != nil || trailer.Class != chain.OK {
		return trailer, err
	}
	trailer.ResponseHash = hash.Hash()
	signature, err := receipt.Statement{TransactionID: r.TransactionID, Nonce: r.Nonce, SeekerDID: r.Seeker, AgentDID: r.Agent, RequestHash: r.RequestHash,
		ResponseHash: trailer.ResponseHash, TokenID: r.TokenID}.Sign(chaintest.Key(b.n))
	if err != nil {
		b.t.Error(err)
	}
	trailer.Signature = []byte(signature)
	if forge != nil {
		forge(&trailer)
	}
	return trailer, nil
}

func (o *others) Introduce(list ...wire.PeerAddress) {
	o.peers.Lock()
	defer o.peers.Unlock()
	o.introduced = append(o.introduced, list...)
}

func (o *others) Ping(ctx context.Context, p chain.PeerID) (mesh.Pong, error) {
	b := o.box(p)
	b.mu.Lock()
	b.pings++
	dead, mute, refuses, slow := b.dead, b.mute, b.refuses, b.slow
	b.mu.Unlock()
	if refuses {
		return mesh.Pong{}, fmt.Errorf("peer: %w", exchange.Refuse(exchange.CodeBusy, "too many streams"))
	}
	if dead {
		return mesh.Pong{}, mesh.ErrNotConnected
	}
	if mute {
		<-ctx.Done()
		return mesh.Pong{}, ctx.Err()
	}
	select {
	case <-time.After(slow):
	case <-ctx.Done():
		return mesh.Pong{}, ctx.Err()
	}
	return mesh.Pong{Peer: p, RTT: time.Millisecond}, nil
}

func (o *others) Way(chain.PeerID) (mesh.Way, bool) {
	return mesh.Way{Path: "direct", Transport: "tcp", Address: "/ip4/192.0.2.2/tcp/7411"}, true
}

func (o *others) Chords() []mesh.ScopeChord { return nil }

func (o *others) Net(context.Context) mesh.Net { return mesh.Net{} }

func (o *others) Heads(_ context.Context, from chain.PeerID, _ chain.ScopeID) ([]wire.Held, error) {
	b := o.box(from)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.dead {
		return nil, mesh.ErrNotConnected
	}
	return b.heads, nil
}

func (o *others) FetchFrom(ctx context.Context, from chain.PeerID, f wire.Fetch) (wire.FetchReply, error) {
	b := o.box(from)
	b.mu.Lock()
	b.fetched++
	stalls := b.stalls
	b.mu.Unlock()
	if stalls {
		<-ctx.Done()
		return wire.FetchReply{}, ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	c, ok := b.chains[f.Slot]
	if !ok || b.dead {
		return wire.FetchReply{}, errors.New("none is cached here")
	}
	return wire.FetchReply{Head: c[0], Body: c[1]}, nil
}

// answers runs work as a device does that works: it says which it is.
func (b *box) answers(ctx context.Context, r wire.ExecRequest, emit exec.Emit) (wire.ExecTrailer, error) {
	if err := emit([]byte("answer of "+b.name), true, false); err != nil {
		return wire.ExecTrailer{}, err
	}
	return wire.ExecTrailer{Class: chain.OK, Used: 1, Input: 3, Output: 2}, nil
}

// fails makes b answer with a trailer.
func (b *box) fails(t wire.ExecTrailer) {
	b.set(func(b *box) {
		b.runs = func(context.Context, wire.ExecRequest, exec.Emit) (wire.ExecTrailer, error) { return t, nil }
	})
}

// errs makes the way to b end in an error.
func (b *box) errs(err error) {
	b.set(func(b *box) {
		b.runs = func(context.Context, wire.ExecRequest, exec.Emit) (wire.ExecTrailer, error) {
			return wire.ExecTrailer{}, err
		}
	})
}

// hangs makes b take work and say nothing until it is left. After n chunks, if
// any.
func (b *box) hangs(chunks ...string) {
	b.set(func(b *box) {
		b.runs = func(ctx context.Context, _ wire.ExecRequest, emit exec.Emit) (wire.ExecTrailer, error) {
			for _, c := range chunks {
				if err := emit([]byte(c), true, false); err != nil {
					return wire.ExecTrailer{}, err
				}
			}
			<-ctx.Done()
			return wire.ExecTrailer{}, context.Cause(ctx)
		}
	})
}

// contact is what b greets with.
func (b *box) contact() mesh.Contact {
	return mesh.Contact{Peer: b.id(), BootID: "boot", RTT: time.Millisecond, Capabilities: []chain.Capability{"execute:llm.chat", "submit"}, At: time.Now(),
		Membership: member.Membership{Mesh: "test", Peer: b.id(), Name: b.name, DeviceID: chain.DeviceID("id-" + b.name), Scopes: []chain.ScopeID{chain.DefaultScope},
			Granted: []member.Pattern{member.Everything}, Issued: chain.InstantOf(time.Now()), Expires: chain.InstantOf(time.Now().Add(member.Lifetime)), Serial: 1}}
}

// neighbour puts another device beside b, in contact.
func (b *bench) neighbour(name string, n int) *box {
	x := &box{t: b.t, n: n, name: name, chains: map[chain.Slot][2][]byte{}}
	x.runs = x.answers
	b.hub.others.peers.Lock()
	b.hub.others.boxes[x.id()] = x
	b.hub.others.peers.Unlock()
	b.hub.events.Contact(x.contact())
	return x
}

// leaves cuts x off without a word: calls under way hang, and are found dead
// only by pings.
func (x *box) leaves() { x.set(func(x *box) { x.mute = true }); x.hangs() }

const withSlot = "peer tries=2 | beta/small | local/own/m"

// beside makes a device that holds withSlot's chain, and one other.
// The order is the owner's: the device does not order anew after a failure.
func beside(t *testing.T, options string) (*bench, *box) {
	b := bare(t, newMemory())
	b.hub.rules = chain.Rules{Fixed: true}
	b.hub.serve(options)
	if err := b.Join(t.Context(), b.invitation()); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return b, b.neighbour("box", 10)
}
