package learn

import (
	"math"
	"testing"

	"pgregory.net/rapid"
)

// said is what one device counted.
type said struct{ good, bad uint64 }

func counted(list ...said) *Book {
	b := NewBook()
	for i, s := range list {
		b.Batch(old(i), now).Count(key, s.good, s.bad, now)
	}
	return b
}

func pooled(b *Book) share { return b.best(b.records[key], Segment{}).reliability }

func repeat(n int, s said) []said {
	list := make([]said, n)
	for i := range list {
		list[i] = s
	}
	return list
}

// TestCountsAreExact: where devices agree nothing is capped or cut, and what comes out is the
// plain share.
func TestCountsAreExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "devices")
		s := said{rapid.Uint64Range(0, 1000).Draw(t, "good"), rapid.Uint64Range(0, 1000).Draw(t, "bad")}
		if s.good+s.bad == 0 {
			s.good = 1
		}
		got := pooled(counted(repeat(n, s)...))
		want := float64(s.good) / float64(s.good+s.bad)
		if math.Abs(got.p-want) > 1e-9 || math.Abs(got.weight-float64(n)*float64(s.good+s.bad)) > 1e-6 {
			t.Fatalf("%+v, want %v", got, want)
		}
	})
}

func TestPool(t *testing.T) {
	for _, c := range []struct {
		name string
		list []said
		p    float64
		n    float64
	}{
		{"one device", []said{{9, 1}}, 0.9, 10},
		{"a device counts for at most the one in the middle", []said{{10, 0}, {10, 0}, {1000, 0}}, 1, 30},
		{"those that never tried it are not in the middle", append(repeat(3, said{8, 2}), repeat(9, said{0, 0})...), 0.8, 30},
		{"one failure is always believed", append(repeat(9, said{10, 0}), said{9, 1}), 0.99, 100},
		{"and not ten", append(repeat(9, said{10, 0}), said{0, 10}), 90.0 / 91, 91},
		// p of the middle is 0.9: at most 1 + 3·√(10·0.9·0.1) of 10 failures.
		{"chance explains some", append(repeat(9, said{9, 1}), said{2, 8}), 1 - (9+1+3*math.Sqrt(0.9))/(92+1+3*math.Sqrt(0.9)), 93 + 3*math.Sqrt(0.9)},
		{"nothing is cut while most see it", append(repeat(4, said{10, 0}), repeat(6, said{0, 10})...), 0.4, 100},
	} {
		got := pooled(counted(c.list...))
		near(t, c.name+": p", got.p, c.p, 1e-9)
		near(t, c.name+": n", got.weight, c.n, 1e-6)
	}
}

// TestSlander: up to 40 % of the devices that report on an option claim that it always
// fails, or never does; p stays near what the others see.
func TestSlander(t *testing.T) {
	for _, truth := range []said{{98, 2}, {90, 10}, {70, 30}} {
		honest := float64(truth.good) / 100
		for _, liars := range []int{10, 20, 30, 40} {
			for name, lie := range map[string]said{"slander": {0, 100_000}, "praise": {100_000, 0}} {
				p := pooled(counted(append(repeat(100-liars, truth), repeat(liars, lie)...)...)).p
				part := float64(liars) / 100
				least := (1 - part) * honest / (1 - part + part*plausible(100, honest)/100)
				most := honest + part*(1-honest)
				if p < least-1e-9 || p > most+1e-9 {
					t.Errorf("%d %% %s of %.2f: %.3f is outside %.3f to %.3f", liars, name, honest, p, least, most)
				}
			}
		}
	}
}

// TestLateCountsCountLess, by their age: a batch of two days ago a quarter.
func TestLateCountsCountLess(t *testing.T) {
	b := NewBook()
	b.Batch(old(0), now).Count(key, 10, 0, now)
	b.Batch(old(0), now).Count(key, 0, 10, now.AddDate(0, 0, -2))
	near(t, "p", pooled(b).p, 0.8, 1e-9)
	if good, bad := b.Totals(key); good != 10 || bad != 10 {
		t.Errorf("totals %d and %d", good, bad)
	}
}
