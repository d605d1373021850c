package mesh_test

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand"
	"runtime"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/spoke"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// stream opens a raw spoke stream to the hub.
func (r *rogue) stream(w *world) network.Stream {
	r.t.Helper()
	s, err := r.NewStream(r.t.Context(), w.hub.Host().ID(), spoke.Protocol)
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// ends waits for the hub to give the stream up and says how: its replies, and
// whether it was a reset.
func ends(t *testing.T, s network.Stream) (replies []wire.Reply, reset bool) {
	t.Helper()
	_ = s.SetReadDeadline(time.Now().Add(time.Hour))
	in := bufio.NewReader(s)
	for {
		var reply wire.Reply
		err := wire.Read(in, wire.MaxControl, &reply)
		if errors.Is(err, io.EOF) {
			return replies, false
		}
		if err != nil {
			var se *network.StreamError
			return replies, errors.As(err, &se) && se.Remote
		}
		replies = append(replies, reply)
	}
}

func frame(payload []byte) []byte {
	return append(binary.AppendUvarint(nil, uint64(len(payload))), payload...)
}

func TestSpokeAgainstBrokenFrames(t *testing.T) {
	run(t, 1, func(t *testing.T, w *world) {
		r := w.rogue(2, 0)
		h := w.hello()
		hello := encode(t, &wire.Request{Hello: &h})
		garbage := make([]byte, 5000)
		rand.New(rand.NewSource(w.net.Seed())).Read(garbage)
		for _, bad := range []struct {
			name  string
			bytes []byte
		}{
			{"a length of a terabyte", binary.AppendUvarint(nil, 1<<40)},
			{"one byte over the limit", binary.AppendUvarint(nil, wire.MaxControl+1)},
			{"a length without an end", bytes.Repeat([]byte{0x80}, 20)},
			{"a length in a longer form", []byte{0x85, 0x00, 1, 2, 3, 4, 5}},
			{"garbage in a frame", frame(garbage)},
			{"an empty frame", frame(nil)},
			{"a list of 2^32 elements", frame([]byte{0x9a, 0xff, 0xff, 0xff, 0xff})},
			{"a hello with a byte behind it", frame(append(bytes.Clone(hello), 0))},
		} {
			s := r.stream(w)
			if _, err := s.Write(bad.bytes); err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			if replies, reset := ends(t, s); !reset || len(replies) > 0 || time.Since(start) > time.Minute {
				t.Errorf("%s: %d replies, reset %v, after %s", bad.name, len(replies), reset, time.Since(start))
			}
		}
		if n := w.hub.Stats().Sessions; n != 1 {
			t.Errorf("%d sessions are left, want the honest one", n)
		}
		if _, err := w.devices[0].Fetch(t.Context(), wire.Fetch{Slot: home}); err != nil {
			t.Errorf("the honest device: %v", err)
		}
	})
}

func TestSpokeSaysHelloFirst(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		r := w.rogue(1, 0)
		s := r.stream(w)
		fetch := frame(encode(t, &wire.Request{Fetch: &wire.Fetch{Slot: home}}))
		for range 5 {
			if _, err := s.Write(fetch); err != nil {
				break
			}
		}
		replies, _ := ends(t, s)
		if len(replies) != 3 {
			t.Errorf("%d replies before it hung up, want 3", len(replies))
		}
		for _, reply := range replies {
			if reply.Refusal == nil || reply.Refusal.Code != spoke.CodeProtocol {
				t.Errorf("answered %+v", reply)
			}
		}
	})
}

