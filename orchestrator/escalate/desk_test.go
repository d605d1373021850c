package escalate

import (
	"fmt"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// TestDesk: repeats while they hold, limits per device and slot, bounded memory.
func TestDesk(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	slot := chain.Slot{Scope: chain.DefaultScope, Primitive: chain.LLMChat}
	d := NewDesk()
	d.Remember("p", slot, "n", []byte("x"), "", now.Add(time.Minute), now)
	if b, _, ok := d.Repeat("p", slot, "n", now); !ok || string(b) != "x" {
		t.Error("not remembered")
	}
	for _, other := range []struct {
		peer  chain.PeerID
		nonce string
		at    time.Time
	}{{"q", "n", now}, {"p", "m", now}, {"p", "n", now.Add(time.Minute)}} {
		if _, _, ok := d.Repeat(other.peer, slot, other.nonce, other.at); ok {
			t.Errorf("%+v got another's answer", other)
		}
	}
	for i := range perMinute {
		if ok, _ := d.Admit("p", slot, now.Add(time.Duration(i)*time.Millisecond)); !ok {
			t.Fatalf("protest %d refused", i)
		}
	}
	if ok, wait := d.Admit("p", slot, now.Add(10*time.Second)); ok || wait != 50*time.Second {
		t.Errorf("over the limit: %v, wait %s", ok, wait)
	}
	if ok, _ := d.Admit("q", slot, now); !ok {
		t.Error("another device pays for it")
	}
	if ok, _ := d.Admit("p", slot, now.Add(time.Minute)); !ok {
		t.Error("the minute is over")
	}
	for i := range 3 * maxReplies {
		d.Remember("p", slot, fmt.Sprint(i), nil, "no", now.Add(time.Hour), now)
	}
	if len(d.replies) > maxReplies {
		t.Errorf("%d replies are kept", len(d.replies))
	}
}
