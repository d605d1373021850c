package sim_test

import (
	"bytes"
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/chordwheel/chordwheel/mesh/sim"
)

const echo = "/echo/1"

func start(t *testing.T, n *sim.Net, nodes int) []host.Host {
	t.Helper()
	var all []host.Host
	for i := range nodes {
		h, err := n.HostFactory(i)(libp2p.ResourceManager(&network.NullResourceManager{}), libp2p.DisableMetrics())
		if err != nil {
			t.Fatal(err)
		}
		h.SetStreamHandler(echo, func(s network.Stream) { _, _ = io.Copy(s, s); _ = s.Close() })
		all = append(all, h)
	}
	return all
}

// ask sends a word from a to b and gives the time that it took.
func ask(t *testing.T, a, b host.Host) (time.Duration, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := a.Connect(ctx, peer.AddrInfo{ID: b.ID(), Addrs: b.Addrs()}); err != nil {
		return 0, err
	}
	s, err := a.NewStream(ctx, b.ID(), echo)
	if err != nil {
		return 0, err
	}
	defer s.Reset()
	_ = s.SetDeadline(time.Now().Add(10 * time.Second))
	began := time.Now()
	if _, err := s.Write([]byte("word")); err != nil {
		return 0, err
	}
	_, err = io.ReadFull(s, make([]byte, 4))
	return time.Since(began), err
}

func TestNetwork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := sim.New(sim.Config{Seed: 7, Nodes: 8, Delay: 10 * time.Millisecond})
		defer n.Close()
		all := start(t, n, 8)
		for _, h := range all {
			defer h.Close()
		}
		for i, h := range all[1:] {
			took, err := ask(t, h, all[0])
			if err != nil || took < 20*time.Millisecond || took > 40*time.Millisecond {
				t.Errorf("node %d: %s, %v", i+1, took, err)
			}
		}
		if !n.Shared(3) || !n.Shared(7) || n.Shared(1) {
			t.Error("places moved")
		}
		if a, b := all[3].Addrs()[0].String(), all[7].Addrs()[0].String(); a[:15] != b[:15] || a == b {
			t.Errorf("nodes behind one address: %s %s", a, b)
		}

		n.Delay(100*time.Millisecond, []int{1}, []int{0})
		if took, err := ask(t, all[1], all[0]); err != nil || took < 200*time.Millisecond {
			t.Errorf("delayed: %s, %v", took, err)
		}
		n.Cut([]int{2}, n.Others(2))
		if _, err := ask(t, all[2], all[0]); err == nil {
			t.Error("cut off, and still there")
		}
		if _, err := ask(t, all[4], all[0]); err != nil {
			t.Errorf("beside the cut: %v", err)
		}
		n.Heal()
		time.Sleep(time.Minute)
		if _, err := ask(t, all[2], all[0]); err != nil {
			t.Errorf("healed: %v", err)
		}
		n.Loss(0.2)
		for range 5 {
			if _, err := ask(t, all[5], all[0]); err != nil {
				t.Errorf("with a fifth of the packets lost: %v", err)
			}
		}
	})
}

func TestSeedsRepeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := func(seed int64, i int) []byte {
			n := sim.New(sim.Config{Seed: seed, Nodes: 1})
			defer n.Close()
			b := make([]byte, 32)
			_, _ = io.ReadFull(n.Random(i), b)
			return b
		}
		if !bytes.Equal(read(1, 0), read(1, 0)) || bytes.Equal(read(1, 0), read(1, 1)) || bytes.Equal(read(1, 0), read(2, 0)) {
			t.Error("a seed does not stand for its sequence")
		}
		n := sim.New(sim.Config{Nodes: 1})
		defer n.Close()
		if n.Seed() == 0 {
			t.Error("no seed was picked")
		}
	})
}
