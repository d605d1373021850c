package learn

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/chordwheel/chordwheel/chain"
)

// The form on disk: a version, the totals, the newest moment, the segments that
// occur, and a few dozen bytes per device. Moments stand as distances
// from the newest, in milliseconds; values as 32-bit floats.

const recordVersion = 2

var errRecord = errors.New("a learned record cannot be read")

// What of a cell is there.
const (
	hasLatency = 1 << iota
	hasFailure
	hasCounts
	hasLast
	lastWasOK
)

// Dirty gives the records that changed since the last call, by key, in their form
// for the store; nil for one that was given up and is to be deleted there.
func (b *Book) Dirty() map[string][]byte {
	out := make(map[string][]byte, len(b.dirty))
	for k := range b.dirty {
		out[k.String()] = nil
		if r := b.records[k]; r != nil {
			out[k.String()] = b.encode(r)
		}
	}
	clear(b.dirty)
	return out
}

// Unkept marks records again that could not be kept.
func (b *Book) Unkept(keys map[string][]byte) {
	for name := range keys {
		if k, ok := parseKey(name); ok {
			b.dirty[k] = true
		}
	}
}

func parseKey(s string) (Key, bool) {
	primitive, option, ok := strings.Cut(s, " ")
	return Key{chain.Primitive(primitive), chain.OptionID(option)}, ok && primitive != "" && option != ""
}

func (b *Book) encode(r *Record) []byte {
	var newest chain.Instant
	local := map[uint16]uint64{}
	var names []Segment
	for i := range r.cells {
		c := &r.cells[i]
		newest = max(newest, c.newest())
		if _, ok := local[c.segment]; !ok {
			local[c.segment] = uint64(len(names))
			names = append(names, b.segments[c.segment])
		}
	}
	w := writer{newest: newest}
	w.bytes = append(w.bytes, recordVersion)
	w.uint(r.Successes)
	w.uint(r.Failures)
	w.bytes = binary.AppendVarint(w.bytes, int64(newest))
	w.uint(uint64(len(names)))
	for _, s := range names {
		w.text(s.Geo)
		w.text(s.Class)
	}
	w.uint(uint64(len(r.cells)))
	for i := range r.cells {
		w.cell(&r.cells[i], local[r.cells[i].segment])
	}
	return w.bytes
}

type writer struct {
	bytes  []byte
	newest chain.Instant
}

func (w *writer) uint(v uint64) { w.bytes = binary.AppendUvarint(w.bytes, v) }

func (w *writer) text(s string) {
	w.uint(uint64(len(s)))
	w.bytes = append(w.bytes, s...)
}

func (w *writer) float(v float32) {
	w.bytes = binary.LittleEndian.AppendUint32(w.bytes, math.Float32bits(v))
}

func (w *writer) moment(at chain.Instant) { w.uint(uint64(w.newest - at)) }

func (w *writer) cell(c *cell, segment uint64) {
	flags := byte(0)
	if c.latency.samples > 0 {
		flags |= hasLatency
	}
	if c.failure.samples > 0 {
		flags |= hasFailure
	}
	if c.good+c.bad > 0 {
		flags |= hasCounts
	}
	if c.last != 0 {
		flags |= hasLast
	}
	if c.lastOK {
		flags |= lastWasOK
	}
	w.bytes = binary.LittleEndian.AppendUint64(w.bytes, c.id)
	w.bytes = binary.LittleEndian.AppendUint32(w.bytes, c.network)
	w.bytes = binary.LittleEndian.AppendUint32(w.bytes, c.since)
	w.uint(segment)
	w.bytes = append(w.bytes, flags)
	if flags&hasLatency != 0 {
		w.estimate(&c.latency)
	}
	if flags&hasFailure != 0 {
		w.estimate(&c.failure)
	}
	if flags&hasCounts != 0 {
		w.float(float32(c.good))
		w.float(float32(c.bad))
		w.moment(c.counted)
	}
	if flags&hasLast != 0 {
		w.moment(c.last)
	}
}

func (w *writer) estimate(e *compact) {
	w.moment(e.newest)
	for _, v := range []float32{e.mean, e.deviation, e.weight, e.deviations} {
		w.float(v)
	}
	w.bytes = append(w.bytes, e.samples, e.doublings)
	w.uint(uint64(e.high))
	w.uint(uint64(e.low))
}

