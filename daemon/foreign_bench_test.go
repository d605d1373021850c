package daemon_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/daemon"
	"github.com/chordwheel/chordwheel/daemon/adapter"
	"github.com/chordwheel/chordwheel/mesh"
	"github.com/chordwheel/chordwheel/mesh/exec"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// nowhere is a node without a hub or peers.
type nowhere struct{ daemon.Node }

func (nowhere) Hello(context.Context, wire.Hello) (wire.Welcome, error) {
	return wire.Welcome{}, errAway
}
func (nowhere) HubReachable() bool            { return false }
func (nowhere) Join(...wire.TopicKey) error   { return nil }
func (nowhere) SetRevocations([]byte) error   { return nil }
func (nowhere) Announce(wire.Announce)        {}
func (nowhere) Introduce(...wire.PeerAddress) {}
func (nowhere) Addrs() []string               { return nil }
func (nowhere) Stats() mesh.Stats             { return mesh.Stats{} }
func (nowhere) Close() error                  { return nil }

// BenchmarkForeignWork measures, turn by turn in one run, a chat of 1 KiB each way
// through a whole device (decision, walk, hash, statement) over TCP on loopback, and
// the least that it can cost: a raw echo of 1 KiB on a new stream, one signature and
// one verification. x_answer is from before the first byte until the caller has the
// last one, x_whole until the executor's statement is verified.
func BenchmarkForeignWork(b *testing.B) {
	hub, now := chaintest.NewHub(), time.Now()
	executor, submitter := chaintest.Key(device), chaintest.Key(stranger)
	join := func(p chain.PeerID) []byte {
		envelope, err := member.Issue(hub.Key, member.Membership{Mesh: hub.Trust.Mesh, DeviceID: "d", Peer: p, Name: "n", Scopes: []chain.ScopeID{chain.DefaultScope}, Issued: chain.InstantOf(now), Serial: 1})
		if err != nil {
			b.Fatal(err)
		}
		return envelope
	}
	m := newMemory()
	open := &wire.ExecOpen{Membership: join(submitter.PeerID()), Body: hub.Body(b, "local/own/m | peer")}
	open.Head = hub.Head(b, open.Body, now)
	if _, err := (chains{m}).Accept(hub.Trust, slot, open.Head, open.Body, now); err != nil {
		b.Fatal(err)
	}
	joined := daemon.Joined{Trust: hub.Trust, Addresses: []string{"/ip4/127.0.0.1/tcp/1"}, Membership: join(executor.PeerID()), Scopes: []chain.ScopeID{chain.DefaultScope}}
	if err := joined.Save(m); err != nil {
		b.Fatal(err)
	}
	text := string(bytes.Repeat([]byte("x"), 900))
	var runs exec.Executor
	d, err := daemon.New(daemon.Config{
		Key: executor, DeviceID: "d", Name: "n", Keys: &ring{}, Chains: chains{m}, Marks: marks{m}, State: m, Log: slog.New(slog.DiscardHandler), Random: random(),
		Adapters: map[string]adapter.Adapter{"openai": &play{run: says(text)}},
		Locals: []wire.LocalOption{{Primitives: []chain.Primitive{chain.LLMChat},
			Option: chain.Option{ID: "local/own/m", Kind: chain.Local, Adapter: "openai", Model: "m", Endpoint: "http://127.0.0.1:1/v1"}}},
		Connect: func(_ context.Context, _ daemon.Joined, events daemon.Events) (daemon.Node, error) {
			runs = events.Executor
			return nowhere{}, nil
		},
	})
	if err == nil {
		err = d.Start(b.Context())
	}
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	at := func(key chain.Key) host.Host {
		h, err := libp2p.New(libp2p.Identity(key.Private()), libp2p.ListenAddrStrings("/ip4/127.0.0.1/tcp/0"), libp2p.ResourceManager(&network.NullResourceManager{}), libp2p.DisableMetrics(), libp2p.DisableRelay())
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { h.Close() })
		return h
	}
	here, there := at(submitter), at(executor)
	server := exec.NewServer(runs, slog.New(slog.DiscardHandler))
	defer server.Close()
	there.SetStreamHandler(exec.Protocol, server.Serve)
	there.SetStreamHandler("/echo", func(s network.Stream) { io.Copy(s, s); s.Close() })
	if err := here.Connect(b.Context(), peer.AddrInfo{ID: there.ID(), Addrs: there.Addrs()}); err != nil {
		b.Fatal(err)
	}
	stream := func(p protocol.ID) network.Stream {
		s, err := here.NewStream(b.Context(), there.ID(), p)
		if err != nil {
			b.Fatal(err)
		}
		return s
	}
	payload := fmt.Appendf(nil, `{"model":"auto","messages":[{"role":"user","content":%q}]}`, text)
	sum := sha256.Sum256(payload)
	hash, err := receipt.RequestHash(payload)
	if err != nil {
		b.Fatal(err)
	}
	q := wire.ExecRequest{
		Executor: executor.PeerID(), Membership: wire.EnvelopeHash(open.Membership), Head: wire.EnvelopeHash(open.Head), Body: chain.CIDOf(open.Body),
		Option: "peer", Scope: chain.DefaultScope, Primitive: chain.LLMChat, PayloadBytes: int64(len(payload)), PayloadHash: sum[:],
		TransactionID: "t", RequestHash: hash, RequestID: "r", Model: "auto", Attempts: 4, Budget: 30_000, Hop: 1,
	}
	sign := func(boot string, life time.Duration) {
		q.Nonce, q.Expires = wire.ExecNonce(boot, rand.Text()), chain.InstantOf(time.Now().Add(life))
		if open.Request, err = wire.SealExecRequest(submitter, q); err != nil {
			b.Fatal(err)
		}
	}
	sign("", time.Minute)
	_, err = runs.Admit(b.Context(), submitter.PeerID(), open)
	var no *wire.ExecRefusal
	if !errors.As(err, &no) || no.Boot == "" {
		b.Fatal(err)
	}
	public, _ := executor.PeerID().Public()
	var floor, answer, whole []float64
	for b.Loop() {
		began := time.Now()
		s := stream("/echo")
		if _, err := s.Write(payload[:1024-24]); err != nil {
			b.Fatal(err)
		}
		s.CloseWrite()
		if _, err := io.Copy(io.Discard, s); err != nil {
			b.Fatal(err)
		}
		signature, _ := executor.SignText(chain.PrefixExec, sum[:])
		if !chain.VerifyText(public, chain.PrefixExec, sum[:], signature) {
			b.Fatal("a signature")
		}
		floor = append(floor, float64(time.Since(began)))

		sign(no.Boot, time.Second) // soon forgotten
		heard := receipt.NewResponse(q.Primitive, false)
		began = time.Now()
		var last time.Duration
		trailer, err := exec.Do(b.Context(), stream(exec.Protocol), open, payload, func(data []byte, _, _ bool) error {
			last = time.Since(began)
			heard.Add(data)
			return nil
		})
		says := receipt.Statement{TransactionID: "t", Nonce: q.Nonce, SeekerDID: submitter.PeerID().DID(), AgentDID: executor.PeerID().DID(), RequestHash: hash, ResponseHash: heard.Hash()}
		if err == nil {
			err = says.Verify(executor.PeerID(), string(trailer.Signature))
		}
		if err != nil {
			b.Fatal(err)
		}
		answer, whole = append(answer, float64(last)), append(whole, float64(time.Since(began)))
	}
	median := func(all []float64) float64 { slices.Sort(all); return all[len(all)/2] }
	b.ReportMetric(median(floor)/1e3, "us_floor")
	b.ReportMetric(median(answer)/1e3, "us_answer")
	b.ReportMetric(median(answer)/median(floor), "x_answer")
	b.ReportMetric(median(whole)/median(floor), "x_whole")
}
