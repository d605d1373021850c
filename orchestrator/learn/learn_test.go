package learn

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/estimate"
	"github.com/chordwheel/chordwheel/orchestrator/resolve"
)

var (
	key   = Key{chain.LLMChat, "alpha/small"}
	prior = resolve.Prior{Latency: 1, FailureLatency: 1, Reliability: 0.95}
	now   = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
)

// old is a member of long standing, in a network of its own.
func old(i int) Reporter {
	return Reporter{Peer: chain.PeerID(fmt.Sprintf("device-%03d", i)), Network: fmt.Sprintf("10.%d.%d.0/24", i/256, i%256), Since: chain.InstantOf(now.Add(-90 * 24 * time.Hour))}
}

// times lets a device report an answer of the given seconds, n times.
func times(b *Book, by Reporter, n int, seconds float64) {
	for range n {
		b.Batch(by, now).Time(key, time.Duration(seconds*float64(time.Second)), true, now)
	}
}

func seen(b *Book) resolve.Estimates { return b.Estimates(key, Segment{}, prior, now) }

// median of the fleet, before prior and correction.
func fleetMedian(b *Book) float64 { return math.Exp(b.best(b.records[key], Segment{}).latency.mean) }

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if !(math.Abs(got-want) <= tolerance) {
		t.Errorf("%s: %.6g, want %.6g within %g", what, got, want, tolerance)
	}
}

func TestNothingIsKnownOfWhatNobodyTried(t *testing.T) {
	b := NewBook()
	if e := seen(b); e != (resolve.Estimates{}) {
		t.Errorf("%+v", e)
	}
	b.Batch(old(0), now).Count(key, 0, 0, now) // says nothing
	if n, _ := b.Len(); n != 0 {
		t.Error("an empty count made a record")
	}
}

func TestSuccessAndFailureTimesNeverMix(t *testing.T) {
	b := NewBook()
	for i := range 5 {
		times(b, old(i), 30, 4)
		for range 30 {
			b.Batch(old(i), now).Time(key, time.Millisecond, false, now)
		}
	}
	e := seen(b)
	if e.Latency.Value < 3 || e.FailureLatency.Value > 0.1 || e.LowN {
		t.Errorf("%+v", e)
	}
}

// TestAFewDevicesCountBesideThePrior: below five the median, held within ten times the
// prior, counts n/5; then the pull by weight follows.
func TestAFewDevicesCountBesideThePrior(t *testing.T) {
	for devices := 1; devices <= 6; devices++ {
		b := NewBook()
		for i := range devices {
			times(b, old(i), 1000, 100) // a hundred times the prior
		}
		part, held := float64(devices)/5, math.Log(10)
		if devices >= 5 {
			part, held = 1, math.Log(100)
		}
		e := seen(b)
		want := math.Exp(64*part*held/68) * estimate.Correction(0.05)
		near(t, fmt.Sprintf("%d devices", devices), e.Latency.Value, want, want*0.02)
		if e.LowN != (devices < 5) {
			t.Errorf("%d devices: low-n %v", devices, e.LowN)
		}
	}
}

// TestTheWeightsAreSummedAfterTheMedian: five devices with one sample each weigh 5
// together; a thousand weigh 64, and four half-lives later 4.
func TestTheWeightsAreSummedAfterTheMedian(t *testing.T) {
	b := NewBook()
	for i := range 5 {
		times(b, old(i), 1, 3)
	}
	near(t, "five", seen(b).Latency.Weight, 5, 1e-6)
	for i := range 100 {
		times(b, old(i), 10, 3)
	}
	near(t, "many", seen(b).Latency.Weight, 64, 1e-6)
	e := b.Estimates(key, Segment{}, prior, now.Add(24*time.Hour))
	near(t, "a day later", e.Latency.Weight, 4, 1e-6)
	near(t, "its value, half way in log space", e.Latency.Value, math.Sqrt(3)*estimate.Correction(b.best(b.records[key], Segment{}).latency.deviation), 1e-3)
}

