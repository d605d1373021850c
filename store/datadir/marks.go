package datadir

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"sync"

	"github.com/chordwheel/chordwheel/chain"
)

// MaxMarks bounds the slots a directory keeps marks for.
const MaxMarks = 8192

// Refusals of [Marks.Raise].
var (
	ErrLower = errors.New("the mark is higher already")
	ErrFull  = errors.New("no room for another mark")
)

const marksFormat = 1

// marksRecord is the payload of the marks file, in deterministic CBOR, sorted
// by scope and primitive.
type marksRecord struct {
	Format int          `cbor:"format"`
	Marks  []markRecord `cbor:"marks"`
}

type markRecord struct {
	Scope     chain.ScopeID   `cbor:"scope"`
	Primitive chain.Primitive `cbor:"primitive"`
	Seq       uint64          `cbor:"seq"`
	Body      chain.CID       `cbor:"body"`
	Issued    chain.Instant   `cbor:"issued"`
}

// Marks are the high-water marks of all slots: what was accepted last. They
// outlive the chains themselves, and are never lowered. Its methods may be
// called at once from several goroutines.
type Marks struct {
	dir     *Dir
	mu      sync.Mutex
	unsaved bool // all holds more than the disk does
	all     map[chain.Slot]chain.Mark
}

// readMarks reads the marks; at the first start there are none. A missing
// file later is as bad as a damaged one: without marks a device would
// believe any chain that the hub ever signed.
func (d *Dir) readMarks(first bool) (*Marks, error) {
	m := &Marks{dir: d, all: make(map[chain.Slot]chain.Mark)}
	b, err := d.ReadChecked(MarksFile)
	if errors.Is(err, fs.ErrNotExist) && first {
		return m, m.save(m.all)
	}
	if err == nil {
		m.all, err = decodeMarks(b)
		if err != nil {
			err = fmt.Errorf("%s is %w", d.Path(MarksFile), err)
		}
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrDamaged) {
		return nil, fmt.Errorf("the high-water marks are lost: %w: put %s or its .bak back from a backup, or, to go on at the risk that "+
			"an older chain of the hub is believed once more, remove marks, marks.bak, format and format.bak there", err, d.Path(MarksFile))
	}
	return m, err
}

// Get gives the mark of slot, or the zero value.
func (m *Marks) Get(slot chain.Slot) chain.Mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all[slot]
}

// Room reports whether Raise would find room for slot.
func (m *Marks) Room(slot chain.Slot) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, known := m.all[slot]
	return known || len(m.all) < MaxMarks
}

// All gives a copy of all marks.
func (m *Marks) All() map[chain.Slot]chain.Mark {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.all)
}

// Raise sets the mark of slot and returns when it is on disk. A mark that is
// lower (by sequence, then by time of issue), or has another body under the
// same sequence, is refused with ErrLower; a new slot beyond MaxMarks with
// ErrFull. The same mark again costs nothing.
//
// After another error, which is the system's, the mark is in force in memory
// but may be lost with the process; the next Raise that succeeds writes it too.
func (m *Marks) Raise(slot chain.Slot, mark chain.Mark) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	old, known := m.all[slot]
	switch {
	case mark.Seq == 0 || mark.Body == "":
		return fmt.Errorf("mark of %s: %w: want a sequence and a body", slot, ErrLower)
	case known && (mark.Seq < old.Seq || mark.Seq == old.Seq && (mark.Body != old.Body || mark.Issued < old.Issued)):
		return fmt.Errorf("mark of %s: %w: %d, not %d", slot, ErrLower, old.Seq, mark.Seq)
	case !known && len(m.all) >= MaxMarks:
		return fmt.Errorf("mark of %s: %w: %d slots", slot, ErrFull, MaxMarks)
	}
	m.all[slot] = mark
	if mark == old && !m.unsaved {
		return nil
	}
	m.unsaved = true
	if err := m.save(m.all); err != nil {
		return fmt.Errorf("mark of %s: %w", slot, err)
	}
	m.unsaved = false
	return nil
}

func (m *Marks) save(all map[chain.Slot]chain.Mark) error {
	b, err := encodeMarks(all)
	if err != nil {
		return err
	}
	return m.dir.WriteChecked(MarksFile, b)
}

func encodeMarks(all map[chain.Slot]chain.Mark) ([]byte, error) {
	r := marksRecord{Format: marksFormat, Marks: make([]markRecord, 0, len(all))}
	for s, k := range all {
		r.Marks = append(r.Marks, markRecord{s.Scope, s.Primitive, k.Seq, k.Body, k.Issued})
	}
	slices.SortFunc(r.Marks, func(a, b markRecord) int {
		return cmp.Or(cmp.Compare(a.Scope, b.Scope), cmp.Compare(a.Primitive, b.Primitive))
	})
	return chain.Marshal(r)
}

// decodeMarks is the reverse of encodeMarks. What it accepts it would write
// again in the same order.
func decodeMarks(b []byte) (map[chain.Slot]chain.Mark, error) {
	var r marksRecord
	if err := chain.Unmarshal(b, &r); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if r.Format > marksFormat {
		return nil, fmt.Errorf("%w (format %d): use that version", ErrFormat, r.Format)
	}
	if r.Format < 1 || len(r.Marks) > MaxMarks {
		return nil, fmt.Errorf("%w: format or count out of range", ErrDamaged)
	}
	all := make(map[chain.Slot]chain.Mark, len(r.Marks))
	for _, k := range r.Marks {
		slot := chain.Slot{Scope: k.Scope, Primitive: k.Primitive}
		if _, twice := all[slot]; twice || k.Seq == 0 || k.Body == "" {
			return nil, fmt.Errorf("%w: a mark stands twice or is empty", ErrDamaged)
		}
		all[slot] = chain.Mark{Seq: k.Seq, Body: k.Body, Issued: k.Issued}
	}
	return all, nil
}
