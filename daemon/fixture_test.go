package daemon_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon"
	"github.com/chordwheel/chordwheel/daemon/adapter"
	"github.com/chordwheel/chordwheel/daemon/edge"
	"github.com/chordwheel/chordwheel/mesh"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/spoke"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// The device under test, and one that it is not.
const (
	device   = 1
	stranger = 2
)

var slot = chaintest.Slot

// hub plays the orchestrator and the way to it: what it answers is set by the
// test, what it was told is kept.
type hub struct {
	t      *testing.T
	policy chaintest.Hub

	mu        sync.Mutex
	away      bool
	no        error // what it answers to everything, when set
	head      []byte
	body      []byte
	extend    func(wire.Protest) wire.ProtestReply
	provider  func(wire.Provider) wire.ProviderReply
	lease     func(wire.Lease) wire.LeaseReply // nil: there are no ceilings
	events    daemon.Events
	hellos    []wire.Hello
	reports   []wire.Report
	protests  []wire.Protest
	fetches   int
	calls     int
	lose      bool                   // the answers to reports get lost
	forgot    bool                   // it asks for heads, as after the loss of its data
	first     func(wire.Hello) error // has a hello to itself before the hub does
	change    func(*wire.Welcome)
	peer      chain.PeerID
	topics    []wire.TopicKey
	announced []wire.Announce
	granted   []member.Pattern
	rules     chain.Rules
	*others
}

var errAway = errors.New("no route to the hub")

// serve puts a chain of these options in force at the hub.
func (h *hub) serve(options string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.body = h.policy.BodyWith(h.t, options, h.rules)
	h.head = h.policy.Head(h.t, h.body, time.Now())
}

// moves has the hub say from now on that its services are at url.
func (h *hub) moves(url string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.change = func(w *wire.Welcome) { w.Authority, w.Certificate = url, bytes.Repeat([]byte{1}, 32) }
}

func (h *hub) set(away bool) {
	h.mu.Lock()
	h.away = away
	events := h.events
	h.mu.Unlock()
	if events.HubUp != nil {
		events.HubUp(!away)
	}
}

// valid holds the device to the rules of the wire.
func (h *hub) valid(m interface{ Validate() error }) {
	if err := m.Validate(); err != nil {
		h.t.Errorf("the device sent a message that the wire refuses: %v", err)
	}
}

func (h *hub) reach() error {
	h.calls++
	if h.away {
		return errAway
	}
	return h.no
}

func (h *hub) Hello(_ context.Context, q wire.Hello) (wire.Welcome, error) {
	h.mu.Lock()
	first := h.first
	h.mu.Unlock()
	if first != nil {
		if err := first(q); err != nil {
			return wire.Welcome{}, err
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.reach(); err != nil {
		return wire.Welcome{}, err
	}
	h.valid(&q)
	h.hellos = append(h.hellos, q)
	w := wire.Welcome{Now: chain.InstantOf(time.Now()), Stay: true}
	if q.Invitation != nil {
		w.Membership = h.membership(h.peer)
	}
	if h.head != nil {
		var head chain.Head
		_, payload, _ := chain.Open(chain.DomainChain, h.head)
		if err := chain.Unmarshal(payload, &head); err != nil {
			h.t.Error(err)
		}
		w.Chains = []wire.Available{{Slot: slot, Seq: head.Seq, Body: head.Body}}
	}
	if h.change != nil {
		h.change(&w)
	}
	if h.forgot {
		for _, held := range q.Holds {
			if len(held.Head) == 0 {
				w.Behind = append(w.Behind, held.Slot)
			}
		}
	}
	return w, nil
}

func (h *hub) membership(peer chain.PeerID) []byte {
	envelope, err := member.Issue(h.policy.Key, member.Membership{Mesh: h.policy.Trust.Mesh, DeviceID: "d", Peer: peer, Name: "a",
		Scopes: []chain.ScopeID{chain.DefaultScope}, Granted: h.granted, Issued: chain.InstantOf(time.Now()), Serial: 1})
	if err != nil {
		h.t.Error(err)
	}
	return envelope
}

func (h *hub) Report(_ context.Context, r wire.Report) (wire.ReportReply, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.reach(); err != nil {
		return wire.ReportReply{}, err
	}
	h.valid(&r)
	h.reports = append(h.reports, r)
	if h.lose {
		return wire.ReportReply{}, errAway
	}
	return wire.ReportReply{Accepted: true}, nil
}

func (h *hub) Fetch(_ context.Context, f wire.Fetch) (wire.FetchReply, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.reach(); err != nil {
		return wire.FetchReply{}, err
	}
	h.fetches++
	if f.Body == chain.CIDOf(h.body) {
		return wire.FetchReply{Head: h.head}, nil
	}
	return wire.FetchReply{Head: h.head, Body: h.body}, nil
}

func (h *hub) Provider(_ context.Context, p wire.Provider) (wire.ProviderReply, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.away:
		return wire.ProviderReply{}, errAway
	case h.provider == nil:
		return wire.ProviderReply{}, spoke.Refuse(spoke.CodeInvitation, "the invitation is not known here")
	}
	return h.provider(p), nil
}

func (h *hub) Lease(_ context.Context, l wire.Lease) (wire.LeaseReply, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case h.away:
		return wire.LeaseReply{}, errAway
	case h.lease == nil:
		return wire.LeaseReply{}, nil
	}
	r := h.lease(l)
	r.Now = chain.InstantOf(time.Now())
	return r, nil
}

