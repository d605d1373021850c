package daemon_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon"
	"github.com/chordwheel/chordwheel/daemon/adapter"
	"github.com/chordwheel/chordwheel/daemon/edge"
	"github.com/chordwheel/chordwheel/mesh"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/sim"
	"github.com/chordwheel/chordwheel/mesh/spoke"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// office is a hub's handler of a few lines, behind a real hub node.
type office struct {
	t      *testing.T
	policy chaintest.Hub

	mu     sync.Mutex
	serial uint64
	head   []byte
	body   []byte
	peers  []wire.PeerAddress
}

func (o *office) serve(options string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.body = o.policy.BodyWith(o.t, options, chain.Rules{Fixed: true}) // no device orders it anew after a failure
	o.head = o.policy.Head(o.t, o.body, time.Now())
}

func (o *office) Hello(_ context.Context, from chain.PeerID, q wire.Hello) (wire.Welcome, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	w := wire.Welcome{Now: chain.InstantOf(time.Now()), Stay: true, Peers: o.peers, Topics: []wire.TopicKey{{Scope: chain.DefaultScope, Key: bytes.Repeat([]byte{9}, 32)}}}
	if q.Invitation != nil {
		o.serial++
		membership, err := member.Issue(o.policy.Key, member.Membership{Mesh: o.policy.Trust.Mesh, DeviceID: q.DeviceID, Peer: from, Name: q.Name,
			Scopes: []chain.ScopeID{chain.DefaultScope}, Issued: chain.InstantOf(time.Now()), Serial: o.serial})
		if err != nil {
			return w, err
		}
		w.Membership = membership
	}
	var head chain.Head
	if _, payload, err := chain.Open(chain.DomainChain, o.head); err != nil {
		return w, err
	} else if err := chain.Unmarshal(payload, &head); err != nil {
		return w, err
	}
	w.Chains = []wire.Available{{Slot: slot, Seq: head.Seq, Body: head.Body}}
	return w, nil
}

func (o *office) Fetch(context.Context, chain.PeerID, wire.Fetch) (wire.FetchReply, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return wire.FetchReply{Head: o.head, Body: o.body}, nil
}
func (o *office) Report(context.Context, chain.PeerID, wire.Report) (wire.ReportReply, error) {
	return wire.ReportReply{Accepted: true}, nil
}
func (o *office) Provider(context.Context, chain.PeerID, wire.Provider) (wire.ProviderReply, error) {
	return wire.ProviderReply{}, spoke.Refuse(spoke.CodeInternal, "no providers here")
}

func (o *office) Lease(context.Context, chain.PeerID, wire.Lease) (wire.LeaseReply, error) {
	return wire.LeaseReply{}, spoke.Refuse(spoke.CodeInternal, "no leases here")
}
func (o *office) Protest(context.Context, chain.PeerID, wire.Protest) (wire.ProtestReply, error) {
	return wire.ProtestReply{Reason: "nothing is withheld"}, nil
}

// rim is a hub and devices, all real, on a simulated network.
type rim struct {
	t      *testing.T
	net    *sim.Net
	office *office
	nodes  map[int]*node
}

// node is one device on the rim.
type node struct {
	*daemon.Daemon
	t      *testing.T
	place  int
	memory *memory
}

// does is an adapter made of a function.
type does func(ctx context.Context, c adapter.Call, emit func(walk.Chunk) error) walk.Outcome

func (f does) Run(ctx context.Context, c adapter.Call, emit func(walk.Chunk) error) walk.Outcome {
	return f(ctx, c, emit)
}

// onTheRim builds a hub that serves options in a bubble and runs story.
func onTheRim(t *testing.T, options string, story func(t *testing.T, r *rim)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rim{t: t, net: sim.New(sim.Config{Nodes: 8}), office: &office{t: t, policy: chaintest.NewHub()}, nodes: map[int]*node{}}
		defer r.net.Close()
		r.office.serve(options)
		for i := 1; i < 4; i++ {
			r.office.peers = append(r.office.peers, wire.PeerAddress{Peer: chaintest.PeerID(i), Addresses: r.net.Addrs(i)})
		}
		hub, err := mesh.NewHub(mesh.HubConfig{Key: r.office.policy.Key, Mesh: r.office.policy.Trust.Mesh, Host: r.net.HostFactory(0), Handler: r.office, Version: "test"})
		if err == nil {
			err = hub.Start(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		defer hub.Close()
		defer func() {
			for i := range r.nodes {
				r.stop(i)
			}
		}()
		story(t, r)
	})
}

