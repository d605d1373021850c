package streams

import (
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
)

// stream is one of a peer; it notes how it was reset.
type stream struct {
	network.Stream
	from  peer.ID
	mu    sync.Mutex
	reset []network.StreamErrorCode
}

// conn is the connection that a stream is on.
type conn struct {
	network.Conn
	from peer.ID
}

func (s *stream) Conn() network.Conn { return conn{from: s.from} }

func (c conn) RemotePeer() peer.ID { return c.from }

func (s *stream) ResetWithError(code network.StreamErrorCode) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reset = append(s.reset, code)
	return nil
}

func (s *stream) resets() []network.StreamErrorCode {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.reset
}

func TestCaps(t *testing.T) {
	set := New(3, 2)
	a := []*stream{{from: "a"}, {from: "a"}, {from: "a"}}
	for i, want := range []network.StreamErrorCode{network.StreamNoError, network.StreamNoError, network.StreamResourceLimitExceeded} {
		if got := set.Enter(a[i]); got != want {
			t.Errorf("stream %d of one peer: %v, not %v", i+1, got, want)
		}
	}
	if got := set.Enter(&stream{from: "b"}); got != network.StreamNoError {
		t.Error("another peer:", got)
	}
	if got := set.Enter(&stream{from: "c"}); got != network.StreamResourceLimitExceeded || set.Len() != 3 {
		t.Error("a fourth:", got, set.Len())
	}
	set.Leave(a[0])
	if got := set.Enter(a[2]); got != network.StreamNoError || set.Len() != 3 {
		t.Error("a place that was given back:", got, set.Len())
	}
}

// A full set gives up the oldest idle stream for a new one, and none that is not.
func TestIdleStreamsMakeRoom(t *testing.T) {
	set := New(3, 2)
	busy, old, young := &stream{from: "a"}, &stream{from: "a"}, &stream{from: "b"}
	for _, s := range []*stream{busy, old, young} {
		set.Enter(s)
		set.Idle(s, true)
	}
	set.Idle(busy, false)
	if got := set.Enter(&stream{from: "a"}); got != network.StreamResourceLimitExceeded || set.GivenUp() != 0 {
		t.Error("a third of one peer:", got)
	}
	late := &stream{from: "c"}
	if got := set.Enter(late); got != network.StreamNoError || len(old.resets()) != 1 || old.resets()[0] != network.StreamResourceLimitExceeded {
		t.Errorf("%v, and the oldest idle one was reset with %v", got, old.resets())
	}
	if got := set.Enter(&stream{from: "a"}); got != network.StreamResourceLimitExceeded {
		t.Error("the one that was given up has not left yet:", got)
	}
	set.Leave(old)
	set.Idle(young, false)
	if got := set.Enter(&stream{from: "a"}); got != network.StreamResourceLimitExceeded || set.Len() != 3 || set.GivenUp() != 1 {
		t.Error("with none idle:", got, set.Len(), set.GivenUp())
	}
	set.Idle(old, true) // it is gone
}

func TestCloseWaitsForAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set, open := New(1, 1), &stream{from: "a"}
		var closed atomic.Bool
		set.Enter(open)
		go func() { set.Close(); closed.Store(true) }()
		synctest.Wait()
		if resets := open.resets(); closed.Load() || len(resets) != 1 || resets[0] != network.StreamShutdown {
			t.Errorf("closed %v with a stream open, which was reset with %v", closed.Load(), resets)
		}
		set.Leave(open)
		synctest.Wait()
		if got := set.Enter(open); !closed.Load() || got != network.StreamShutdown || set.Len() != 0 {
			t.Error("after the end:", closed.Load(), got, set.Len())
		}
	})
}
