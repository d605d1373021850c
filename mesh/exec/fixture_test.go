package exec_test

import (
	"context"
	"crypto/sha256"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/security/noise"
	quic "github.com/libp2p/go-libp2p/p2p/transport/quic"
	"github.com/libp2p/go-libp2p/p2p/transport/tcp"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/exec"
	"github.com/chordwheel/chordwheel/mesh/sim"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// desk admits what a test lets it. The request frame of these tests holds the
// payload's terms only: what a real executor verifies is not this package's. Once
// it serves, its fields are changed through change and answer.
type desk struct {
	mu     sync.Mutex
	refuse error
	terms  func(*exec.Terms) // may change them
	run    func(ctx context.Context, payload []byte, emit exec.Emit) wire.ExecTrailer
	sign   func(*wire.ExecTrailer)

	opened   []wire.ExecOpen
	from     chain.PeerID
	ran      int
	released int
	got      []byte // the last payload
}

func (d *desk) Admit(_ context.Context, from chain.PeerID, open *wire.ExecOpen) (exec.Job, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.opened, d.from = append(d.opened, *open), from
	if d.refuse != nil {
		return nil, d.refuse
	}
	if chain.Unmarshal(open.Request, new(terms)) != nil {
		d.released++ // it never was one
		return nil, wire.RefuseExec(wire.ExecBadSignature, "not of this test")
	}
	return &job{desk: d, open: open}, nil
}

// answer changes what runs, from the next job on, also while others run.
func (d *desk) answer(run func(ctx context.Context, payload []byte, emit exec.Emit) wire.ExecTrailer) {
	d.change(func() { d.run = run })
}

func (d *desk) change(what func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	what()
}

func (d *desk) counts() (admitted, ran, released int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.opened), d.ran, d.released
}

type job struct {
	desk *desk
	open *wire.ExecOpen
}

func (j *job) Terms() exec.Terms {
	var t terms
	if err := chain.Unmarshal(j.open.Request, &t); err != nil {
		panic(err)
	}
	out := exec.Terms{PayloadBytes: t.Bytes, PayloadHash: t.Hash}
	j.desk.mu.Lock()
	terms := j.desk.terms
	j.desk.mu.Unlock()
	if terms != nil {
		terms(&out)
	}
	return out
}

func (j *job) Run(ctx context.Context, payload []byte, emit exec.Emit) wire.ExecTrailer {
	j.desk.mu.Lock()
	j.desk.ran++
	j.desk.got = payload
	run := j.desk.run
	j.desk.mu.Unlock()
	return run(ctx, payload, emit)
}

func (j *job) Sign(t *wire.ExecTrailer) {
	j.desk.mu.Lock()
	sign := j.desk.sign
	j.desk.mu.Unlock()
	if sign != nil {
		sign(t)
	}
}

func (j *job) Release() {
	j.desk.mu.Lock()
	defer j.desk.mu.Unlock()
	j.desk.released++
}

type terms struct {
	Bytes int64  `cbor:"bytes"`
	Hash  []byte `cbor:"hash"`
}

// opening is the frame for a payload.
func opening(t testing.TB, payload []byte) *wire.ExecOpen {
	t.Helper()
	sum := sha256.Sum256(payload)
	b, err := chain.Marshal(&terms{int64(len(payload)), sum[:]})
	if err != nil {
		t.Fatal(err)
	}
	return &wire.ExecOpen{Request: b}
}

// echo answers with the payload in one chunk.
func echo(_ context.Context, payload []byte, emit exec.Emit) wire.ExecTrailer {
	if err := emit(payload, true, false); err != nil {
		return wire.ExecTrailer{Class: chain.Canceled}
	}
	return wire.ExecTrailer{Class: chain.OK, Used: 1}
}

// pair is an executor and a submitter that are connected.
type pair struct {
	t         testing.TB
	desk      *desk
	server    *exec.Server
	executor  host.Host
	submitter host.Host
}

func serve(t testing.TB, d *desk, executor, submitter host.Host) *pair {
	t.Helper()
	p := link(t, d, executor, submitter)
	p.desk = d
	return p
}

func link(t testing.TB, work exec.Executor, executor, submitter host.Host) *pair {
	t.Helper()
	p := &pair{t: t, executor: executor, submitter: submitter,
		server: exec.NewServer(work, slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})))}
	executor.SetStreamHandler(exec.Protocol, p.server.Serve)
	if err := submitter.Connect(t.Context(), peer.AddrInfo{ID: executor.ID(), Addrs: executor.Addrs()}); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *pair) stream() network.Stream {
	p.t.Helper()
	s, err := p.submitter.NewStream(p.t.Context(), p.executor.ID(), exec.Protocol)
	if err != nil {
		p.t.Fatal(err)
	}
	return s
}

// do makes one attempt and gives what came, joined and by chunk.
func (p *pair) do(ctx context.Context, payload []byte) (chunks []string, trailer wire.ExecTrailer, err error) {
	p.t.Helper()
	trailer, err = exec.Do(ctx, p.stream(), opening(p.t, payload), payload, func(data []byte, _, _ bool) error {
		chunks = append(chunks, string(data))
		return nil
	})
	return chunks, trailer, err
}

// settled waits, in a bubble, until the server has no stream.
func (p *pair) settled(within time.Duration) {
	p.t.Helper()
	for end := time.Now().Add(within); ; time.Sleep(10 * time.Millisecond) {
		n, _ := p.server.Open()
		if n == 0 {
			return
		}
		if time.Now().After(end) {
			p.t.Fatalf("%d streams are left", n)
		}
	}
}

// simulated runs story in a time bubble, on a network with 5 ms a way.
func simulated(t *testing.T, d *desk, story func(t *testing.T, p *pair)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := sim.New(sim.Config{Nodes: 3})
		defer n.Close()
		var hosts []host.Host
		for i := range 2 {
			h, err := n.HostFactory(i)(libp2p.ResourceManager(&network.NullResourceManager{}), libp2p.DisableMetrics())
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			hosts = append(hosts, h)
		}
		p := serve(t, d, hosts[0], hosts[1])
		defer p.server.Close()
		story(t, p)
	})
}

var transports = map[string]string{"tcp": "/ip4/127.0.0.1/tcp/0", "quic": "/ip4/127.0.0.1/udp/0/quic-v1"}

func newKey(t testing.TB) chain.Key {
	t.Helper()
	key, err := chain.NewKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// loopback makes a host on a real socket.
func loopback(t testing.TB, address string, key chain.Key) host.Host {
	t.Helper()
	h, err := libp2p.New(libp2p.Identity(key.Private()), libp2p.ListenAddrStrings(address), libp2p.Transport(tcp.NewTCPTransport), libp2p.Transport(quic.NewTransport),
		libp2p.Security(noise.ID, noise.New), libp2p.ResourceManager(&network.NullResourceManager{}), libp2p.DisableMetrics(), libp2p.DisableRelay())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

// real runs story on each transport.
func real(t *testing.T, d func() *desk, story func(t *testing.T, p *pair)) {
	t.Helper()
	for name, address := range transports {
		t.Run(name, func(t *testing.T) {
			p := serve(t, d(), loopback(t, address, newKey(t)), loopback(t, address, newKey(t)))
			defer p.server.Close()
			story(t, p)
		})
	}
}
