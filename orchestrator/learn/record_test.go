package learn

import (
	"bytes"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// busy is a book with one record of so many devices.
func busy(devices int) *Book {
	b := NewBook()
	for i := range devices {
		by := old(i)
		by.Segment = Segment{[]string{"", "IN", "DE"}[i%3], ""}
		t := b.Batch(by, now)
		for n := range 12 {
			t.Time(key, time.Duration(1000+10*i+n)*time.Millisecond, true, now.Add(-time.Duration(n)*time.Second))
		}
		t.Count(key, 12, uint64(i%3), now)
		if i%3 > 0 {
			t.Time(key, time.Second, false, now)
		}
		t.Last(key, i%2 == 0, now)
	}
	return b
}

// TestKept: what comes back is what was kept.
func TestKept(t *testing.T) {
	for _, devices := range []int{1, 7, maxDevices} {
		b := busy(devices)
		dirty := b.Dirty()
		if len(dirty) != 1 || len(b.Dirty()) != 0 {
			t.Fatalf("%d dirty records", len(dirty))
		}
		b.Unkept(dirty)
		if again := b.Dirty(); !bytes.Equal(again[key.String()], dirty[key.String()]) {
			t.Fatal("what could not be kept is not kept the next time")
		}
		c := NewBook()
		if err := c.Restore(key.String(), dirty[key.String()]); err != nil {
			t.Fatal(err)
		}
		a, z := b.Estimates(key, Segment{Geo: "IN"}, prior, now), c.Estimates(key, Segment{Geo: "IN"}, prior, now)
		if math.Abs(a.Latency.Value-z.Latency.Value) > 1e-6 || math.Abs(a.Reliability.Value-z.Reliability.Value) > 1e-6 || a.LowN != z.LowN {
			t.Errorf("%d devices: %+v, want %+v", devices, z, a)
		}
		if g, f := c.Totals(key); g != uint64(12*devices) || f == 0 && devices > 1 {
			t.Errorf("totals %d and %d", g, f)
		}
		c.dirty[key] = true
		if again := c.Dirty(); !bytes.Equal(again[key.String()], dirty[key.String()]) {
			t.Error("kept again it differs")
		}
		if err := c.Restore(key.String(), dirty[key.String()]); err == nil {
			t.Error("taken twice")
		}
	}
}

// TestDamaged: a record that is not whole gives nothing.
func TestDamaged(t *testing.T) {
	whole := busy(3).Dirty()[key.String()]
	for i := range whole {
		b := NewBook()
		if err := b.Restore(key.String(), whole[:i]); err == nil {
			t.Errorf("%d of %d bytes were accepted", i, len(whole))
		}
		if n, cells := b.Len(); n != 0 || cells != 0 {
			t.Errorf("%d bytes left something behind", i)
		}
	}
	for _, k := range []string{"", "x", " x", "x "} {
		if NewBook().Restore(k, whole) == nil {
			t.Errorf("key %q was accepted", k)
		}
	}
	if NewBook().Restore(key.String(), append(whole, 0)) == nil {
		t.Error("bytes after the end were accepted")
	}
}

// FuzzRestore: any bytes are refused, or give numbers.
func FuzzRestore(f *testing.F) {
	f.Add(busy(3).Dirty()[key.String()])
	f.Add([]byte{recordVersion})
	f.Add([]byte(`{"key":{}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		b := NewBook()
		if b.Restore(key.String(), raw) != nil {
			return
		}
		b.Batch(old(0), now).Time(key, time.Second, true, now)
		b.Batch(old(0), now).Count(key, 1, 1, now)
		e := seen(b)
		for _, v := range []float64{e.Latency.Value, e.FailureLatency.Value, e.Reliability.Value} {
			if !(v >= 0 && v <= math.MaxFloat64) {
				t.Errorf("%+v", e)
			}
		}
		again := NewBook()
		if err := again.Restore(key.String(), b.Dirty()[key.String()]); err != nil {
			t.Errorf("what was taken cannot be kept: %v", err)
		}
	})
}

// Figures of the intake, beside the bare recurrence on one number.
func BenchmarkIntake(b *testing.B) {
	options := make([]Key, 64)
	for i := range options {
		options[i] = Key{chain.LLMChat, chain.OptionID(fmt.Sprintf("p%d/m", i))}
	}
	full := func() *Book {
		book := NewBook()
		for _, k := range options {
			for i := range maxDevices {
				book.Batch(old(i), now).Count(k, 1, 0, now)
			}
		}
		return book
	}
	b.Run("floor", func(b *testing.B) {
		var mean, weight, at float64
		for i := 0; b.Loop(); i++ {
			fade := math.Exp2(-(float64(i) - at) / 3600)
			at = float64(i)
			weight = weight*fade + 1
			mean += (float64(i&7) - mean) / weight
		}
		if mean < 0 {
			b.Fatal()
		}
	})
	b.Run("measurement", func(b *testing.B) {
		book, by := full(), old(7)
		b.ReportAllocs()
		t := book.Batch(by, now)
		for i := 0; b.Loop(); i++ {
			t.Time(options[i%len(options)], 2*time.Second, true, now)
		}
	})
	b.Run("counter", func(b *testing.B) {
		book, by := full(), old(7)
		b.ReportAllocs()
		t := book.Batch(by, now)
		for i := 0; b.Loop(); i++ {
			t.Count(options[i%len(options)], 9, 1, now)
		}
	})
}

// BenchmarkCombine is one option's estimates over 256 devices, made anew and asked for
// again.
func BenchmarkCombine(b *testing.B) {
	for _, devices := range []int{5, maxDevices} {
		b.Run(fmt.Sprintf("anew/devices=%d", devices), func(b *testing.B) {
			book := busy(devices)
			for b.Loop() {
				book.records[key].changed()
				_ = seen(book)
			}
		})
	}
	b.Run("again", func(b *testing.B) {
		book := busy(maxDevices)
		for b.Loop() {
			_ = seen(book)
		}
	})
}

// BenchmarkKept prints what a device's own values of an option take.
func BenchmarkKept(b *testing.B) {
	book := busy(maxDevices)
	var size int
	for b.Loop() {
		book.dirty[key] = true
		size = len(book.Dirty()[key.String()])
	}
	b.ReportMetric(float64(size)/maxDevices, "B/device")
}
