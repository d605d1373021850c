package exec_test

import (
	"bytes"
	"context"
	"io"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/exec"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

const other protocol.ID = "/test/other/1.0.0"

// serveOther stands for whatever else shares the connection: the spoke, gossip.
func (p *pair) serveOther() {
	p.executor.SetStreamHandler(other, func(s network.Stream) {
		_, _ = io.Copy(s, s)
		_ = s.Close()
	})
}

// roundTrip sends b over a new stream of another protocol and gives the time until it is
// back.
func (p *pair) roundTrip(ctx context.Context, b []byte) time.Duration {
	p.t.Helper()
	at := time.Now()
	s, err := p.submitter.NewStream(ctx, p.executor.ID(), other)
	if err != nil {
		p.t.Fatal(err)
	}
	defer s.Reset()
	if end, ok := ctx.Deadline(); ok {
		_ = s.SetDeadline(end)
	}
	sent := make(chan error, 1)
	go func() { _, err := s.Write(b); sent <- err }()
	got := make([]byte, len(b))
	if _, err := io.ReadFull(s, got); err != nil || !bytes.Equal(got, b) {
		p.t.Fatalf("another stream of the connection: %v", err)
	}
	if err := <-sent; err != nil {
		p.t.Fatal(err)
	}
	return time.Since(at)
}

const stuckReaders = 64

// stuck starts attempts whose callers take one chunk and then nothing, on an
// executor that always has more, and returns when each has all that it may send.
func (p *pair) stuck() (end func()) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	var emitted atomic.Int64
	var full sync.WaitGroup
	full.Add(stuckReaders)
	p.desk.answer(func(ctx context.Context, _ []byte, emit exec.Emit) wire.ExecTrailer {
		data := make([]byte, 4096)
		for n := 1; emit(data, true, false) == nil; n++ {
			emitted.Add(int64(len(data)))
			if n == exec.Window/len(data)-1 { // with what is around it, one more does not fit
				full.Done()
			}
		}
		return wire.ExecTrailer{Class: chain.Canceled}
	})
	var group sync.WaitGroup
	for range stuckReaders {
		group.Go(func() {
			_, err := exec.Do(ctx, p.stream(), opening(p.t, nil), nil, func([]byte, bool, bool) error {
				<-ctx.Done()
				return context.Cause(ctx)
			})
			if err == nil {
				p.t.Error("an endless answer ended")
			}
		})
	}
	full.Wait()
	return func() {
		if most := int64(stuckReaders * exec.Window); emitted.Load() > most {
			p.t.Errorf("%d bytes are ahead of %d readers, at most %d", emitted.Load(), stuckReaders, most)
		}
		cancel()
		group.Wait()
		p.desk.answer(echo)
	}
}

// Readers that never read hold up their own streams and nobody else's. On a
// connection with one window for all its streams, they would stop it whole.
func TestStuckReadersHoldUpNobody(t *testing.T) {
	simulated(t, &desk{}, func(t *testing.T, p *pair) {
		p.serveOther()
		median := func() time.Duration {
			var all []time.Duration
			for range 21 {
				all = append(all, p.roundTrip(t.Context(), make([]byte, 1024)))
			}
			slices.Sort(all)
			return all[10]
		}
		before := median()
		end := p.stuck()
		if during := median(); during > before*3/2 {
			t.Errorf("a round trip takes %s beside stuck readers, %s without", during, before)
		}
		p.roundTrip(t.Context(), make([]byte, 1<<20))
		end()
		p.settled(time.Second)
		if _, _, err := p.do(t.Context(), []byte("after")); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

func TestStuckReadersHoldUpNobodyOnRealSockets(t *testing.T) {
	real(t, func() *desk { return &desk{} }, func(t *testing.T, p *pair) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		p.serveOther()
		one := func() time.Duration {
			var all []time.Duration
			for range 101 {
				all = append(all, p.roundTrip(ctx, make([]byte, 1024)))
			}
			slices.Sort(all)
			return all[50]
		}
		before := one()
		end := p.stuck()
		during := one()
		p.roundTrip(ctx, make([]byte, 2<<20)) // more than any window
		end()
		t.Logf("a round trip takes %s, beside %d stuck readers %s: x%.2f", before, stuckReaders, during, float64(during)/float64(before))
	})
}

// One peer opens ten thousand streams and says next to nothing on them: few are
// kept, memory stays small, and another peer's work is done.
func TestTenThousandStreams(t *testing.T) {
	address := transports["tcp"]
	p := serve(t, &desk{run: echo}, loopback(t, address, newKey(t)), loopback(t, address, newKey(t)))
	defer p.server.Close()
	honest := loopback(t, address, newKey(t))
	if err := honest.Connect(t.Context(), peer.AddrInfo{ID: p.executor.ID(), Addrs: p.executor.Addrs()}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	heap := func() int64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc + m.StackInuse)
	}
	before := heap()
	var flood sync.WaitGroup
	flood.Go(func() {
		for range 10_000 {
			s, err := p.submitter.NewStream(ctx, p.executor.ID(), exec.Protocol)
			if err != nil {
				continue // also a way to be refused
			}
			_, _ = s.Write([]byte{0x80, 0x20}) // a frame of 4 KiB begins, and no more comes
		}
	})
	for i := range 20 {
		s, err := honest.NewStream(ctx, p.executor.ID(), exec.Protocol)
		if err != nil {
			t.Fatal(err)
		}
		payload := bytes.Repeat([]byte{byte(i)}, 10_000)
		var got []byte
		if _, err := exec.Do(ctx, s, opening(t, payload), payload, func(data []byte, _, _ bool) error { got = data; return nil }); err != nil || !bytes.Equal(got, payload) {
			t.Fatalf("another peer's job: %v", err)
		}
	}
	flood.Wait()
	open, refused := p.server.Open()
	if open > exec.StreamsPerPeer || refused < 5000 {
		t.Errorf("%d streams are open, %d were refused", open, refused)
	}
	if grown := heap() - before; grown > 64<<20 {
		t.Errorf("memory grew by %d MiB", grown>>20)
	} else {
		t.Logf("%d open, %d refused, memory grew by %d KiB", open, refused, grown>>10)
	}
	if _, ran, _ := p.desk.counts(); ran != 20 {
		t.Errorf("%d jobs ran", ran)
	}
}
