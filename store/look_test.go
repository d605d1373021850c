package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.etcd.io/bbolt"

	"github.com/chordwheel/chordwheel/store/datadir"
)

// sound gives the bytes of an empty database as the library makes it.
func sound(t testing.TB) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	db, err := bbolt.Open(path, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// edit changes a field of the meta at offset and makes its sum right again.
func edit(b []byte, page int, field int, value uint64, size int) []byte {
	b = bytes.Clone(b)
	m := b[page+pageHeader:]
	if size == 4 {
		binary.NativeEndian.PutUint32(m[field:], uint32(value))
	} else {
		binary.NativeEndian.PutUint64(m[field:], value)
	}
	sum := fnv.New64a()
	sum.Write(m[:56])
	binary.NativeEndian.PutUint64(m[56:], sum.Sum64())
	return b
}

func TestLook(t *testing.T) {
	b := sound(t)
	page := os.Getpagesize()
	both := func(field int, value uint64, size int) []byte {
		return edit(edit(b, 0, field, value, size), page, field, value, size)
	}
	spoilt := func(offsets ...int) []byte {
		b := bytes.Clone(b)
		for _, i := range offsets {
			b[i] ^= 0xff
		}
		return b
	}
	cases := map[string]struct {
		b    []byte
		want error
	}{
		"sound":              {b, nil},
		"first header bad":   {spoilt(pageHeader + 9), nil},
		"second header bad":  {spoilt(page + pageHeader + 60), nil},
		"both bad":           {spoilt(pageHeader+9, page+pageHeader+9), ErrDamaged},
		"empty":              {nil, ErrDamaged},
		"short":              {b[:50], ErrDamaged},
		"headers only":       {b[:2*page], ErrDamaged},
		"a byte short":       {b[:4*page-1], ErrDamaged},
		"newer":              {both(4, 3, 4), ErrFormat},
		"older":              {both(4, 1, 4), ErrDamaged},
		"page size 0":        {both(8, 0, 4), ErrDamaged},
		"page size odd":      {both(8, 5000, 4), ErrDamaged},
		"page size huge":     {both(8, 1<<31, 4), ErrDamaged},
		"root outside":       {both(16, 1<<40, 8), ErrDamaged},
		"freelist outside":   {both(32, 1<<40, 8), ErrDamaged},
		"no freelist":        {both(32, ^uint64(0), 8), ErrDamaged},
		"high water outside": {both(40, 1<<60, 8), ErrDamaged},
		"high water wraps":   {both(40, 1<<63+4, 8), ErrDamaged},
	}
	for name, c := range cases {
		if err := look(bytes.NewReader(c.b), int64(len(c.b))); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// branched gives the bytes of a database with branch pages, free pages, an
// inline bucket and one of its own pages.
func branched(t testing.TB) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	db, err := openDB(path, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 300, 150} {
		if err := db.Update(func(tx *bbolt.Tx) error {
			err := prove(tx)
			for i := range n {
				err = errors.Join(err, put(tx, "data/big", fmt.Sprintf("%0100d", i*7919%1000), []byte{byte(i)}), put(tx, "data/small", "k", []byte("v")))
			}
			if n < 300 {
				err = errors.Join(err, tx.Bucket([]byte("data/big")).Delete(fmt.Appendf(nil, "%0100d", 0)))
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func lookBytes(b []byte) error { return look(bytes.NewReader(b), int64(len(b))) }

// What would have the library recurse, or write over itself, is seen before it
// is opened.
func TestLookAtPages(t *testing.T) {
	whole := branched(t)
	if err := lookBytes(whole); err != nil {
		t.Fatal(err)
	}
	n, page := binary.NativeEndian, os.Getpagesize()
	m, _ := parseMeta(whole[pageHeader:])
	if second, ok := parseMeta(whole[page+pageHeader:]); ok && second.txid > m.txid {
		m = second
	}
	free := make(map[uint64]bool)
	list := whole[m.freelist*uint64(page):]
	for i := range int(n.Uint16(list[10:])) {
		free[n.Uint64(list[pageHeader+8*i:])] = true
	}
	kinds := make(map[uint16]int)
	for id := uint64(2); id < m.high; id++ {
		if free[id] {
			continue
		}
		b := whole[id*uint64(page):]
		kind := n.Uint16(b[8:])
		kinds[kind]++
		spoil := func(what string, change func(b []byte)) {
			spoilt := bytes.Clone(whole)
			change(spoilt[id*uint64(page):])
			if err := lookBytes(spoilt); !errors.Is(err, ErrDamaged) {
				t.Errorf("page %d of kind %d: %s: err = %v", id, kind, what, err)
			}
		}
		spoil("another number", func(b []byte) { n.PutUint64(b, id+1) })
		spoil("no kind", func(b []byte) { n.PutUint16(b[8:], 0) })
		spoil("two kinds", func(b []byte) { n.PutUint16(b[8:], 3) })
		spoil("reaches outside", func(b []byte) { n.PutUint32(b[12:], 1<<31) })
		spoil("reaches into the next", func(b []byte) { n.PutUint32(b[12:], uint32(m.high-id)) })
		spoil("too many elements", func(b []byte) { n.PutUint16(b[10:], 0xfffe) })
		switch kind {
		case branchPage:
			spoil("no elements", func(b []byte) { n.PutUint16(b[10:], 0) })
			for name, to := range map[string]uint64{"itself": id, "the root": m.root, "the free list": m.freelist, "a header": 0, "outside": m.high, "far outside": 1 << 60} {
				spoil("points to "+name, func(b []byte) { n.PutUint64(b[pageHeader+8:], to) })
			}
			spoil("two to one", func(b []byte) { copy(b[pageHeader+8:pageHeader+16], b[pageHeader+element+8:]) })
			spoil("a key outside", func(b []byte) { n.PutUint32(b[pageHeader+4:], 1<<31) })
		case leafPage:
			spoil("a value outside", func(b []byte) { n.PutUint32(b[pageHeader+12:], 1<<31) })
			spoil("a position outside", func(b []byte) { n.PutUint32(b[pageHeader+4:], 0xffffffff) })
			spoil("another flag", func(b []byte) { b[pageHeader] ^= bucketFlag })
		case freelistPage:
			spoil("frees a header", func(b []byte) { n.PutUint64(b[pageHeader:], 1) })
			spoil("frees a page in use", func(b []byte) { n.PutUint64(b[pageHeader:], m.root) })
			spoil("frees one twice", func(b []byte) { copy(b[pageHeader:pageHeader+8], b[pageHeader+8:]) })
			spoil("a huge count", func(b []byte) {
				n.PutUint16(b[10:], 0xffff)
				n.PutUint64(b[pageHeader:], 1<<62)
			})
		}
	}
	if kinds[branchPage] == 0 || kinds[leafPage] < 3 || kinds[freelistPage] != 1 {
		t.Errorf("the database holds pages of kinds %v", kinds)
	}
}

// FuzzLook gives look any file.
func FuzzLook(f *testing.F) {
	b := sound(f)
	page := os.Getpagesize()
	f.Add(b[:4*page])
	f.Add(b[:2*page])
	f.Add(edit(b, 0, 40, 3, 8)[:4*page])
	f.Add(edit(b, page, 48, 9, 8)[:4*page])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if err := lookBytes(b); err != nil && !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrFormat) {
			t.Fatalf("err = %v", err)
		}
	})
}

// Whatever look accepts can be opened, read, written and closed without a
// fault that kills. The input is a list of edits, 8 bytes each: where to (3 bytes), how many
// bytes (1), and the bytes.
func FuzzPages(f *testing.F) {
	template := branched(f)
	used := len(template)
	page := os.Getpagesize()
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0})
	for id := 2; id < used/page; id++ {
		at := id*page + pageHeader
		f.Add([]byte{byte(at >> 16), byte(at >> 8), byte(at + 8), 1, byte(id), 0, 0, 0})      // a branch to itself
		f.Add([]byte{byte(at >> 16), byte((at - 8) >> 8), byte(at - 8), 4, 1, 0, 1, 0})       // another kind and count
		f.Add([]byte{byte(at >> 16), byte(at >> 8), byte(at + 4), 4, 0xff, 0xff, 0xff, 0x7f}) // a key outside
	}
	path := filepath.Join(f.TempDir(), "db")
	f.Fuzz(func(t *testing.T, edits []byte) {
		b := bytes.Clone(template)
		for ; len(edits) >= 8; edits = edits[8:] {
			at := int(edits[0])<<16 | int(edits[1])<<8 | int(edits[2])
			copy(b[at%used:], edits[4:4+edits[3]%5])
		}
		if lookBytes(b) != nil {
			return
		}
		if err := os.WriteFile(path, b, 0o600); err != nil {
			t.Fatal(err)
		}
		defer os.Remove(path)
		_ = guard(func() error {
			db, err := openDB(path, false)
			if err != nil {
				return err
			}
			db.NoSync = true
			return errors.Join(exercise(db), db.Close())
		})
	})
}

// exercise reads and writes all over a database of branched's.
func exercise(db *bbolt.DB) error {
	return errors.Join(db.View(checkFormat), db.Update(prove), db.Update(func(tx *bbolt.Tx) error {
		b := tx.Bucket([]byte("data/big"))
		if b == nil {
			return nil
		}
		var err error
		for i := range 20 {
			err = errors.Join(err, put(tx, "data/big", fmt.Sprintf("%0100d", i*53), []byte("new")), b.Delete(fmt.Appendf(nil, "%0100d", i*49)))
		}
		return err
	}), db.View(func(tx *bbolt.Tx) error {
		var from []byte
		for range 10 {
			records, more := readPage(tx, "data/big", from)
			if !more {
				break
			}
			from = append([]byte(records[len(records)-1].key), 0)
		}
		return nil
	}))
}

func FuzzUnseal(f *testing.F) {
	f.Add("b", "k", seal("b", "k", []byte("v")))
	f.Add("b", "k", []byte("short"))
	f.Fuzz(func(t *testing.T, bucket, key string, value []byte) {
		payload, ok := unseal(bucket, key, value)
		if ok && !bytes.Equal(seal(bucket, key, payload), value) {
			t.Fatal("taken, but would not be written")
		}
		if moved, ok := unseal(bucket+"x", key, seal(bucket, key, payload)); ok {
			t.Fatalf("%q was taken from another bucket", moved)
		}
		if moved, ok := unseal(bucket, key+"x", seal(bucket, key, payload)); ok {
			t.Fatalf("%q was taken from another key", moved)
		}
	})
}

// FuzzSlotKey holds that what is read as a slot is written as the same key.
func FuzzSlotKey(f *testing.F) {
	f.Add("workspace:home\x00llm.chat")
	f.Add("workspace:home\x00\x00")
	f.Fuzz(func(t *testing.T, key string) {
		slot, err := parseSlotKey(key)
		if err == nil && slotKey(slot) != key {
			t.Fatalf("%q became %q", key, slotKey(slot))
		}
	})
}

// A database of a newer format stops the start, and is not touched.
func TestANewerDatabaseIsLeftAlone(t *testing.T) {
	newer := map[string]func(t *testing.T, path string){
		"our format": func(t *testing.T, path string) {
			db, err := openDB(path, false)
			if err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(db.Update(func(tx *bbolt.Tx) error { return put(tx, metaBucket, formatKey, []byte("2")) }), db.Close()); err != nil {
				t.Fatal(err)
			}
		},
		"the library's": func(t *testing.T, path string) {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			page := os.Getpagesize()
			if err := os.WriteFile(path, edit(edit(b, 0, 4, 3, 4), page, 4, 3, 4), 0o600); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, change := range newer {
		for _, marker := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				dir, err := datadir.Open(filepath.Join(t.TempDir(), "data"))
				if err != nil {
					t.Fatal(err)
				}
				defer dir.Close()
				s, err := Open(dir, Options{})
				if err != nil {
					t.Fatal(err)
				}
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				path := dir.Path(datadir.DatabaseFile)
				change(t, path)
				if marker {
					if err := os.WriteFile(path+opened, nil, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				before, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				inChild := func(_ context.Context, path string) error {
					if code := CheckMain(path); code != exitFormat {
						t.Errorf("the child would exit with %d", code)
					}
					return ErrFormat
				}
				for _, o := range []Options{{}, {}, {Check: inChild}} {
					if _, err := Open(dir, o); !errors.Is(err, ErrFormat) {
						t.Errorf("err = %v", err)
					}
				}
				after, err := os.ReadFile(path)
				if err != nil || !bytes.Equal(before, after) {
					t.Errorf("the file was changed, %v", err)
				}
				if aside, _ := filepath.Glob(path + asideInfix + "*"); len(aside) > 0 {
					t.Errorf("set aside: %v", aside)
				}
			})
		}
	}
}

// A tool that has the file open is named as such after 2 s; nothing is set
// aside for it.
func TestADatabaseThatAnotherProgramHas(t *testing.T) {
	dir, err := datadir.Open(filepath.Join(t.TempDir(), "data"))
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	s, err := Open(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	path := dir.Path(datadir.DatabaseFile)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	tool, err := openDB(path, false)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir, Options{}); err == nil || !strings.Contains(err.Error(), "locked by another program") {
		t.Errorf("err = %v", err)
	}
	if err := tool.Close(); err != nil {
		t.Fatal(err)
	}
	if s, err = Open(dir, Options{}); err != nil || s.Status().Replaced != 0 {
		t.Fatalf("after it: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