func TestWeightedMedian(t *testing.T) {
	w := func(pairs ...float64) (list []witness) {
		for i := 0; i < len(pairs); i += 2 {
			list = append(list, witness{id: uint64(i), value: pairs[i], standing: pairs[i+1]})
		}
		return list
	}
	for _, c := range []struct {
		name string
		list []witness
		want float64
	}{
		{"none", w(), 0},
		{"one", w(7, 0.1), 7},
		{"two alike: between them", w(1, 1, 3, 1), 2},
		{"the heavier of two", w(1, 1, 3, 1.5), 3},
		{"the one in the middle", w(9, 1, 1, 1, 5, 1), 5},
		{"light ones do not outvote", w(9, 0.1, 9, 0.1, 9, 0.1, 1, 1), 1},
	} {
		if got := median(c.list, false, func(w *witness) float64 { return w.value }); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// TestTheMedianLiesInTheHonestRange whatever under half of the weight says.
func TestTheMedianLiesInTheHonestRange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var list []witness
		honest, low, high := 0.0, math.Inf(1), math.Inf(-1)
		for i := range rapid.IntRange(1, 30).Draw(t, "honest") {
			w := witness{id: uint64(i), value: rapid.Float64Range(-5, 5).Draw(t, "value"), standing: rapid.Float64Range(0.05, 1).Draw(t, "standing")}
			honest, low, high = honest+w.standing, min(low, w.value), max(high, w.value)
			list = append(list, w)
		}
		lying := 0.0
		for i := range rapid.IntRange(0, 60).Draw(t, "liars") {
			w := witness{id: uint64(1000 + i), value: rapid.Float64Range(-1e6, 1e6).Draw(t, "lie"), standing: rapid.Float64Range(0.001, 1).Draw(t, "standing")}
			if lying+w.standing >= honest*0.999 {
				break
			}
			lying += w.standing
			list = append(list, w)
		}
		if m := median(list, false, func(w *witness) float64 { return w.value }); m < low || m > high {
			t.Fatalf("%v is outside %v to %v", m, low, high)
		}
	})
}

// TestLiars: 100 devices. Up to 40 % of them lie about the latency, in three ways;
// the estimate stays in the range that honest devices see. With half of them it does
// not.
func TestLiars(t *testing.T) {
	lies := map[string]func(*rand.Rand) float64{
		"ten times slower": func(*rand.Rand) float64 { return 20 },
		"praise":           func(*rand.Rand) float64 { return 0.001 },
		"random":           func(r *rand.Rand) float64 { return math.Exp(r.Float64()*18 - 7) },
	}
	for name, lie := range lies {
		for _, share := range []int{10, 20, 30, 40, 50} {
			b, random := NewBook(), rand.New(rand.NewPCG(1, uint64(share)))
			low, high := math.Inf(1), 0.0
			for i := range 100 {
				for range 20 {
					x := lie(random)
					if i >= share {
						x = 2 * math.Exp(random.NormFloat64()*0.05)
					}
					times(b, old(i), 1, x)
				}
				if i >= share {
					m := math.Exp(float64(b.records[key].cells[mustFind(b, old(i))].latency.mean))
					low, high = min(low, m), max(high, m)
				}
			}
			got := fleetMedian(b)
			inside := got >= low && got <= high
			if share <= 40 && !inside {
				t.Errorf("%d %% liars, %s: %.3f s is outside %.3f to %.3f", share, name, got, low, high)
			}
			if share == 50 && name != "random" && inside {
				t.Errorf("half of them lying, %s: %.3f s; the test cannot tell", name, got)
			}
		}
	}
}

func mustFind(b *Book, by Reporter) int {
	i, ok := b.records[key].find(number(string(by.Peer)))
	if !ok {
		panic("no cell")
	}
	return i
}

