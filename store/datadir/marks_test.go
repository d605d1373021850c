package datadir_test

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/store/datadir"
)

func TestAMarkIsNeverLowered(t *testing.T) {
	d := open(t, filepath.Join(t.TempDir(), "data"))
	m := marks(t, d)
	base := chain.Mark{Seq: 5, Body: chain.CIDOf([]byte("a")), Issued: 50}
	must(t, m.Raise(slot, base))
	cases := []struct {
		name string
		mark chain.Mark
		ok   bool
	}{
		{"the same", base, true},
		{"lower sequence", chain.Mark{Seq: 4, Body: base.Body, Issued: 90}, false},
		{"another body", chain.Mark{Seq: 5, Body: chain.CIDOf([]byte("b")), Issued: 90}, false},
		{"issued earlier", chain.Mark{Seq: 5, Body: base.Body, Issued: 49}, false},
		{"zero", chain.Mark{}, false},
		{"no body", chain.Mark{Seq: 9}, false},
		{"renewal", chain.Mark{Seq: 5, Body: base.Body, Issued: 51}, true},
		{"higher", chain.Mark{Seq: 6, Body: chain.CIDOf([]byte("b")), Issued: 1}, true},
	}
	for _, c := range cases {
		before := m.Get(slot)
		err := m.Raise(slot, c.mark)
		if c.ok != (err == nil) || !c.ok && !errors.Is(err, datadir.ErrLower) {
			t.Errorf("%s: err = %v", c.name, err)
		}
		if want := map[bool]chain.Mark{true: c.mark, false: before}[c.ok]; m.Get(slot) != want {
			t.Errorf("%s: the mark is %v", c.name, m.Get(slot))
		}
	}
}

// Against a model: raises in any order with restarts between them.
func TestMarksSurviveRestarts(t *testing.T) {
	root := t.TempDir()
	runs := 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		dir := filepath.Join(root, fmt.Sprint(runs))
		model := make(map[chain.Slot]chain.Mark)
		d, err := datadir.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = d.Close() }()
		for range rapid.IntRange(1, 6).Draw(t, "steps") {
			s := chain.Slot{Scope: chain.DefaultScope, Primitive: rapid.SampledFrom([]chain.Primitive{"a", "b", "c"}).Draw(t, "slot")}
			mark := markOf(rapid.Uint64Range(1, 6).Draw(t, "seq"))
			m, err := d.Marks()
			if err != nil {
				t.Fatal(err)
			}
			err = m.Raise(s, mark)
			if higher := mark.Seq >= model[s].Seq; higher != (err == nil) {
				t.Fatalf("raise %v over %v: %v", mark, model[s], err)
			} else if higher {
				model[s] = mark
			}
			if rapid.Bool().Draw(t, "restart") {
				if err := d.Close(); err != nil {
					t.Fatal(err)
				}
				if d, err = datadir.Open(dir); err != nil {
					t.Fatal(err)
				}
			}
			if m, err = d.Marks(); err != nil || !maps.Equal(m.All(), model) {
				t.Fatalf("marks %v, %v, want %v", m.All(), err, model)
			}
		}
	})
}

func TestMarksAreBounded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	full := make(map[chain.Slot]chain.Mark)
	for i := range datadir.MaxMarks {
		full[chain.Slot{Scope: chain.ScopeID(fmt.Sprintf("session:%0120d", i)), Primitive: chain.LLMChat}] = markOf(1)
	}
	d := open(t, dir)
	b, err := datadir.EncodeMarks(full)
	must(t, err)
	must(t, d.WriteChecked(datadir.MarksFile, b))
	must(t, d.Close())
	m := marks(t, open(t, dir))
	if m.Room(slot) {
		t.Error("there is room in a full file")
	}
	if err := m.Raise(slot, markOf(1)); !errors.Is(err, datadir.ErrFull) {
		t.Errorf("err = %v", err)
	}
	for s := range full {
		must(t, m.Raise(s, markOf(2)))
		break
	}
}

// A disk that fails leaves the mark in force in memory, and the next write that
// succeeds brings it along.
func TestAMarkOnAFailingDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	d := open(t, dir)
	m := marks(t, d)
	must(t, m.Raise(slot, markOf(1)))
	moved := dir + "-away"
	must(t, os.Rename(dir, moved))
	if err := m.Raise(slot, markOf(2)); err == nil {
		t.Fatal("raised on a directory that is not there")
	}
	if m.Get(slot) != markOf(2) {
		t.Error("the mark went back")
	}
	must(t, os.Rename(moved, dir))
	must(t, m.Raise(slot, markOf(2)))
	must(t, d.Close())
	if got := marks(t, open(t, dir)).Get(slot); got != markOf(2) {
		t.Errorf("on disk: %v", got)
	}
}

func BenchmarkRaise(b *testing.B) {
	for _, slots := range []int{4, 400, 4000} {
		b.Run(fmt.Sprint(slots), func(b *testing.B) {
			d, err := datadir.Open(filepath.Join(b.TempDir(), "data"))
			if err != nil {
				b.Fatal(err)
			}
			defer d.Close()
			m, _ := d.Marks()
			all := make(map[chain.Slot]chain.Mark)
			for i := range slots {
				all[chain.Slot{Scope: chain.ScopeID(fmt.Sprintf("session:%d", i)), Primitive: chain.LLMChat}] = markOf(1)
			}
			datadir.Preset(m, all)
			seq := uint64(1)
			for b.Loop() {
				seq++
				if err := m.Raise(slot, markOf(seq)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
