package catalog

import (
	"bufio"
	"fmt"
	"hash/maphash"
	"io"
	"math/bits"
	"strings"

	"github.com/chordwheel/chordwheel/chain"
)

// Caps on a list of workspaces.
const (
	MaxEnlisted    = 4_000_000
	maxRosterLine  = 1 << 10
	maxRosterFault = 20
)

// roster says for workspaces that are alike which entry of the catalogue they have
// their overrides from. It keeps a hash of each name, in a table without pointers: 16
// bytes a workspace.
type roster struct {
	seed   maphash.Seed
	hashes []uint64 // 0: free
	places []uint32
	count  int
}

// at gives the slot of a name: its own, or the free one that it belongs in.
func (r *roster) at(scope string) (slot int, hash uint64) {
	hash = max(maphash.String(r.seed, scope), 1)
	top, _ := bits.Mul64(hash, uint64(len(r.hashes)))
	for slot = int(top); r.hashes[slot] != 0 && r.hashes[slot] != hash; {
		if slot++; slot == len(r.hashes) {
			slot = 0
		}
	}
	return slot, hash
}

// place gives the entry that a scope has its overrides from, or -1.
func (r *roster) place(scope chain.ScopeID) int {
	if r == nil || len(r.hashes) == 0 {
		return -1
	}
	slot, hash := r.at(string(scope))
	if r.hashes[slot] != hash {
		return -1
	}
	return int(r.places[slot])
}

// Enlist gives a catalogue in which the workspaces of a list have the overrides of
// others. The list has one workspace a line, its id and the id of the workspace of
// the catalogue that it is like; lines that are empty or begin with "#" say nothing. It is read
// twice, and never held as a whole. Its faults are *Invalid.
func (c Catalog) Enlist(name string, list io.ReadSeeker) (Catalog, error) {
	lines, err := countLines(list)
	if err != nil {
		return Catalog{}, fmt.Errorf("read %s: %w", name, err)
	}
	if lines > MaxEnlisted {
		return Catalog{}, &Invalid{File: name, Problems: []Problem{{Line: MaxEnlisted + 1, Column: 1, Message: fmt.Sprintf("at most %d workspaces", MaxEnlisted)}}}
	}
	size := lines + lines/3 + 1
	r := &roster{seed: maphash.MakeSeed(), hashes: make([]uint64, size), places: make([]uint32, size)}
	invalid := &Invalid{File: name}
	err = eachLine(list, func(n int, line string) bool {
		if fault := r.add(&c, line); fault != "" {
			invalid.Problems = append(invalid.Problems, Problem{Line: n, Column: 1, Message: fault})
		}
		return len(invalid.Problems) < maxRosterFault
	})
	if err != nil {
		return Catalog{}, fmt.Errorf("read %s: %w", name, err)
	}
	if len(invalid.Problems) > 0 {
		return Catalog{}, invalid
	}
	c.roster = r
	return c, nil
}

// add takes a line in, or says what is wrong with it.
func (r *roster) add(c *Catalog, line string) (fault string) {
	id, like, ok := strings.Cut(strings.TrimSpace(line), " ")
	if !ok {
		id, like, ok = strings.Cut(id, "\t")
	}
	like = strings.TrimSpace(like)
	scope, err := chain.ParseScope("workspace:" + id)
	switch {
	case !ok || like == "":
		return fmt.Sprintf("%q: want the id of a workspace and of the one that it is like", clip(line))
	case err != nil:
		return err.Error()
	}
	at, known := c.workspaces[chain.ScopeID("workspace:"+like)]
	if !known {
		return fmt.Sprintf("workspace %q is not in the catalogue", clip(like))
	}
	if len(c.Workspaces[at].Ceilings) > 0 {
		return fmt.Sprintf("workspace %q has ceilings of its own, which others cannot have too", clip(like))
	}
	if _, listed := c.workspaces[scope]; listed {
		return fmt.Sprintf("workspace %q stands in the catalogue too", clip(id))
	}
	slot, hash := r.at(string(scope))
	if r.hashes[slot] == hash {
		return fmt.Sprintf("workspace %q stands twice", clip(id))
	}
	r.hashes[slot], r.places[slot] = hash, uint32(at)
	r.count++
	return ""
}

func countLines(list io.ReadSeeker) (n int, err error) {
	err = eachLine(list, func(int, string) bool { n++; return n <= MaxEnlisted })
	return n, err
}

// eachLine calls f with every line that says something, from the beginning.
func eachLine(list io.ReadSeeker, f func(n int, line string) bool) error {
	if _, err := list.Seek(0, io.SeekStart); err != nil {
		return err
	}
	s := bufio.NewScanner(list)
	s.Buffer(make([]byte, maxRosterLine), maxRosterLine)
	for n := 1; s.Scan(); n++ {
		if line := s.Text(); strings.TrimSpace(line) != "" && !strings.HasPrefix(line, "#") && !f(n, line) {
			return nil
		}
	}
	return s.Err()
}

// Enlisted gives the number of workspaces beside Workspaces that have overrides.
func (c *Catalog) Enlisted() int {
	if c.roster == nil {
		return 0
	}
	return c.roster.count
}
