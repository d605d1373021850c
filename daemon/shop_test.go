package daemon_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon"
	"github.com/chordwheel/chordwheel/daemon/adapter"
	"github.com/chordwheel/chordwheel/mesh/exec"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/sim"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// Canaries: words that must not be where they are looked for.
const (
	canaryPayload = "canary-of-the-payload"
	canaryAnswer  = "canary-of-the-answer"
)

// A chat as an edge lets it through.
const (
	streamed = `{"model":"auto","stream":true,"messages":[{"role":"user","content":"` + canaryPayload + `"}]}`
	plain    = `{"model":"auto","messages":[{"role":"user","content":"` + canaryPayload + `"}]}`
)

// play is an adapter that a test scripts.
type play struct {
	mu    sync.Mutex
	calls []adapter.Call
	run   func(ctx context.Context, c adapter.Call, emit func(walk.Chunk) error) walk.Outcome
}

func (p *play) Run(ctx context.Context, c adapter.Call, emit func(walk.Chunk) error) walk.Outcome {
	p.mu.Lock()
	p.calls = append(p.calls, c)
	run := p.run
	p.mu.Unlock()
	return run(ctx, c, emit)
}

func (p *play) made() []adapter.Call {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls
}

// says answers with these words, as events or whole.
func says(words ...string) func(context.Context, adapter.Call, func(walk.Chunk) error) walk.Outcome {
	return func(_ context.Context, c adapter.Call, emit func(walk.Chunk) error) walk.Outcome {
		if !c.Request.Stream {
			words = []string{strings.Join(words, "")}
		}
		for _, w := range words {
			form := `{"choices":[{"index":0,"message":{"content":%q}}]}`
			if c.Request.Stream {
				form = `{"choices":[{"index":0,"delta":{"content":%q}}]}`
			}
			if err := emit(walk.Chunk{Data: fmt.Appendf(nil, form, w), Meaningful: true}); err != nil {
				return walk.Outcome{Class: chain.Canceled}
			}
		}
		return walk.Outcome{Class: chain.OK, Input: 3, Output: 2}
	}
}

// shop is a device that runs others' work, on a simulated network with peers that
// are libp2p hosts and nothing of ours.
type shop struct {
	*bench
	play   *play
	host   host.Host
	server *exec.Server
	net    *sim.Net
	log    *bytes.Buffer
	policy chaintest.Hub
}

// inTheShop runs story in a time bubble. options are the device's chain; keep may
// change its configuration.
func inTheShop(t *testing.T, options string, keep func(*daemon.Config), story func(t *testing.T, r *shop)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := sim.New(sim.Config{Nodes: 4})
		t.Cleanup(n.Close)
		r := &shop{play: &play{run: says("hel", "lo")}, net: n, log: new(bytes.Buffer), policy: chaintest.NewHub()}
		m := newMemory()
		r.bench = assemble(t, r.play, func(c *daemon.Config) {
			c.Chains, c.Marks, c.State = chains{m}, marks{m}, m
			c.Log = slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
			if keep != nil {
				keep(c)
			}
		})
		r.hub.serve(options)
		if err := r.Join(t.Context(), r.invitation()); err != nil {
			t.Fatal(err)
		}
		<-r.Visited()
		r.host = r.at(t, 0, chaintest.Key(device))
		r.server = exec.NewServer(r.hub.events.Executor, slog.New(slog.DiscardHandler))
		r.host.SetStreamHandler(exec.Protocol, r.server.Serve)
		t.Cleanup(r.server.Close)
		story(t, r)
	})
}