func (h *hub) Protest(_ context.Context, p wire.Protest) (wire.ProtestReply, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if err := h.reach(); err != nil {
		return wire.ProtestReply{}, err
	}
	h.valid(&p)
	h.protests = append(h.protests, p)
	if h.extend == nil {
		return wire.ProtestReply{Reason: "nothing is withheld"}, nil
	}
	return h.extend(p), nil
}

func (h *hub) HubReachable() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return !h.away
}

func (h *hub) Join(keys ...wire.TopicKey) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.topics = keys
	return nil
}

func (h *hub) Announce(a wire.Announce) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.announced = append(h.announced, a)
}

func (h *hub) SetRevocations([]byte) error { return nil }
func (h *hub) Addrs() []string             { return []string{"/ip4/127.0.0.1/tcp/7412"} }
func (h *hub) Stats() mesh.Stats           { return mesh.Stats{} }
func (h *hub) Close() error                { return nil }

// take gives what happened since the last take.
func (h *hub) take() (reports []wire.Report, protests []wire.Protest, calls int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	reports, protests, calls = h.reports, h.protests, h.calls
	h.reports, h.protests, h.calls = nil, nil, 0
	return reports, protests, calls
}

// memory keeps chains, marks and small files without a disk.
type memory struct {
	mu     sync.Mutex
	chains map[chain.Slot]*chain.Chain
	marks  map[chain.Slot]chain.Mark
	files  map[string][]byte
}

func newMemory() *memory {
	return &memory{chains: map[chain.Slot]*chain.Chain{}, marks: map[chain.Slot]chain.Mark{}, files: map[string][]byte{}}
}

func (m *memory) Accept(trust chain.Trust, slot chain.Slot, head, body []byte, now time.Time) (*chain.Chain, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	c, err := trust.Verify(slot, head, body, m.marks[slot], now)
	if err != nil {
		return nil, err
	}
	m.chains[slot], m.marks[slot] = c, c.Mark()
	return c, nil
}

func (m *memory) Get(slot chain.Slot) *chain.Chain {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.chains[slot]
}

type chains struct{ *memory }

func (c chains) All() []*chain.Chain {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Values(c.chains))
}

func (c chains) Drop(slot chain.Slot) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.chains, slot)
	return nil
}

type marks struct{ *memory }

func (m marks) All() map[chain.Slot]chain.Mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.marks)
}

func (m *memory) ReadChecked(name string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b, ok := m.files[name]; ok {
		return b, nil
	}
	return nil, fs.ErrNotExist
}

func (m *memory) WriteChecked(name string, b []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[name] = slices.Clone(b)
	return nil
}

// ring holds one key, "alpha", and what a test adds.
type ring struct{ more atomic.Pointer[string] }

const alphaSecret chain.Secret = "sk-alpha"

func (r *ring) Get(name string) (chain.Secret, bool) { return alphaSecret, name == "alpha" }
func (r *ring) Names() []string {
	if name := r.more.Load(); name != nil {
		return []string{"alpha", *name}
	}
	return []string{"alpha"}
}
func (r *ring) Generation(name string) uint64 {
	if name == "alpha" {
		return 1
	}
	return 0
}

// provider plays every upstream: it answers or fails by the option's id.
type provider struct {
	mu    sync.Mutex
	fails map[chain.OptionID]walk.Outcome
	calls []adapter.Call
}

func (p *provider) Run(ctx context.Context, c adapter.Call, emit func(walk.Chunk) error) walk.Outcome {
	p.mu.Lock()
	p.calls = append(p.calls, c)
	outcome, bad := p.fails[c.Attempt.Option.ID]
	p.mu.Unlock()
	if bad {
		return outcome
	}
	if err := emit(walk.Chunk{Data: []byte("answer of " + string(c.Attempt.Option.ID)), Meaningful: true}); err != nil {
		return walk.Outcome{Class: chain.Canceled}
	}
	return walk.Outcome{Class: chain.OK, Input: 10, Output: 5}
}