// Restore puts back what Dirty gave under a key. Nothing of a damaged record is
// taken.
func (b *Book) Restore(key string, bytes []byte) error {
	k, ok := parseKey(key)
	if !ok || len(bytes) == 0 || bytes[0] != recordVersion {
		return fmt.Errorf("%w: %s", errRecord, chain.Clip(key))
	}
	r := reader{bytes: bytes[1:]}
	record := &Record{Key: k}
	record.Successes, record.Failures = r.uint(), r.uint()
	r.newest = chain.Instant(r.int())
	names := make([]Segment, r.size(maxDevices))
	for i := range names {
		names[i].Geo = r.text()
		names[i].Class = r.text()
	}
	cells := make([]cell, r.size(maxDevices))
	for i := range cells {
		n := r.cell(&cells[i])
		if n >= uint64(len(names)) || i > 0 && cells[i].id <= cells[i-1].id {
			r.bad = true
		}
		if r.bad {
			break
		}
		cells[i].segment = b.segment(names[n])
	}
	if r.bad || len(r.bytes) > 0 {
		return fmt.Errorf("%w: %s", errRecord, chain.Clip(key))
	}
	if len(b.records) >= maxRecords || b.cells+len(cells) > maxCells || b.records[k] != nil {
		return fmt.Errorf("no room for the record of %s", chain.Clip(key))
	}
	record.cells = cells
	b.records[k], b.cells = record, b.cells+len(cells)
	return nil
}

type reader struct {
	bytes  []byte
	newest chain.Instant
	bad    bool
}

func (r *reader) take(n int) []byte {
	if n > len(r.bytes) {
		r.bad, r.bytes = true, nil
		return make([]byte, n)
	}
	b := r.bytes[:n]
	r.bytes = r.bytes[n:]
	return b
}

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.bytes)
	if n <= 0 {
		r.bad, r.bytes = true, nil
		return 0
	}
	r.bytes = r.bytes[n:]
	return v
}

func (r *reader) int() int64 {
	v, n := binary.Varint(r.bytes)
	if n <= 0 || v < -1<<60 || v > 1<<60 {
		r.bad, r.bytes = true, nil
		return 0
	}
	r.bytes = r.bytes[n:]
	return v
}

func (r *reader) size(most uint64) int {
	n := r.uint()
	if n > most {
		r.bad, r.bytes = true, nil
		return 0
	}
	return int(n)
}

func (r *reader) text() string { return string(r.take(min(r.size(chain.MaxNameBytes), len(r.bytes)))) }

// float gives a number that is one: finite and not negative where that is asked.
func (r *reader) float(least float32) float64 {
	v := math.Float32frombits(binary.LittleEndian.Uint32(r.take(4)))
	if !(v >= least && v <= math.MaxFloat32) {
		r.bad = true
		return 0
	}
	return float64(v)
}

func (r *reader) moment() chain.Instant {
	ago := r.uint()
	if ago > 1<<61 {
		r.bad = true
		return 0
	}
	return r.newest - chain.Instant(ago)
}

func (r *reader) cell(c *cell) (segment uint64) {
	c.id = binary.LittleEndian.Uint64(r.take(8))
	c.network = binary.LittleEndian.Uint32(r.take(4))
	c.since = binary.LittleEndian.Uint32(r.take(4))
	segment = r.uint()
	flags := r.take(1)[0]
	if flags&hasLatency != 0 {
		r.estimate(&c.latency)
	}
	if flags&hasFailure != 0 {
		r.estimate(&c.failure)
	}
	if flags&hasCounts != 0 {
		c.good = min(r.float(0), maxCount)
		c.bad = min(r.float(0), maxCount)
		c.counted = r.moment()
	}
	if flags&hasLast != 0 {
		c.last, c.lastOK = r.moment(), flags&lastWasOK != 0
	}
	return segment
}

func (r *reader) estimate(e *compact) {
	e.newest = r.moment()
	e.mean = float32(r.float(-1000))
	e.deviation = float32(r.float(0))
	e.weight = float32(r.float(0))
	e.deviations = float32(r.float(0))
	b := r.take(2)
	e.samples, e.doublings = max(b[0], 1), b[1]
	high, low := r.uint(), r.uint()
	if e.mean > 1000 || e.doublings > 10 || high > math.MaxUint16 || low > math.MaxUint16 {
		r.bad = true
	}
	e.high, e.low = uint16(high), uint16(low)
}