// device starts the device at place i, called name, and joins it if it is new. What
// runs its options is behind; locals are its own.
func (r *rim) device(i int, name string, behind adapter.Adapter, m *memory, locals ...chain.OptionID) *node {
	r.t.Helper()
	fresh := m == nil
	if fresh {
		m = newMemory()
	}
	cfg := daemon.Config{
		Key: chaintest.Key(i), DeviceID: chain.DeviceID("id-" + name), Name: name, Version: "test", Keys: &ring{}, Chains: chains{m}, Marks: marks{m}, State: m,
		Adapters: map[string]adapter.Adapter{"openai": behind}, Log: slog.New(slog.NewTextHandler(r.t.Output(), nil)), Random: random(),
		Connect: func(ctx context.Context, j daemon.Joined, e daemon.Events) (daemon.Node, error) {
			d, err := mesh.NewDevice(mesh.DeviceConfig{Key: chaintest.Key(i), Trust: j.Trust, HubAddrs: r.net.Addrs(0), Host: r.net.HostFactory(i), Version: "test",
				Chains: e.Chains, Executor: e.Executor, Load: e.Load, OnContact: e.Contact, OnParted: e.Parted, OnAnnounce: e.Announced, OnRevoked: e.Revoked, OnHub: e.HubUp,
				OnInvalidation: func(s chain.Slot, _ uint64, _ []byte) { e.Invalidated(s) }})
			if err != nil {
				return nil, err
			}
			return d, d.Start(ctx)
		},
	}
	for _, id := range locals {
		cfg.Locals = append(cfg.Locals, wire.LocalOption{Primitives: []chain.Primitive{chain.LLMChat},
			Option: chain.Option{ID: id, Kind: chain.Local, Adapter: "openai", Model: "m", Endpoint: "http://127.0.0.1:1/v1"}})
	}
	d, err := daemon.New(cfg)
	if err == nil {
		err = d.Start(r.t.Context())
	}
	if err != nil {
		r.t.Fatal(err)
	}
	n := &node{Daemon: d, t: r.t, place: i, memory: m}
	r.nodes[i] = n
	if fresh {
		text, err := member.Invitation{Mesh: r.office.policy.Trust.Mesh, Orchestrator: r.office.policy.Trust.Orchestrator, Addresses: r.net.Addrs(0),
			Scope: chain.DefaultScope, Secret: member.NewSecret(), Expires: chain.InstantOf(time.Now().Add(time.Hour)), Uses: 1}.Encode()
		if err == nil {
			err = d.Join(r.t.Context(), text)
		}
		if err != nil {
			r.t.Fatal(err)
		}
	}
	return n
}

// stop ends the device at place i for good.
func (r *rim) stop(i int) {
	if err := r.nodes[i].Close(); err != nil {
		r.t.Error(err)
	}
	delete(r.nodes, i)
}

// ask runs one request at n and gives what came, and how it ended.
func (n *node) ask(ctx context.Context, stream bool) (string, walk.Result) {
	n.t.Helper()
	w := edge.Work{ID: "r", Primitive: chain.LLMChat, Model: edge.Auto, Body: []byte(map[bool]string{true: streamed, false: plain}[stream]), Stream: stream}
	var text strings.Builder
	result, err := n.Do(ctx, &w, func(_ walk.Attempt, data [][]byte) error {
		for _, d := range data {
			text.Write(d)
		}
		return nil
	})
	if err != nil {
		n.t.Error(err)
	}
	return text.String(), result
}

// until waits up to d of the bubble's time for ok.
func (r *rim) until(d time.Duration, what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(d); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("not within %s: %s", d, what)
		}
	}
}

// sees reports whether n has the peer called name in a state.
func (n *node) sees(name, state string) func() bool {
	return func() bool {
		for _, p := range n.Peers() {
			if p.Name == name {
				return p.State == state
			}
		}
		return false
	}
}

