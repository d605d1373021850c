package mesh_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh"
	"github.com/chordwheel/chordwheel/mesh/exec"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// worker is an executor of a few lines: it keeps what it was sent by hash, asks
// for what it lacks, and answers with the payload.
type worker struct {
	mu    sync.Mutex
	has   map[string]bool
	opens []wire.ExecOpen
}

// endless is work whose answer has no end, silent such whose answer never begins.
var endless, silent = []byte("endless"), []byte("silent")

func newWorker() *worker { return &worker{has: map[string]bool{}} }

func (w *worker) Admit(_ context.Context, from chain.PeerID, open *wire.ExecOpen) (exec.Job, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	signer, r, err := wire.OpenExecRequest(open.Request)
	if err != nil || signer != from {
		return nil, wire.RefuseExec(wire.ExecBadSignature, "%v", err)
	}
	w.opens = append(w.opens, *open)
	for _, e := range []struct{ hash, bytes []byte }{{r.Membership, open.Membership}, {r.Head, open.Head}} {
		if len(e.bytes) > 0 {
			w.has[string(wire.EnvelopeHash(e.bytes))] = true
		}
		if !w.has[string(e.hash)] {
			return nil, wire.RefuseExec(wire.ExecNeed, "")
		}
	}
	return &task{w, r}, nil
}

func (w *worker) forget() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.has)
}

func (w *worker) seen() []wire.ExecOpen {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]wire.ExecOpen(nil), w.opens...)
}

type task struct {
	worker *worker
	r      wire.ExecRequest
}

func (j *task) Terms() exec.Terms {
	return exec.Terms{PayloadBytes: j.r.PayloadBytes, PayloadHash: j.r.PayloadHash}
}

func (j *task) Run(ctx context.Context, payload []byte, emit exec.Emit) wire.ExecTrailer {
	if bytes.Equal(payload, silent) {
		<-ctx.Done()
	}
	for bytes.Equal(payload, endless) && emit(make([]byte, 4096), true, false) == nil {
	}
	if emit(payload, true, false) != nil {
		return wire.ExecTrailer{Class: chain.Canceled}
	}
	return wire.ExecTrailer{Class: chain.OK, Used: 1}
}

func (j *task) Sign(*wire.ExecTrailer) {}
func (j *task) Release()               {}

// order is a request for the peer, signed by key.
func order(t testing.TB, key chain.Key, to chain.PeerID, payload []byte) wire.ExecOpen {
	t.Helper()
	open := wire.ExecOpen{Membership: []byte("membership"), Head: []byte("head"), Body: []byte("body")}
	envelope, err := wire.SealExecRequest(key, wire.ExecRequest{Executor: to, Membership: wire.EnvelopeHash(open.Membership), Head: wire.EnvelopeHash(open.Head),
		Body: chain.CIDOf(open.Body), Option: "peer", Scope: home.Scope, Primitive: home.Primitive, PayloadBytes: int64(len(payload)),
		PayloadHash: wire.EnvelopeHash(payload), TransactionID: "t", Nonce: "0123456789abcdef", RequestHash: "sha256:0", RequestID: "r", Attempts: 1, Budget: 1000, Hop: 1,
		Expires: chain.InstantOf(time.Now().Add(time.Minute))})
	if err != nil {
		t.Fatal(err)
	}
	open.Request = envelope
	return open
}

// exec has to run payload on behalf of r.
func (r *rim) order(ctx context.Context, t *testing.T, to chain.PeerID, payload []byte) ([]byte, error) {
	var got []byte
	trailer, err := r.Exec(ctx, to, order(t, r.key, to, payload), payload, func(data []byte, _, _ bool) error {
		got = append(got, data...)
		return nil
	})
	if err == nil && trailer.Class != chain.OK {
		t.Errorf("%+v", trailer)
	}
	return got, err
}

