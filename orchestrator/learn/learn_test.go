package learn

import (
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/orchestrator/resolve"
)

var (
	key   = Key{chain.LLMChat, "alpha/small"}
	prior = resolve.Prior{Latency: 1, FailureLatency: 1, Reliability: 0.95}
	now   = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
)

// TestEstimates: nothing known, a few, many; success and failure times apart.
func TestEstimates(t *testing.T) {
	b := NewBook()
	if e := b.Estimates(key, prior, now); e != (resolve.Estimates{}) {
		t.Errorf("of nothing: %+v", e)
	}
	b.Count(key, "a", 0, 0, now) // says nothing
	if b.Len() != 0 {
		t.Error("an empty count made a record")
	}
	b.Count(key, "a", 1, 9, now)
	few := b.Estimates(key, prior, now)
	if few.Reliability.Value >= 0.95 || few.Reliability.Value <= 0.1 || few.Latency.Weight != 0 || !few.LowN {
		t.Errorf("a few: %+v", few)
	}
	for range 30 {
		b.Time(key, "a", 4*time.Second, true, now)
		b.Time(key, "a", time.Millisecond, false, now)
	}
	many := b.Estimates(key, prior, now)
	if many.Latency.Value < 3 || many.FailureLatency.Value > 0.1 {
		t.Errorf("success and failure times mix: %+v", many)
	}
	later := b.Estimates(key, prior, now.Add(10*24*time.Hour))
	if later.Latency.Weight > 0.01 {
		t.Errorf("an unused option is not back at its prior: %+v", later)
	}
}

// TestOneDeviceIsNotTheFleet: a batch of a million counts as twenty.
func TestOneDeviceIsNotTheFleet(t *testing.T) {
	b := NewBook()
	for range 10 {
		b.Count(key, "honest", 20, 0, now)
	}
	b.Count(key, "liar", 0, 1_000_000, now)
	if p := b.Estimates(key, prior, now).Reliability.Value; p < 0.8 {
		t.Errorf("p is %v", p)
	}
	for _, d := range []chain.PeerID{"b", "c", "d"} {
		b.Count(key, d, 1, 0, now)
	}
	if b.Estimates(key, prior, now).LowN {
		t.Error("five devices are enough")
	}
}

// TestSuspect: three devices, more than half failing, for a quarter of an hour.
func TestSuspect(t *testing.T) {
	type last struct {
		by  chain.PeerID
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
				b.Last(key, l.by, l.ok, now.Add(-l.ago))
			}
			p, until, suspect := b.Suspect(key, now)
			if suspect != (c.want > 0) || p != c.want {
				t.Fatalf("%v %v, want %v", p, suspect, c.want)
			}
			if suspect && b.Estimates(key, prior, now).Reliability.Value != p {
				t.Error("the estimate does not say so")
			}
			if _, _, still := b.Suspect(key, until); suspect && still {
				t.Errorf("still suspect at %s", until)
			}
		})
	}
	b := NewBook()
	for i := range 3 * maxLast {
		b.Last(key, chain.PeerID(strconv.Itoa(i)), false, now)
	}
	if n := len(b.records[key].last); n > maxLast {
		t.Errorf("%d devices are remembered", n)
	}
}

// TestKept: what comes back is what was kept.
func TestKept(t *testing.T) {
	b := NewBook()
	b.Count(key, "a", 7, 3, now)
	b.Time(key, "a", time.Second, true, now)
	dirty := b.Dirty()
	if len(dirty) != 1 || len(b.Dirty()) != 0 {
		t.Fatalf("%d dirty records", len(dirty))
	}
	bytes, err := dirty[0].Encode()
	if err != nil {
		t.Fatal(err)
	}
	c := NewBook()
	if err := c.Restore(bytes); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(c.records[key], b.records[key]) {
		t.Errorf("%+v, want %+v", c.records[key], b.records[key])
	}
	for _, bad := range []string{"", "{}", "null", "[]", `{"key":1}`} {
		if err := NewBook().Restore([]byte(bad)); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}

// TestBounded: devices and records cannot grow without end.
func TestBounded(t *testing.T) {
	b := NewBook()
	for i := range 100 {
		b.Count(key, chain.PeerID(rune('a'+i)), 1, 0, now.Add(time.Duration(i)*time.Second))
	}
	if n := len(b.records[key].Devices); n > maxDevices {
		t.Errorf("%d devices", n)
	}
	for i := range maxRecords + 10 {
		b.Count(Key{chain.LLMChat, chain.OptionID(strconv.Itoa(i))}, "a", 1, 0, now)
	}
	if b.Len() > maxRecords || b.Ignored == 0 {
		t.Errorf("%d records, %d ignored", b.Len(), b.Ignored)
	}
}