// echo answers with the option's name.
func echo() *provider { return &provider{fails: map[chain.OptionID]walk.Outcome{}} }

const throughB = "peer tries=2 | local/b/m | beta/small"

// TestTheRim: A lacks what B has. The whole story of a peer, over real nodes.
func TestTheRim(t *testing.T) {
	onTheRim(t, throughB, func(t *testing.T, r *rim) {
		a := r.device(1, "a", echo(), nil)
		b := r.device(2, "b", echo(), nil, "local/b/m")
		r.until(time.Minute, "a meets b", a.sees("b", "live"))
		expect := func(step, want string) {
			t.Helper()
			if text, result := a.ask(t.Context(), true); text != "answer of "+want {
				t.Fatalf("%s: %q, want %s; %+v", step, text, want, result)
			}
		}
		expect("in contact", "local/b/m")
		if n := a.Status().Requests.Unproven; n != 0 {
			t.Errorf("%d statements did not hold", n)
		}

		// Cut without a word: at most one request notices, and that one is answered.
		r.net.Cut([]int{1}, []int{2})
		begin := time.Now()
		text, result := a.ask(t.Context(), true)
		if text != "answer of beta/small" || time.Since(begin) > 20*time.Second {
			t.Fatalf("cut: %q after %s, %+v", text, time.Since(begin), result)
		}
		for range 30 {
			time.Sleep(time.Second)
			if text, result := a.ask(t.Context(), true); text != "answer of beta/small" || len(result.Peers) != 0 {
				t.Fatalf("bound to a dead peer: %q, %+v", text, result)
			}
		}
		r.net.Heal()
		r.until(5*time.Minute, "a finds b again", a.sees("b", "live"))
		r.until(5*time.Second, "b is used again", func() bool { text, _ := a.ask(t.Context(), true); return text == "answer of local/b/m" })

		// Gone for good, and back as another process with the same identity.
		kept := b.memory
		r.stop(2)
		r.until(time.Minute, "a notices", a.sees("b", "parted"))
		expect("b is gone", "beta/small")
		r.device(2, "b", echo(), kept, "local/b/m")
		r.until(5*time.Minute, "a meets b again", a.sees("b", "live"))
		expect("b is back", "local/b/m")
	})
}

// TestNoRequestIsLostWhenALinkIsCutUnderLoad: five a second, before, during and
// after; each that had not begun to answer is answered by somebody.
func TestNoRequestIsLostWhenALinkIsCutUnderLoad(t *testing.T) {
	onTheRim(t, throughB, func(t *testing.T, r *rim) {
		a := r.device(1, "a", echo(), nil)
		r.device(2, "b", echo(), nil, "local/b/m")
		r.until(time.Minute, "a meets b", a.sees("b", "live"))
		begin := time.Now()
		time.AfterFunc(20*time.Second, func() { r.net.Cut([]int{1}, []int{2}) })
		time.AfterFunc(60*time.Second, r.net.Heal)
		var all sync.WaitGroup
		var mu sync.Mutex
		by := map[string]int{}
		late := 0 // bound to the dead after it could be known
		for range 900 {
			at := time.Since(begin)
			all.Go(func() {
				text, result := a.ask(t.Context(), false)
				mu.Lock()
				defer mu.Unlock()
				by[text]++
				if result.End != walk.Answered {
					t.Errorf("asked after %s: %+v", at, result)
				}
				if at > 30*time.Second && at < 60*time.Second && len(result.Peers) > 0 {
					late++
				}
			})
			time.Sleep(200 * time.Millisecond)
		}
		all.Wait()
		if by["answer of local/b/m"] < 300 || by["answer of beta/small"] < 150 || late > 0 {
			t.Errorf("%v, %d bound to a dead peer", by, late)
		}
	})
}