func (p *provider) fail(id chain.OptionID, class chain.Class) {
	p.mu.Lock()
	defer p.mu.Unlock()
	o := walk.Outcome{Class: class}
	if class == chain.Status {
		o.Status = 503
	}
	p.fails[id] = o
}

func random() *rand.Rand { return rand.New(rand.NewPCG(1, 1)) }

func (p *provider) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fails = map[chain.OptionID]walk.Outcome{}
}

// bench is a device with everything around it played by the test.
type bench struct {
	*daemon.Daemon
	t        *testing.T
	hub      *hub
	ring     *ring
	memory   *memory
	provider *provider
}

// bare makes a device that has not joined. It is meant for a time bubble.
func bare(t *testing.T, m *memory) *bench {
	p := &provider{fails: map[chain.OptionID]walk.Outcome{}}
	b := bareWith(t, m, p)
	b.provider = p
	return b
}

// bareWith is bare with another adapter behind every option.
func bareWith(t *testing.T, m *memory, behind adapter.Adapter) *bench {
	b := assemble(t, behind, func(c *daemon.Config) { c.Chains, c.Marks, c.State = chains{m}, marks{m}, m })
	b.memory = m
	return b
}

// assemble makes and starts a device; keep says where it keeps things.
// restarted is b's device after a restart. Its hub is away from the first moment on,
// until set says otherwise.
func restarted(t *testing.T, b *bench) *bench {
	p := &provider{fails: map[chain.OptionID]walk.Outcome{}}
	again := assemble(t, p, func(c *daemon.Config) {
		c.Chains, c.Marks, c.State = chains{b.memory}, marks{b.memory}, b.memory
		connect := c.Connect
		c.Connect = func(ctx context.Context, j daemon.Joined, events daemon.Events) (daemon.Node, error) {
			node, err := connect(ctx, j, events)
			h := node.(*hub)
			h.mu.Lock()
			defer h.mu.Unlock()
			h.away = true
			return node, err
		}
	})
	again.provider, again.memory = p, b.memory
	return again
}

func assemble(t *testing.T, behind adapter.Adapter, keep func(*daemon.Config)) *bench {
	b := &bench{t: t, ring: &ring{}, hub: &hub{t: t, policy: chaintest.NewHub(), peer: chaintest.PeerID(device), others: newOthers()}}
	cfg := daemon.Config{
		Key: chaintest.Key(device), DeviceID: "d", Name: "a", Version: "test", Keys: b.ring,
		Adapters: map[string]adapter.Adapter{"openai": behind},
		Locals: []wire.LocalOption{{Primitives: []chain.Primitive{chain.LLMChat},
			Option: chain.Option{ID: "local/own/m", Kind: chain.Local, Adapter: "openai", Model: "m", Endpoint: "http://127.0.0.1:1/v1"}}},
		Connect: func(_ context.Context, _ daemon.Joined, events daemon.Events) (daemon.Node, error) {
			b.hub.mu.Lock()
			defer b.hub.mu.Unlock()
			b.hub.events = events
			return b.hub, nil
		},
		Log: slog.New(slog.DiscardHandler), Random: random(),
	}
	keep(&cfg)
	d, err := daemon.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	b.Daemon = d
	if err := d.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

func (b *bench) invitation() string {
	text, err := member.Invitation{Mesh: b.hub.policy.Trust.Mesh, Orchestrator: b.hub.policy.Trust.Orchestrator, Addresses: []string{"/ip4/127.0.0.1/tcp/7411"},
		Scope: chain.DefaultScope, Secret: member.NewSecret(), Expires: chain.InstantOf(time.Now().Add(time.Hour)), Uses: 1}.Encode()
	if err != nil {
		b.t.Fatal(err)
	}
	return text
}

// ask runs one plain request and gives its text.
func (b *bench) ask(w edge.Work) (string, walk.Result, error) { return b.askFor(&w) }

// askFor is ask, and leaves in w what the device sets there.
func (b *bench) askFor(w *edge.Work) (string, walk.Result, error) {
	if w.Primitive == "" {
		w.Primitive = chain.LLMChat
	}
	if w.Model == "" {
		w.Model = edge.Auto
	}
	w.Body = []byte(`{}`)
	return b.send(w)
}

// askChat is askFor with a body that also another device's edge lets through.
func (b *bench) askChat(w *edge.Work) (string, walk.Result, error) {
	w.Primitive, w.Body = chain.LLMChat, []byte(`{"model":"auto","messages":[{"role":"user","content":"hello"}]}`)
	return b.send(w)
}

func (b *bench) send(w *edge.Work) (string, walk.Result, error) {
	w.ID = "r"
	var text string
	result, err := b.Do(b.t.Context(), w, func(_ walk.Attempt, data [][]byte) error {
		for _, d := range data {
			text += string(d)
		}
		return nil
	})
	return text, result, err
}
