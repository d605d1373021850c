package merkle

import "golang.org/x/mod/sumdb/tlog"

// Tree computes the root of a ledger from its lines, for who has all of them. The zero
// Tree has none. It keeps a hash for each bit of its size.
type Tree struct {
	size  int64
	peaks []Hash // of the full subtrees, the largest first
}

// Add takes in the next line.
func (t *Tree) Add(line []byte) {
	t.peaks = append(t.peaks, tlog.RecordHash(line))
	t.size++
	for n := t.size; n&1 == 0; n >>= 1 {
		last := len(t.peaks) - 1
		t.peaks = append(t.peaks[:last-1], tlog.NodeHash(t.peaks[last-1], t.peaks[last]))
	}
}

// Root is the root over all of them.
func (t *Tree) Root() Hash {
	if t.size == 0 {
		return Empty()
	}
	root := t.peaks[len(t.peaks)-1]
	for i := len(t.peaks) - 2; i >= 0; i-- {
		root = tlog.NodeHash(t.peaks[i], root)
	}
	return root
}
