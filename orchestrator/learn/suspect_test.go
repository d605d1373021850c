package learn

import (
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"

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

// TestSybilsDoNotMark: who joined just now has a small voice beside members of long
// standing, in the mark as in the estimates. Where all are young, all are heard.
func TestSybilsDoNotMark(t *testing.T) {
	young := func(i int, age time.Duration) Reporter {
		by := old(i)
		by.Since = chain.InstantOf(now.Add(-age))
		return by
	}
	for _, c := range []struct {
		name   string
		failed []Reporter
		want   bool
	}{
		{"three that enrolled just now", []Reporter{young(91, 0), young(92, 0), young(93, 0)}, false},
		{"ten that did", []Reporter{young(91, 0), young(92, 0), young(93, 0), young(94, 0), young(95, 0), young(96, 0), young(97, 0), young(98, 0), young(99, 0), young(90, 0)}, false},
		{"three old ones", []Reporter{old(1), old(2), old(3)}, true},
		{"an old one and two new", []Reporter{old(1), young(91, 0), young(92, 0)}, true},
		{"ten of a day", []Reporter{young(91, 24*time.Hour), young(92, 24*time.Hour), young(93, 24*time.Hour), young(94, 24*time.Hour), young(95, 24*time.Hour),
			young(96, 24*time.Hour), young(97, 24*time.Hour), young(98, 24*time.Hour), young(99, 24*time.Hour), young(90, 24*time.Hour)}, true},
	} {
		b := NewBook()
		for i := range 5 { // they used it well, some hours ago
			b.Batch(old(i), now).Last(key, true, now.Add(-3*time.Hour))
		}
		for _, by := range c.failed {
			b.Batch(by, now).Last(key, false, now)
		}
		if _, _, got := b.Suspect(key, now); got != c.want {
			t.Errorf("%s: suspect %v", c.name, got)
		}
		b.Batch(old(7), now).Last(key, true, now)
		b.Batch(old(8), now).Last(key, true, now)
		b.Batch(old(9), now).Last(key, true, now)
		if _, _, got := b.Suspect(key, now); got && c.failed[0].Since != old(0).Since {
			t.Errorf("%s: and three old ones succeed", c.name)
		}
	}
	b := NewBook()
	for i := range 3 {
		b.Batch(young(i, time.Minute), now).Last(key, false, now)
	}
	if _, _, got := b.Suspect(key, now); !got {
		t.Error("a young fleet sees no outage")
	}
}

// An outage leaves no bad name behind: what is counted while an option is marked does
// not enter its reliability, which nobody would mend for days, but all totals.
func TestAnOutageLeavesNoBadName(t *testing.T) {
	b := NewBook()
	say := func(good, bad uint64, at time.Time) {
		for i := range 10 {
			in := b.Batch(Reporter{Peer: chain.PeerID(strconv.Itoa(i))}, at)
			in.Count(key, good, bad, at)
			in.Last(key, good > 0, at)
		}
	}
	at := now.Add(-2 * time.Hour)
	say(20, 0, at)
	before := b.Estimates(key, Segment{}, prior, at).Reliability
	at = at.Add(15 * time.Minute) // else it takes six of ten until they are more than half
	for range 10 {
		at = at.Add(5 * time.Minute)
		say(0, 3, at)
		if _, _, suspect := b.Suspect(key, at); !suspect {
			t.Fatal("not suspect")
		}
	}
	at = at.Add(20 * time.Minute) // nobody tries it any more
	if after := b.Estimates(key, Segment{}, prior, at).Reliability; before.Value-after.Value > 0.05 {
		t.Errorf("%.3f before the outage, %.3f after it", before.Value, after.Value)
	}
	if good, bad := b.Totals(key); good != 200 || bad != 300 {
		t.Errorf("totals %d, %d", good, bad)
	}
}

// TestTheVerdictIsNeverStale: what is remembered of a mark is what the cells say at the
// moment it was found, whatever came in since.
func TestTheVerdictIsNeverStale(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, at := NewBook(), now
		for range rapid.IntRange(30, 80).Draw(t, "steps") {
			at = at.Add(time.Duration(rapid.IntRange(0, 30).Draw(t, "seconds")) * time.Second)
			who := rapid.IntRange(0, 9).Draw(t, "who")
			by := Reporter{Peer: chain.PeerID(strconv.Itoa(who)), Network: rapid.SampledFrom([]string{"", "10.0.0.0/24", "10.0.0.0/24", "10.0.0.0/24"}).Draw(t, "network"),
				Since: chain.InstantOf(now.Add(-time.Duration(rapid.SampledFrom([]int{1, 8, 9, 10}).Draw(t, "days")) * 24 * time.Hour))}
			batch := b.Batch(by, at)
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0:
				batch.Count(key, 1, 1, at)
			case 1:
				batch.Time(key, time.Second, false, at)
			case 2:
				b.Forget(by.Peer)
			default:
				batch.Last(key, rapid.Bool().Draw(t, "ok"), at)
			}
			b.Suspect(key, at)
			if r := b.records[key]; r != nil && *r.suspect != *r.judge(r.suspect.from) {
				t.Fatalf("remembered %+v, the cells say %+v", *r.suspect, *r.judge(r.suspect.from))
			}
		}
	})
}
