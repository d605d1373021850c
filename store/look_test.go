package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"os"
	"path/filepath"
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
		"no freelist":        {both(32, noFreelist, 8), nil},
		"high water outside": {both(40, 1<<60, 8), ErrDamaged},
		"high water wraps":   {both(40, 1<<63+4, 8), ErrDamaged},
	}
	for name, c := range cases {
		if err := look(bytes.NewReader(c.b), int64(len(c.b))); !errors.Is(err, c.want) || (err == nil) != (c.want == nil) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

// Whatever look accepts can be opened and closed without a fault that kills.
func FuzzLook(f *testing.F) {
	b := sound(f)
	page := os.Getpagesize()
	f.Add(b)
	f.Add(b[:2*page])
	f.Add(edit(b, 0, 40, 9, 8))
	f.Add(edit(b, page, 48, 9, 8))
	f.Add([]byte{})
	path := filepath.Join(f.TempDir(), "db")
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<20 {
			return
		}
		err := look(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrFormat) {
				t.Fatalf("err = %v", err)
			}
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
			return errors.Join(db.View(checkFormat), db.Update(prove), db.Close())
		})
	})
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