func (r *shop) at(t *testing.T, i int, key chain.Key) host.Host {
	t.Helper()
	h, err := r.net.HostFactory(i)(libp2p.Identity(key.Private()), libp2p.ResourceManager(&network.NullResourceManager{}), libp2p.DisableMetrics())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

// guest is a submitter by hand: it speaks the protocol, and keeps to no rule.
type guest struct {
	t      *testing.T
	r      *shop
	key    chain.Key
	host   host.Host
	member member.Membership
	issuer chain.Key
	policy chaintest.Hub
	body   []byte
	head   chain.Head
}

func (r *shop) guest(t *testing.T, i int) *guest {
	t.Helper()
	g := &guest{t: t, r: r, key: chaintest.Key(10 + i), policy: r.policy, issuer: r.policy.Key, body: r.hub.body}
	g.member = member.Membership{Mesh: r.policy.Trust.Mesh, DeviceID: "g", Peer: g.key.PeerID(), Name: fmt.Sprintf("guest-%d", i), Scopes: []chain.ScopeID{chain.DefaultScope, "workspace:far"},
		Granted: []member.Pattern{"*"}, Issued: chain.InstantOf(time.Now()), Serial: 1}
	g.head = r.policy.HeadOf(g.body, time.Now())
	g.host = r.at(t, i, g.key)
	if err := g.host.Connect(t.Context(), peer.AddrInfo{ID: r.host.ID(), Addrs: r.host.Addrs()}); err != nil {
		t.Fatal(err)
	}
	return g
}

// ask makes the request for a payload; change may spoil it.
func (g *guest) ask(payload string, change func(*wire.ExecRequest)) (*wire.ExecOpen, wire.ExecRequest) {
	g.t.Helper()
	sum := sha256.Sum256([]byte(payload))
	hash, err := receipt.RequestHash([]byte(`{"x":1}`))
	if err != nil {
		g.t.Fatal(err)
	}
	open := &wire.ExecOpen{Body: g.body, Head: g.policy.Sign(g.t, chain.DomainChain, g.head)}
	if open.Membership, err = member.Issue(g.issuer, g.member); err != nil {
		g.t.Fatal(err)
	}
	r := wire.ExecRequest{
		Executor: chaintest.PeerID(device), Membership: wire.EnvelopeHash(open.Membership), Head: wire.EnvelopeHash(open.Head), Body: g.head.Body,
		Option: "peer", Scope: chain.DefaultScope, Primitive: chain.LLMChat, PayloadBytes: int64(len(payload)), PayloadHash: sum[:],
		TransactionID: "t", Nonce: g.r.nonce(rand.Text()), RequestHash: hash, RequestID: "req-7", Model: "auto", Stream: true,
		Attempts: 4, Budget: 30_000, Hop: 1, Expires: chain.InstantOf(time.Now().Add(time.Minute)),
	}
	if change != nil {
		change(&r)
	}
	if open.Request, err = g.key.Seal(chain.DomainExecRequest, chaintest.Encode(g.t, r)); err != nil {
		g.t.Fatal(err)
	}
	return open, r
}

// nonce makes a nonce that the device takes.
func (r *shop) nonce(random string) string {
	r.hub.mu.Lock()
	defer r.hub.mu.Unlock()
	return wire.ExecNonce(r.hub.hellos[0].BootID, random)
}

// revocation is a signed list with this guest on it.
func (g *guest) revocation() []byte {
	g.t.Helper()
	now := chain.InstantOf(time.Now())
	list, err := member.Revoke(g.policy.Key, member.Revocations{Mesh: g.policy.Trust.Mesh, Seq: 1, Issued: now, Ended: []member.Ended{{Peer: g.key.PeerID(), At: now}}})
	if err != nil {
		g.t.Fatal(err)
	}
	return list
}

func (g *guest) stream() network.Stream {
	g.t.Helper()
	s, err := g.host.NewStream(g.t.Context(), g.r.host.ID(), exec.Protocol)
	if err != nil {
		g.t.Fatal(err)
	}
	return s
}

// first sends an opening frame, not a byte of a payload, and gives the reply.
func (g *guest) first(open *wire.ExecOpen) *wire.ExecReply {
	g.t.Helper()
	s := g.stream()
	defer s.Reset()
	if err := wire.Write(s, open); err != nil {
		g.t.Fatal(err)
	}
	s.SetReadDeadline(time.Now().Add(5 * time.Second))
	reply := new(wire.ExecReply)
	if err := wire.Read(bufio.NewReader(s), wire.MaxExecReply, reply); err != nil {
		g.t.Fatalf("no answer: %v", err)
	}
	return reply
}

// do runs a request as a decent submitter would.
func (g *guest) do(ctx context.Context, payload string, change func(*wire.ExecRequest)) (chunks []string, request wire.ExecRequest, trailer wire.ExecTrailer, err error) {
	g.t.Helper()
	open, request := g.ask(payload, change)
	trailer, err = exec.Do(ctx, g.stream(), open, []byte(payload), func(data []byte, _, _ bool) error {
		chunks = append(chunks, string(data))
		return nil
	})
	return chunks, request, trailer, err
}
