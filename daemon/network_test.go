package daemon_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/daemon/control"
)

// A person names a device by its name, its IDs, or enough of one; what nobody has
// comes with those that there are.
func TestAPeerIsFoundByWhatAPersonCallsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, x := beside(t, withSlot)
		id := string(x.id())
		for _, who := range []string{"box", id, id[:len(id)-3], id[len(id)-6:]} {
			pong, err := b.Ping(t.Context(), who)
			if err != nil || pong.PeerID != x.id() || pong.Name != "box" || pong.RTT != 1 {
				t.Errorf("%q: %+v %v", who, pong, err)
			}
		}
		for who, want := range map[string]string{"nas": "there are: box", id[:3]: "there are: box", "hub": "chordwheel netcheck",
			string(chaintest.PeerID(device)): "this device itself", string(b.hub.policy.Trust.Orchestrator): "chordwheel netcheck", "": "there are: box"} {
			var asked control.Asked
			if _, err := b.Ping(t.Context(), who); !errors.As(err, &asked) || !strings.Contains(err.Error(), want) {
				t.Errorf("%q: %v, want %q", who, err, want)
			}
		}
		x.mu.Lock()
		x.dead = true
		x.mu.Unlock()
		if _, err := b.Ping(t.Context(), "box"); err == nil || !strings.Contains(err.Error(), "box is not reached") {
			t.Errorf("a dead one: %v", err)
		}
	})
}

// Peers says how each stands with this device, and over which way.
func TestPeersTellsHowEachStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, x := beside(t, withSlot)
		p := b.Peers()[0]
		if p.PeerID != x.id() || p.State != "live" || p.Heard == nil || p.Way == nil || p.Way.Path != "direct" || len(p.Slots) != 1 || !p.Slots[0].Eligible || p.Cooling != nil {
			t.Errorf("%+v", p)
		}
		b.hub.events.Parted(x.id())
		time.Sleep(time.Second)
		p = b.Peers()[0]
		if p.State != "parted" || p.Slots[0].Eligible || p.Slots[0].Why != "parted" {
			t.Errorf("parted: %+v", p)
		}
		if n := b.Network(t.Context()); n.Clock == nil || *n.Clock != 0 || !n.Joined {
			t.Errorf("%+v", n)
		}
	})
}