func TestSpokeAnswersWhatItDoesNotKnow(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		r := w.rogue(1, 0)
		s := r.stream(w)
		in := bufio.NewReader(s)
		ask := func(payload []byte) wire.Reply {
			t.Helper()
			if _, err := s.Write(frame(payload)); err != nil {
				t.Fatal(err)
			}
			var reply wire.Reply
			if err := wire.Read(in, wire.MaxControl, &reply); err != nil {
				t.Fatal(err)
			}
			return reply
		}
		h := w.hello()
		if reply := ask(encode(t, &wire.Request{Hello: &h})); reply.Welcome == nil {
			t.Fatalf("hello: %+v", reply)
		}
		later, err := chain.Marshal(map[string]any{"rebate": map[string]any{"option": "x"}})
		if err != nil {
			t.Fatal(err)
		}
		if reply := ask(later); reply.Refusal == nil || reply.Refusal.Code != spoke.CodeUnknown {
			t.Errorf("a request of a later version: %+v", reply)
		}
		unknown, err := chain.Marshal(map[string]any{"protest": map[string]any{"slot": home, "body": []byte{}, "nonce": "n", "budget": 1,
			"failed": []any{map[string]any{"option": "a", "class": "melted"}}}})
		if err != nil {
			t.Fatal(err)
		}
		if reply := ask(unknown); reply.Refusal == nil || reply.Refusal.Code != spoke.CodeProtocol {
			t.Errorf("an unknown class: %+v", reply)
		}
		more, err := chain.Marshal(map[string]any{"fetch": map[string]any{"slot": home, "colour": "blue"}})
		if err != nil {
			t.Fatal(err)
		}
		if reply := ask(more); reply.Fetch == nil {
			t.Errorf("a request with a field of a later version: %+v", reply)
		}
	})
}

// One byte a second, before and after the hello, does not hold a session.
func TestSpokeAgainstSlowSenders(t *testing.T) {
	run(t, 0, func(t *testing.T, w *world) {
		r := w.rogue(1, 0)
		h := w.hello()
		hello := frame(encode(t, &wire.Request{Hello: &h}))
		trickle := func(s network.Stream, bound time.Duration) {
			t.Helper()
			start := time.Now()
			for _, b := range append(binary.AppendUvarint(nil, 1<<20), make([]byte, 200)...) {
				if _, err := s.Write([]byte{b}); err != nil {
					break
				}
				time.Sleep(time.Second)
			}
			if took := time.Since(start); took > bound {
				t.Errorf("it was let to for %s", took)
			}
		}
		trickle(r.stream(w), 12*time.Second)
		s := r.stream(w)
		if _, err := s.Write(hello); err != nil {
			t.Fatal(err)
		}
		var reply wire.Reply
		if err := wire.Read(bufio.NewReader(s), wire.MaxControl, &reply); err != nil || reply.Welcome == nil {
			t.Fatal(reply, err)
		}
		trickle(s, 32*time.Second)
		silent := r.stream(w)
		if _, err := silent.Write(nil); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if n := w.hub.Stats().Sessions; n != 0 {
			t.Errorf("%d sessions are left", n)
		}
	})
}

// Thousands of streams, each with half a frame that announces a megabyte: few
// are served, none hurts, and a device beside them gets its answers.
func TestSpokeAgainstManyStreams(t *testing.T) {
	run(t, 1, func(t *testing.T, w *world) {
		r := w.rogue(2, 0)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		opened := 0
		for range 1500 {
			s, err := r.NewStream(t.Context(), w.hub.Host().ID(), spoke.Protocol)
			if err != nil {
				continue
			}
			opened++
			_, _ = s.Write(append(binary.AppendUvarint(nil, wire.MaxControl), 1, 2, 3))
			if opened%100 == 0 {
				time.Sleep(50 * time.Millisecond)
			}
		}
		stats := w.hub.Stats()
		if stats.Sessions > 1+spoke.SessionsPerPeer || opened < 100 {
			t.Errorf("%d sessions of %d streams", stats.Sessions, opened)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 32<<20 {
			t.Errorf("the heap grew by %d MB", grown>>20)
		}
		if _, err := w.devices[0].Fetch(t.Context(), wire.Fetch{Slot: home}); err != nil {
			t.Errorf("the device beside it: %v", err)
		}
		t.Logf("%d streams opened, %d sessions, %d refused", opened, stats.Sessions, stats.Refused)
	})
}