// TestOneAbsurdMeasurement moves a settled mean by under 1 %.
func TestOneAbsurdMeasurement(t *testing.T) {
	for _, absurd := range []time.Duration{0, time.Millisecond, time.Hour, 24 * time.Hour} {
		t.Run("one device of weight 100: "+absurd.String(), func(t *testing.T) {
			b, random := NewBook(), rand.New(rand.NewPCG(3, 3))
			for b.records[key] == nil || b.records[key].cells[0].latency.weight < 100 {
				times(b, old(0), 1, 2*math.Exp(random.NormFloat64()*0.2))
			}
			if s := b.records[key].cells[0].latency.deviation; s > 0.2 {
				t.Fatalf("the deviation is %v", s)
			}
			before := seen(b).Latency.Value
			b.Batch(old(0), now).Time(key, absurd, true, now)
			near(t, "the estimate", seen(b).Latency.Value/before, 1, 0.01)
		})
		t.Run("five devices, and a sixth: "+absurd.String(), func(t *testing.T) {
			b := NewBook()
			for i := range 5 {
				times(b, old(i), 20, 2+0.003*float64(i))
			}
			before := seen(b).Latency.Value
			b.Batch(old(5), now).Time(key, absurd, true, now)
			near(t, "the estimate", seen(b).Latency.Value/before, 1, 0.01)
		})
	}
}

// TestOneNetworkHasFourVotes: however many devices somebody makes up in one network.
func TestOneNetworkHasFourVotes(t *testing.T) {
	b := NewBook()
	for i := range 10 {
		times(b, old(i), 20, 2)
		b.Batch(old(i), now).Count(key, 20, 0, now)
	}
	for i := range 200 {
		sybil := old(1000 + i)
		sybil.Network = "192.0.2.0/24"
		times(b, sybil, 20, 50)
		b.Batch(sybil, now).Count(key, 0, 1_000_000, now)
	}
	near(t, "the median", fleetMedian(b), 2, 0.01)
	if p := seen(b).Reliability.Value; p < 0.93 {
		t.Errorf("p is %v", p)
	}
}

// TestAYoungMembershipCountsLittle, but where all are young they count as ever.
func TestAYoungMembershipCountsLittle(t *testing.T) {
	young := func(i int) Reporter {
		r := old(i)
		r.Since = chain.InstantOf(now)
		return r
	}
	b := NewBook()
	for i := range 5 {
		times(b, old(i), 20, 2)
	}
	for i := range 90 {
		times(b, young(100+i), 20, 50)
	}
	near(t, "90 new devices against 5 old ones", fleetMedian(b), 2, 0.01)
	b = NewBook()
	for i := range 6 {
		times(b, young(i), 20, 2)
		b.Batch(young(i), now).Count(key, 9, 1, now)
	}
	e := seen(b)
	near(t, "the weight of a young fleet's times", e.Latency.Weight, 64, 1e-6)
	near(t, "and of its counts", e.Reliability.Weight, 60, 1e-6)
	near(t, "p", e.Reliability.Value, (54+4*0.95)/64, 1e-9)
}

// TestTheYoungestGivesUpItsPlace: 256 devices have one each.
func TestTheYoungestGivesUpItsPlace(t *testing.T) {
	b := NewBook()
	aged := func(i int) Reporter {
		r := old(i)
		r.Since = chain.InstantOf(now.Add(-time.Duration(i) * time.Hour))
		return r
	}
	for i := range 300 {
		b.Batch(aged(i), now).Count(key, 1, 0, now)
	}
	if n := len(b.records[key].cells); n != maxDevices {
		t.Fatalf("%d devices", n)
	}
	for i := range 300 {
		if _, have := b.records[key].find(number(string(aged(i).Peer))); have != (i >= 300-maxDevices) {
			t.Errorf("a member for %d hours: %v", i, have)
		}
	}
	ignored := b.Ignored
	b.Batch(aged(0), now).Count(key, 1, 0, now)
	if b.Ignored != ignored+1 {
		t.Error("a younger one found a place")
	}
	later := now.Add(40 * 24 * time.Hour) // the others said nothing since
	b.Batch(aged(0), later).Count(key, 1, 0, later)
	if n := len(b.records[key].cells); n != 1 {
		t.Errorf("%d devices, of which one has anything to say", n)
	}
}

