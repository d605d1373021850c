package exec

import (
	"log/slog"
	"testing"
)

// One peer that announces the largest payloads and sends nothing leaves room for
// those of others, and what it gave back is there again.
func TestOnePeersPayloadsLeaveRoomForOthers(t *testing.T) {
	s := NewServer(nil, slog.New(slog.DiscardHandler))
	const large, small = 16 << 20, 1 << 10
	n := 0
	for s.take("greedy", large) {
		n++
	}
	if n == 0 || !s.take("decent", large) || !s.take("decent", small) {
		t.Fatalf("after %d payloads of one peer another has no room", n)
	}
	for range n {
		s.give("greedy", large)
	}
	s.give("decent", large+small)
	if s.payloads.Used() != 0 || len(s.holding) != 0 {
		t.Errorf("%d bytes are held by %d peers", s.payloads.Used(), len(s.holding))
	}
}