// TestAnAnswerThatIsCutIsBroken: half of it came from B.
func TestAnAnswerThatIsCutIsBroken(t *testing.T) {
	onTheRim(t, throughB, func(t *testing.T, r *rim) {
		a := r.device(1, "a", echo(), nil)
		r.device(2, "b", does(func(ctx context.Context, _ adapter.Call, emit func(walk.Chunk) error) walk.Outcome {
			_ = emit(walk.Chunk{Data: []byte("half an"), Meaningful: true})
			<-ctx.Done()
			return walk.Outcome{Class: chain.Canceled}
		}), nil, "local/b/m")
		r.until(time.Minute, "a meets b", a.sees("b", "live"))
		time.AfterFunc(2*time.Second, func() { r.net.Cut([]int{1}, []int{2}) })
		if text, result := a.ask(t.Context(), true); text != "half an" || result.End != walk.Broken {
			t.Errorf("%q, %+v", text, result)
		}
		r.net.Heal()
	})
}

// TestACancelReachesTheProviderOfThePeer within 100 ms, before the first output
// and in mid-answer.
func TestACancelReachesTheProviderOfThePeer(t *testing.T) {
	for _, chunks := range []int{0, 1} {
		onTheRim(t, throughB, func(t *testing.T, r *rim) {
			a := r.device(1, "a", echo(), nil)
			left := make(chan time.Time, 1)
			r.device(2, "b", does(func(ctx context.Context, _ adapter.Call, emit func(walk.Chunk) error) walk.Outcome {
				for range chunks {
					_ = emit(walk.Chunk{Data: []byte("x"), Meaningful: true})
				}
				<-ctx.Done()
				left <- time.Now()
				return walk.Outcome{Class: chain.Canceled}
			}), nil, "local/b/m")
			r.until(time.Minute, "a meets b", a.sees("b", "live"))
			ctx, cancel := context.WithCancel(t.Context())
			gone := time.Now().Add(2 * time.Second)
			time.AfterFunc(2*time.Second, cancel)
			if _, result := a.ask(ctx, true); result.End != walk.Left {
				t.Errorf("%+v", result)
			}
			if d := (<-left).Sub(gone); d > 100*time.Millisecond {
				t.Errorf("the provider of the peer saw it after %s", d)
			}
		})
	}
}

// TestOneCapForAll: A's cap is 8, and what B has fails five times.
func TestOneCapForAll(t *testing.T) {
	onTheRim(t, "peer tries=2 | local/b/1 | local/b/2 | local/b/3 | local/b/4 | local/b/5 | beta/small | gamma/x | delta/y | eps/z", func(t *testing.T, r *rim) {
		var mu sync.Mutex
		calls := map[string]int{}
		failing := func(who string) does {
			return func(context.Context, adapter.Call, func(walk.Chunk) error) walk.Outcome {
				mu.Lock()
				defer mu.Unlock()
				calls[who]++
				return walk.Outcome{Class: chain.Status, Status: 503}
			}
		}
		a := r.device(1, "a", failing("a"), nil)
		r.device(2, "b", failing("b"), nil, "local/b/1", "local/b/2", "local/b/3", "local/b/4", "local/b/5")
		r.until(time.Minute, "a meets b", a.sees("b", "live"))
		_, result := a.ask(t.Context(), true)
		if calls["a"]+calls["b"] > 8 || calls["b"] == 0 || calls["a"] == 0 || result.Attempts != calls["a"]+calls["b"] {
			t.Errorf("upstream calls %v, counted %d", calls, result.Attempts)
		}
	})
}

// TestAChainReachesADeviceThatTheHubDoesNot: by way of a member.
func TestAChainReachesADeviceThatTheHubDoesNot(t *testing.T) {
	onTheRim(t, throughB, func(t *testing.T, r *rim) {
		a := r.device(1, "a", echo(), nil)
		b := r.device(2, "b", echo(), nil, "local/b/m")
		r.until(time.Minute, "a meets b", a.sees("b", "live"))
		r.net.Cut([]int{0}, []int{1})
		r.until(2*time.Minute, "a loses the hub", func() bool { return !a.Status().Hub.Reachable })
		r.office.serve("gamma/x")
		want := chain.CIDOf(r.office.body)
		has := func(n *node) func() bool {
			return func() bool { return n.memory.Get(slot).Head().Body == want }
		}
		r.until(time.Hour, "b visits the hub", has(b))
		r.until(10*time.Minute, "a has it from b", has(a))
		if text, _ := a.ask(t.Context(), false); text != "answer of gamma/x" {
			t.Errorf("%q", text)
		}
		r.net.Heal()
	})
}
