package learn

import (
	"math"
	"strconv"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// TestTrend: the newest word of the six devices that spoke last, against what all come to.
func TestTrend(t *testing.T) {
	old := func(b *Book) { // thirty devices, half a day ago: a second, no failure
		for i := range 30 {
			at := now.Add(-12*time.Hour + time.Duration(i)*time.Minute)
			in := b.Batch(Reporter{Peer: chain.PeerID("old " + strconv.Itoa(i))}, at)
			in.Time(key, time.Second, true, at)
			in.Count(key, 4, 0, at)
			in.Last(key, true, at)
		}
	}
	for _, c := range []struct {
		name  string
		young int // devices that speak now
		took  time.Duration
		ok    bool
		after time.Duration
		want  float64 // times the time that the estimate says, about; 0: nothing is seen
		less  float64 // reliability
	}{
		{"as ever", 6, time.Second, true, 0, 1, 0},
		{"three times slower", 6, 3 * time.Second, true, 0, 3, 0},
		{"recovered", 6, 200 * time.Millisecond, true, 0, 0.2, 0},
		{"four are enough", 4, 3 * time.Second, true, 0, 3, 0},
		{"three are chance", 3, 3 * time.Second, true, 0, 0, 0},
		{"it fails", 6, 0, false, 0, 0, 1},
		{"some hours later nothing is new", 6, 3 * time.Second, true, 4 * time.Hour, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := NewBook()
			old(b)
			for i := range c.young {
				in := b.Batch(Reporter{Peer: chain.PeerID("young " + strconv.Itoa(i))}, now)
				if c.ok {
					in.Time(key, c.took, true, now)
				}
				in.Last(key, c.ok, now)
			}
			x := b.Trend(key, Segment{}, now.Add(c.after))
			if seen := x.LatencyDoubt > 0 && x.Devices > 0; seen != (c.want > 0) || seen && math.Abs(x.Latency-math.Log(c.want)) > 0.3 {
				t.Errorf("%+v, want about %.2g times", x, c.want)
			}
			if c.less > 0 && (x.Reliability > -0.9 || x.ReliabilityDoubt <= 0 || x.ReliabilityDoubt > 0.3) {
				t.Errorf("%+v, want a reliability that is gone", x)
			}
			if math.IsNaN(x.Latency) || math.IsNaN(x.ReliabilityDoubt) {
				t.Errorf("%+v", x)
			}
		})
	}
	if x := NewBook().Trend(key, Segment{}, now); x.Devices != 0 {
		t.Errorf("of nothing: %+v", x)
	}
}

// TestOneVoiceInATrend: who speaks often is one of the six all the same.
func TestOneVoiceInATrend(t *testing.T) {
	b := NewBook()
	for i := range 20 {
		in := b.Batch(Reporter{Peer: chain.PeerID(strconv.Itoa(i))}, now)
		in.Time(key, time.Second, true, now.Add(-time.Minute))
	}
	for range 50 {
		b.Batch(Reporter{Peer: "loud"}, now).Time(key, time.Minute, true, now)
	}
	if x := b.Trend(key, Segment{}, now); math.Abs(x.Latency) > x.LatencyDoubt {
		t.Errorf("one device made a trend: %+v", x)
	}
}

// TestSeldomIsNotSpread: an option that each device looks at every other day, and that was once another,
// does not seem to take times that lie far apart.
func TestSeldomIsNotSpread(t *testing.T) {
	b := NewBook()
	for round, took := range []time.Duration{time.Second, 3 * time.Second} {
		at := now.Add(time.Duration(round-2) * 48 * time.Hour)
		for i := range 8 {
			b.Batch(Reporter{Peer: chain.PeerID(strconv.Itoa(i))}, at).Time(key, took, true, at)
		}
	}
	if got := b.summarise(b.records[key], Segment{}).latency.deviation; math.Abs(got-usualDeviation) > 0.05 {
		t.Errorf("deviation %.2f, want about %.2f", got, usualDeviation)
	}
}