func TestADeviceRunsAnothersWork(t *testing.T) {
	run(t, 1, func(t *testing.T, w *world) {
		work := newWorker()
		b := w.device(2, func(c *mesh.DeviceConfig) { c.Executor = work })
		defer b.Close()
		a := w.devices[0]
		if _, err := a.order(t.Context(), t, b.PeerID(), nil); !errors.Is(err, mesh.ErrNotConnected) {
			t.Errorf("nobody there: %v", err)
		}
		if _, err := a.Exec(t.Context(), "12D3KooWnonsense", order(t, a.key, b.PeerID(), nil), nil, nil); err == nil {
			t.Error("an impossible peer")
		}
		if err := a.Link(t.Context(), b.Device); err != nil {
			t.Fatal(err)
		}
		payload := bytes.Repeat([]byte("work"), 1000)
		do := func(what string) {
			t.Helper()
			if got, err := a.order(t.Context(), t, b.PeerID(), payload); err != nil || !bytes.Equal(got, payload) {
				t.Fatalf("%s: %d bytes, %v", what, len(got), err)
			}
		}
		do("the first")
		do("the second")
		opens := work.seen()
		if len(opens) != 2 || opens[0].Membership == nil || opens[0].Body == nil || opens[1].Membership != nil || opens[1].Head != nil || opens[1].Body != nil {
			t.Errorf("what the peer has is sent again: %+v", opens)
		}
		work.forget()
		do("after the executor forgot")
		if opens = work.seen()[2:]; len(opens) != 2 || opens[0].Membership != nil || opens[1].Membership == nil {
			t.Errorf("what it lacks: %+v", opens)
		}
		if got, err := b.order(t.Context(), t, a.PeerID(), payload); !errors.Is(err, &wire.ExecRefusal{Code: wire.ExecSharingOff}) || got != nil {
			t.Errorf("a device without an executor: %v", err)
		}
	})
}

// With everything in the request, an executor that still asks is believed.
func TestAnExecutorThatLacksWhatItWasSent(t *testing.T) {
	run(t, 1, func(t *testing.T, w *world) {
		work := newWorker()
		b := w.device(2, func(c *mesh.DeviceConfig) { c.Executor = work })
		defer b.Close()
		a := w.devices[0]
		if err := a.Link(t.Context(), b.Device); err != nil {
			t.Fatal(err)
		}
		open := order(t, a.key, b.PeerID(), nil)
		open.Head = nil
		_, err := a.Exec(t.Context(), b.PeerID(), open, nil, func([]byte, bool, bool) error { return nil })
		if !errors.Is(err, &wire.ExecRefusal{Code: wire.ExecNeed}) || len(work.seen()) != 2 {
			t.Errorf("asked %d times, %v", len(work.seen()), err)
		}
	})
}

