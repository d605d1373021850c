package learn

import (
	"strconv"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// TestSuspect: three devices, more than half failing, for a quarter of an hour.
func TestSuspect(t *testing.T) {
	type last struct {
		by  string
		ok  bool
		ago time.Duration
	}
	for _, c := range []struct {
		name string
		last []last
		want float64 // 0: not suspect
	}{
		{"nobody", nil, 0},
		{"two devices are too few", []last{{"a", false, 0}, {"b", false, 0}}, 0},
		{"three of three", []last{{"a", false, 0}, {"b", false, 0}, {"c", false, 0}}, 0.125},
		{"two of three", []last{{"a", false, 0}, {"b", false, 0}, {"c", true, 0}}, 0.375},
		{"two of four is not more than half", []last{{"a", false, 0}, {"b", false, 0}, {"c", true, 0}, {"d", true, 0}}, 0},
		{"one device three times", []last{{"a", false, 2}, {"a", false, 1}, {"a", false, 0}}, 0},
		{"it recovered for one of them", []last{{"a", false, 9}, {"b", false, 9}, {"c", true, 9}, {"a", true, 0}}, 0},
		{"a late word does not undo a newer one", []last{{"a", false, 0}, {"b", false, 0}, {"c", false, 0}, {"a", true, time.Minute}}, 0.125},
		{"long ago", []last{{"a", false, 15 * time.Minute}, {"b", false, 0}, {"c", false, 0}}, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := NewBook()
			for _, l := range c.last {
				b.Batch(Reporter{Peer: chain.PeerID(l.by)}, now).Last(key, l.ok, now.Add(-l.ago))
			}
			p, until, suspect := b.Suspect(key, now)
			if suspect != (c.want > 0) || p != c.want {
				t.Fatalf("%v %v, want %v", p, suspect, c.want)
			}
			if e := seen(b); suspect && (e.Reliability.Value != p || e.Usual != prior.Reliability) || !suspect && e.Usual != 0 {
				t.Errorf("the estimate says otherwise: %+v", e)
			}
			if _, _, still := b.Suspect(key, until); suspect && still {
				t.Errorf("still suspect at %s", until)
			}
			if _, _, again := b.Suspect(key, now); again != suspect {
				t.Error("asking twice changes the answer")
			}
		})
	}
	b := NewBook()
	for i := range 3 * maxDevices {
		b.Batch(Reporter{Peer: chain.PeerID(strconv.Itoa(i))}, now).Last(key, false, now)
	}
	if n := len(b.records[key].cells); n > maxDevices {
		t.Errorf("%d devices are remembered", n)
	}
}