// TestASegmentOfItsOwn is used where five of its devices have tried the option.
func TestASegmentOfItsOwn(t *testing.T) {
	b := NewBook()
	from := func(i int, geo, class string) Reporter {
		r := old(i)
		r.Segment = Segment{geo, class}
		return r
	}
	for i := range 20 {
		times(b, from(i, "DE", "residential"), 50, 2)
	}
	for i := range 5 {
		times(b, from(100+i, "IN", "residential"), 50, 8)
	}
	for i := range 3 {
		times(b, from(200+i, "IN", "mobile"), 50, 30)
	}
	for _, c := range []struct {
		in   Segment
		want float64
	}{
		{Segment{}, 2},
		{Segment{"DE", "residential"}, 2},
		{Segment{"IN", "residential"}, 8},
		{Segment{"IN", "mobile"}, 8},    // three are too few: its geo
		{Segment{"", "mobile"}, 2},      // too few, and no geo
		{Segment{"FR", "satellite"}, 2}, // nobody
	} {
		near(t, fmt.Sprint(c.in), math.Exp(b.best(b.records[key], c.in).latency.mean), c.want, 1e-3)
	}
}

// TestForgotten: what a revoked device said is gone, its counts stay counted.
func TestForgotten(t *testing.T) {
	b := NewBook()
	for i := range 3 {
		b.Batch(old(i), now).Count(key, 0, 5, now)
		b.Batch(old(i), now).Last(key, false, now)
	}
	if _, _, suspect := b.Suspect(key, now); !suspect {
		t.Fatal("not suspect")
	}
	b.Forget(old(1).Peer)
	if _, _, suspect := b.Suspect(key, now); suspect {
		t.Error("still suspect")
	}
	if ok, bad := b.Totals(key); ok != 0 || bad != 15 {
		t.Errorf("%d and %d", ok, bad)
	}
}

// TestClocks: what a hub's clock that jumped by years left behind does not keep it
// from learning, and nothing is ever not a number.
func TestClocks(t *testing.T) {
	for _, ahead := range []time.Duration{2 * time.Minute, 24 * time.Hour, 50 * 365 * 24 * time.Hour, -50 * 365 * 24 * time.Hour} {
		b := NewBook()
		wrong := now.Add(ahead)
		for i := range 5 {
			t := b.Batch(old(i), wrong)
			t.Time(key, 50*time.Second, true, wrong)
			t.Count(key, 0, 10, wrong)
			t.Last(key, false, wrong)
		}
		for range 200 {
			for i := range 5 {
				t := b.Batch(old(i), now)
				t.Time(key, 2*time.Second, true, now)
				t.Count(key, 10, 0, now)
				t.Last(key, true, now)
			}
		}
		e := seen(b)
		if e.Latency.Value > 3 || e.Reliability.Value < 0.9 {
			t.Errorf("%s: %+v", ahead, e)
		}
	}
}