// More streams than one peer may have are told busy by the resource manager or the
// server: at once, and others still get through.
func TestAPeerWithTooManyStreams(t *testing.T) {
	run(t, 2, func(t *testing.T, w *world) {
		work := newWorker()
		b := w.device(3, func(c *mesh.DeviceConfig) { c.Executor = work })
		defer b.Close()
		for _, r := range w.devices {
			if err := r.Link(t.Context(), b.Device); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		for range exec.StreamsPerPeer {
			group.Go(func() { _, _ = w.devices[0].order(ctx, t, b.PeerID(), silent) })
		}
		time.Sleep(time.Second)
		for range 5 {
			at := time.Now()
			if _, err := w.devices[0].order(t.Context(), t, b.PeerID(), nil); !errors.Is(err, &wire.ExecRefusal{Code: wire.ExecBusy}) || time.Since(at) > 50*time.Millisecond {
				t.Errorf("after %s: %v", time.Since(at), err)
			}
		}
		if _, err := w.devices[1].order(t.Context(), t, b.PeerID(), nil); err != nil {
			t.Errorf("another peer: %v", err)
		}
		cancel()
		group.Wait()
	})
}

// On real sockets, with the device's own limits.
func TestExecOnRealLoopback(t *testing.T) {
	for _, addr := range []string{"/ip4/127.0.0.1/tcp/0", "/ip4/127.0.0.1/udp/0/quic-v1"} {
		a, b := connected(t, addr, newWorker())
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		payload := bytes.Repeat([]byte("x"), 300_000)
		if got, err := a.order(ctx, t, b.PeerID(), payload); err != nil || !bytes.Equal(got, payload) {
			t.Errorf("%s: %d bytes, %v", addr, len(got), err)
		}
		// As many at once as one peer may: the resource manager counts the windows
		// of streams, and on TCP more of them than on QUIC. Of other devices: these may
		// still see to the end of their stream, which counts as one of so many.
		a, b = connected(t, addr, newWorker())
		var group sync.WaitGroup
		for i := range exec.StreamsPerPeer {
			group.Go(func() {
				payload := bytes.Repeat([]byte{byte(i)}, 100_000)
				if got, err := a.order(ctx, t, b.PeerID(), payload); err != nil || !bytes.Equal(got, payload) {
					t.Errorf("%s, one of many: %d bytes, %v", addr, len(got), err)
				}
			})
		}
		group.Wait()
	}
}

// connected gives two devices on real sockets with a connection between them.
func connected(t testing.TB, addr string, work exec.Executor) (a, b *rim) {
	t.Helper()
	hub, err := chain.NewKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	start := func(e exec.Executor) *rim {
		key, err := chain.NewKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		d, err := mesh.NewDevice(mesh.DeviceConfig{Key: key, Trust: chain.Trust{Mesh: testMesh, Orchestrator: hub.PeerID()}, HubAddrs: []string{"/ip4/127.0.0.1/tcp/1"},
			Listen: []string{addr}, Executor: e, Log: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return &rim{Device: d, key: key}
	}
	a, b = start(nil), start(work)
	if err := a.Link(t.Context(), b.Device); err != nil {
		t.Fatal(err)
	}
	return a, b
}

// Work that nobody takes the answers of disturbs neither the session with the hub
// nor others' work on the same connection.
func TestStuckReadersAndTheSpoke(t *testing.T) {
	run(t, 1, func(t *testing.T, w *world) {
		work := newWorker()
		b := w.device(2, func(c *mesh.DeviceConfig) { c.Executor = work })
		defer b.Close()
		a := w.devices[0]
		if err := a.Link(t.Context(), b.Device); err != nil {
			t.Fatal(err)
		}
		visit := func() time.Duration {
			at := time.Now()
			if _, err := a.Report(t.Context(), wire.Report{BootID: "b"}); err != nil {
				t.Error(err)
			}
			if _, err := a.order(t.Context(), t, b.PeerID(), []byte("small")); err != nil {
				t.Error(err)
			}
			return time.Since(at)
		}
		visit() // the hub's session, and what the executor has to know
		before := visit()
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		for range exec.StreamsPerPeer - 1 {
			group.Go(func() {
				_, _ = a.Exec(ctx, b.PeerID(), order(t, a.key, b.PeerID(), endless), endless, func([]byte, bool, bool) error { <-ctx.Done(); return ctx.Err() })
			})
		}
		time.Sleep(20 * time.Second) // as much has crossed as ever will
		if s := b.Stats(); s.Foreign != exec.StreamsPerPeer-1 || s.Refused != 0 {
			t.Errorf("the executor counts %d streams and %d refused", s.Foreign, s.Refused)
		}
		if during := visit(); during > before*3/2 {
			t.Errorf("%s, without stuck readers %s", during, before)
		}
		cancel()
		group.Wait()
	})
}

// A stranger's streams are held to few by the device's own limits, without a byte
// of them being judged, and a member's work is done meanwhile.
func TestAStrangerWithManyStreams(t *testing.T) {
	run(t, 1, func(t *testing.T, w *world) {
		work := newWorker()
		b := w.device(2, func(c *mesh.DeviceConfig) { c.Executor = work })
		defer b.Close()
		a := w.devices[0]
		if err := a.Link(t.Context(), b.Device); err != nil {
			t.Fatal(err)
		}
		stranger := w.rogue(3)
		stranger.connect(b.Host())
		opened := 0
		for range 1000 {
			s, err := stranger.NewStream(t.Context(), b.Host().ID(), exec.Protocol)
			if err != nil {
				continue
			}
			if _, err := s.Write([]byte{0x80, 0x20}); err == nil {
				opened++
			}
		}
		if got, err := a.order(t.Context(), t, b.PeerID(), []byte("work")); err != nil || string(got) != "work" {
			t.Errorf("a member's work: %v", err)
		}
		if s := b.Stats(); s.Foreign > exec.StreamsPerPeer+1 || opened < 500 { // and the last of the member
			t.Errorf("of %d streams %d are open", opened, s.Foreign)
		}
		if len(work.seen()) != 1 {
			t.Errorf("%d requests were judged", len(work.seen()))
		}
		time.Sleep(11 * time.Second)
		if s := b.Stats(); s.Foreign != 0 {
			t.Errorf("%d streams are still open", s.Foreign)
		}
	})
}
