package store_test

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/store"
	"github.com/chordwheel/chordwheel/store/storetest"
)

type note struct {
	Text  string `cbor:"text"`
	Count int    `cbor:"count"`
}

func TestRecordsSurviveARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	dir, s := storetest.Open(t, path, store.Options{})
	must(t, s.Bucket("notes").Put("a", note{"x", 3}))
	must(t, s.Bucket("other").Put("a", note{"y", 4}))
	storetest.Close(t, dir, s)
	_, s = storetest.Open(t, path, store.Options{})
	var got note
	if ok, err := s.Bucket("notes").Get("a", &got); !ok || err != nil || got != (note{"x", 3}) {
		t.Errorf("%v %v %v", got, ok, err)
	}
	if ok, err := s.Bucket("notes").Get("b", &got); ok || err != nil {
		t.Errorf("an absent record: %v %v", ok, err)
	}
	if ok, err := s.Bucket("absent").Get("a", &got); ok || err != nil {
		t.Errorf("an absent bucket: %v %v", ok, err)
	}
	must(t, s.Bucket("absent").Delete("a"))
	must(t, s.Bucket("absent").Each(func(string, func(any) error) error { return errors.New("called") }))
}

// Strangers choose keys. None is special, none leaves its bucket.
func TestAnyTextIsAKey(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	dir, s := storetest.Open(t, path, store.Options{})
	keys := []string{"..", "../../etc/passwd", "/", `\`, "a\x00b", "\x00", "CON", "\xff\xfe", strings.Repeat("x", store.MaxKeyBytes)}
	before := storetest.Take(t, filepath.Dir(path))
	for i, key := range keys {
		must(t, s.Bucket("notes").Put(key, i))
	}
	for i, key := range keys {
		var got int
		if ok, err := s.Bucket("notes").Get(key, &got); !ok || err != nil || got != i {
			t.Errorf("%.20q: %d %v %v", key, got, ok, err)
		}
	}
	after := storetest.Take(t, filepath.Dir(path))
	if len(after) != len(before) {
		t.Errorf("files appeared: %v", after)
	}
	for _, key := range []string{"", strings.Repeat("x", store.MaxKeyBytes+1)} {
		if err := s.Bucket("notes").Put(key, 1); err == nil {
			t.Errorf("a key of %d bytes was taken", len(key))
		}
	}
	if err := s.Bucket("notes").Put("big", make([]byte, store.MaxValueBytes)); err == nil {
		t.Error("a value over the limit was taken")
	}
	storetest.Close(t, dir, s)
}

func TestPutAllIsAllOrNothing(t *testing.T) {
	_, s := storetest.Open(t, filepath.Join(t.TempDir(), "data"), store.Options{})
	b := s.Bucket("notes")
	if err := b.PutAll(map[string]any{"a": 1, "": 2}); err == nil {
		t.Error("an empty key was taken")
	}
	var got int
	if ok, _ := b.Get("a", &got); ok {
		t.Error("half of it was stored")
	}
}

func TestEachMayWriteAndStop(t *testing.T) {
	_, s := storetest.Open(t, filepath.Join(t.TempDir(), "data"), store.Options{})
	b := s.Bucket("notes")
	records := make(map[string]any)
	for i := range 1000 { // several pages of Each
		records[fmt.Sprintf("%04d", i)] = i
	}
	must(t, b.PutAll(records))
	met := 0
	must(t, b.Each(func(key string, decode func(any) error) error {
		var n int
		if err := decode(&n); err != nil || key != fmt.Sprintf("%04d", n) || n != met {
			return fmt.Errorf("%s holds %d, %v", key, n, err)
		}
		met++
		if n%100 == 0 {
			return b.Delete(key)
		}
		return nil
	}))
	stop := errors.New("enough")
	if err := b.Each(func(string, func(any) error) error { return stop }); met != 1000 || err != stop {
		t.Errorf("met %d, then %v", met, err)
	}
	func() {
		defer func() {
			if recover() == nil {
				t.Error("the caller's own panic was swallowed")
			}
		}()
		_ = b.Each(func(string, func(any) error) error { panic("of the caller") })
	}()
	if s := s.Status(); !s.Available || s.Replaced != 0 {
		t.Errorf("the caller's own panic cost the database: %+v", s)
	}
}

func TestAClosedStoreSaysSo(t *testing.T) {
	dir, s := storetest.Open(t, filepath.Join(t.TempDir(), "data"), store.Options{})
	storetest.Close(t, dir, s)
	if err := s.Bucket("notes").Put("a", 1); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("put: %v", err)
	}
	var got int
	if _, err := s.Bucket("notes").Get("a", &got); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("get: %v", err)
	}
	must(t, s.Close())
}

// Against a map: puts, deletes and restarts in any order.
func TestABucketIsAMap(t *testing.T) {
	root, runs := t.TempDir(), 0
	rapid.Check(t, func(r *rapid.T) {
		runs++
		path := filepath.Join(root, fmt.Sprint(runs))
		d, err := openDevice(path, store.Options{}, now)
		if err != nil {
			r.Fatal(err)
		}
		defer func() { _ = d.close() }()
		model := make(map[string]int)
		for range rapid.IntRange(1, 8).Draw(r, "steps") {
			key := rapid.SampledFrom([]string{"a", "b", "c", "\x00", "aa"}).Draw(r, "key")
			switch rapid.IntRange(0, 4).Draw(r, "what") {
			case 0:
				if err := d.store.Bucket("b").Delete(key); err != nil {
					r.Fatal(err)
				}
				delete(model, key)
			case 1:
				if err := d.close(); err != nil {
					r.Fatal(err)
				}
				if d, err = openDevice(path, store.Options{}, now); err != nil {
					r.Fatal(err)
				}
			default:
				n := rapid.Int().Draw(r, "value")
				if err := d.store.Bucket("b").Put(key, n); err != nil {
					r.Fatal(err)
				}
				model[key] = n
			}
			got := make(map[string]int)
			var order []string
			if err := d.store.Bucket("b").Each(func(key string, decode func(any) error) error {
				var n int
				order = append(order, key)
				err := decode(&n)
				got[key] = n
				return err
			}); err != nil || !maps.Equal(got, model) || !slices.IsSorted(order) {
				r.Fatalf("%v in order %q, %v, want %v", got, order, err, model)
			}
		}
	})
}