// TestNothingButNumbers: any counts, times and clocks give numbers in their range.
func TestNothingButNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := NewBook()
		moment := rapid.Custom(func(t *rapid.T) time.Time {
			return now.Add(time.Duration(rapid.Int64().Draw(t, "offset")))
		})
		clock := now
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if rapid.IntRange(0, 9).Draw(t, "jump") == 0 {
				clock = moment.Draw(t, "clock")
			}
			by := old(rapid.IntRange(0, 7).Draw(t, "device"))
			by.Since = chain.Instant(rapid.Int64().Draw(t, "since"))
			batch := b.Batch(by, clock)
			at := clock
			if rapid.Bool().Draw(t, "otherwise") {
				at = moment.Draw(t, "at")
			}
			batch.Count(key, rapid.Uint64().Draw(t, "ok"), rapid.Uint64().Draw(t, "bad"), at)
			batch.Time(key, time.Duration(rapid.Int64().Draw(t, "took")), rapid.Bool().Draw(t, "answered"), at)
			batch.Last(key, rapid.Bool().Draw(t, "last"), at)
			e := b.Estimates(key, Segment{}, prior, clock)
			for _, v := range []resolve.Estimate{e.Latency, e.FailureLatency, e.Reliability} {
				if !(v.Value >= 0 && v.Value < 1e12 && v.Weight >= 0 && v.Weight <= 64) {
					t.Fatalf("%+v", e)
				}
			}
			if e.Reliability.Value > 1 {
				t.Fatalf("%+v", e)
			}
		}
	})
}

// TestTheOrderOfDevicesHasNoSay: the same reports give the same bits.
func TestTheOrderOfDevicesHasNoSay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type said struct {
			device  int
			seconds float64
			ok, bad uint64
		}
		var list []said
		for i := range rapid.IntRange(1, 20).Draw(t, "devices") {
			list = append(list, said{i, rapid.Float64Range(0.01, 100).Draw(t, "seconds"), rapid.Uint64Range(0, 50).Draw(t, "ok"), rapid.Uint64Range(0, 50).Draw(t, "bad")})
		}
		run := func(list []said) resolve.Estimates {
			b := NewBook()
			for _, s := range list {
				by := old(s.device)
				by.Network = fmt.Sprint(s.device % 3)
				times(b, by, 3, s.seconds)
				b.Batch(by, now).Count(key, s.ok, s.bad, now)
			}
			return seen(b)
		}
		if a, b := run(list), run(rapid.Permutation(list).Draw(t, "order")); a != b {
			t.Fatalf("%+v\n%+v", a, b)
		}
	})
}

// TestBounded: records and cells cannot grow without end.
func TestBounded(t *testing.T) {
	b := NewBook()
	for i := range maxRecords + 10 {
		b.Batch(old(0), now).Count(Key{chain.LLMChat, chain.OptionID(fmt.Sprint(i))}, 1, 0, now)
	}
	if n, _ := b.Len(); n > maxRecords {
		t.Errorf("%d records, %d ignored", n, b.Ignored)
	}
	for i := range maxSegments + 10 {
		by := old(0)
		by.Segment.Geo = fmt.Sprint(i)
		b.Batch(by, now).Count(key, 1, 0, now)
	}
	if len(b.segments) > maxSegments {
		t.Errorf("%d segments", len(b.segments))
	}
}

// TestEndlessNames: a member may name options without end. What many devices speak
// of stays known, and what is new still finds room.
func TestEndlessNames(t *testing.T) {
	b := NewBook()
	for i := range 8 {
		b.Batch(old(i), now).Count(key, 9, 1, now)
	}
	liar := b.Batch(old(99), now)
	for i := range maxRecords + 10 {
		liar.Count(Key{chain.LLMChat, chain.OptionID(fmt.Sprint("local/x", i))}, 1, 0, now)
	}
	fresh := Key{chain.LLMChat, "alpha/new"}
	b.Batch(old(0), now.Add(time.Minute)).Count(fresh, 3, 0, now.Add(time.Minute))
	for _, k := range []Key{key, fresh} {
		if good, _ := b.Totals(k); good == 0 {
			t.Errorf("nothing is known of %s", k)
		}
	}
	records, cells := b.Len()
	sum, kept, gone := 0, 0, 0
	for _, r := range b.records {
		sum += len(r.cells)
	}
	for _, bytes := range b.Dirty() {
		if bytes == nil {
			gone++
		} else {
			kept++
		}
	}
	if records > maxRecords || sum != cells || kept != records || gone == 0 {
		t.Errorf("%d records, %d cells counted as %d, %d to keep, %d to take off the disk", records, sum, cells, kept, gone)
	}
}
