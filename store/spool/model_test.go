package spool_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/store/spool"
)

// Whatever happens in whatever order, every acknowledged line is in the ledger
// exactly once in the end, in the order in which lines were acknowledged. A line that was
// refused may be there too if the process ended before the disk was sound again.
func TestWhateverHappens(t *testing.T) {
	parent := tempDir(t)
	rapid.Check(t, func(r *rapid.T) {
		dir, err := os.MkdirTemp(parent, "spool")
		must(t, err)
		defer os.RemoveAll(dir)
		disk, faulty := spool.Faulty(dir)
		start := func() *spool.Spool {
			s, err := spool.Open(config(dir, faulty, spool.SegmentsOf(300)))
			if err != nil {
				r.Fatal(err)
			}
			return s
		}
		s, l := start(), newLedger()
		defer func() { _ = s.Close() }()
		var acked []string
		var reached mark
		refused := make(map[string]bool)
		next := 0
		do := map[string]func(*rapid.T){
			"append": func(r *rapid.T) {
				for range rapid.IntRange(1, 4).Draw(r, "lines") {
					id := idOf(next)
					next++
					if err := s.Append(context.Background(), id, lineOf(id, "")); err != nil {
						r.Fatal(err)
					}
					acked = append(acked, id)
				}
			},
			"append on a bad disk": func(r *rapid.T) {
				op := rapid.SampledFrom([]string{"sync", "write", "rename", "dir-sync", "truncate", "open"}).Draw(r, "op")
				name := "spool.jsonl"
				if op == "dir-sync" {
					name = ""
				}
				disk.Before(failing(op, name, 1, rapid.IntRange(1, 3).Draw(r, "times"), syscall.EIO))
				id := idOf(next)
				next++
				err := s.Append(context.Background(), id, lineOf(id, ""))
				disk.Before(nil)
				if err == nil {
					acked = append(acked, id)
				} else if refused[id] = true; !errors.Is(err, spool.ErrNotStored) {
					r.Fatal(err)
				}
			},
			"send some": func(r *rapid.T) {
				if d := int(s.Status().Depth); d > 0 {
					n := rapid.IntRange(1, d).Draw(r, "n")
					ctx, cancel := context.WithCancel(context.Background())
					defer cancel()
					if err := s.Drain(ctx, until{l, func() bool { n--; return n == 0 }, cancel}); err != nil {
						r.Fatal(err)
					}
				}
			},
			"restart": func(r *rapid.T) {
				depth := s.Status().Depth
				must(t, s.Close())
				s = start()
				if got := s.Status(); got.Depth != depth && len(refused) == 0 || got.Again != "" {
					r.Fatalf("depth %d, then %+v", depth, got)
				}
			},
			"restart without a checkpoint": func(*rapid.T) {
				must(t, s.Close())
				_ = os.Remove(filepath.Join(dir, "spool.checkpoint"))
				s, reached = start(), mark{}
			},
			"": func(r *rapid.T) { // after each: the checkpoint never goes back by itself
				now := markOf(t, dir)
				if now.Spool < reached.Spool || now.Spool == reached.Spool && now.Lines < reached.Lines {
					r.Fatalf("the checkpoint went back from %+v to %+v", reached, now)
				}
				reached = now
			},
		}
		r.Repeat(do)
		if s.Status().Depth > 0 {
			drain(t, s, l)
		}
		if got := slices.DeleteFunc(l.ids(), func(id string) bool { return refused[id] }); !slices.Equal(got, acked) {
			r.Fatalf("acknowledged %v, the ledger has %v", acked, got)
		}
	})
}

// mark is how far a checkpoint is.
type mark struct {
	Spool string // a segment's number is in front
	Lines int64
}

func markOf(t *testing.T, dir string) (m mark) {
	line, _, _ := bytes.Cut(read(t, dir, "spool.checkpoint"), []byte{'\n'})
	must(t, json.Unmarshal(line, &m))
	m.Spool = m.Spool[:6]
	return m
}
