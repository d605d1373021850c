package ledger

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/chordwheel/chordwheel/chain/merkle"
)

// maxBatch bounds the lines that wait for the disk: 4 MiB of receipts.
const maxBatch = 4096

// maxID bounds each part of an ID.
const maxID = 256

// Place is where a line is.
type Place struct {
	Index int64
	Known bool // it was there before this call
}

// batch is what one commit stores.
type batch struct {
	before *batch // the one that has to be stored first; nil once it is
	lines  []arrival
	done   chan struct{} // closed when the lines have their answers
}

// arrival is a line on its way.
type arrival struct {
	key   string
	line  []byte
	hash  merkle.Hash
	place Place
	err   error
}

// Add takes a line under an ID and returns when it is on disk. The same line under the same ID
// again gives the place that it has; other bytes are ErrConflict. Many callers at once share
// a commit. The bytes are copied. When ctx ends first, nobody knows, and the
// same call again is right.
func (l *Log) Add(ctx context.Context, id ID, line []byte) (Place, error) {
	for _, part := range []string{id.Transaction, id.Message} {
		if part == "" || len(part) > maxID || strings.Contains(part, "\n") {
			return Place{}, fmt.Errorf("add to the ledger: %w: an ID of %d bytes", ErrLine, len(part))
		}
	}
	if len(line) == 0 || len(line) > MaxLine {
		return Place{}, fmt.Errorf("add to the ledger: %w: %d bytes", ErrLine, len(line))
	}
	a := arrival{key: id.key(), line: bytes.Clone(line), hash: tlog.RecordHash(line)}
	b, n, first, err := l.join(a)
	if err != nil {
		return Place{}, err
	}
	if first {
		// Whoever opens a batch stores it, once the one before is stored. It does
		// not leave early: the others wait for it.
		if b.before != nil {
			<-b.before.done
			b.before = nil
		}
		l.commit(b)
	}
	select {
	case <-b.done:
		return b.lines[n].place, b.lines[n].err
	case <-ctx.Done():
		return Place{}, fmt.Errorf("add to the ledger: %w", ctx.Err())
	}
}

// join puts a line into the next batch, and says whether it is its first one.
func (l *Log) join(a arrival) (b *batch, n int, first bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.next == nil {
		l.next, first = &batch{before: l.last, done: make(chan struct{})}, true
		l.last = l.next
	}
	b = l.next
	if len(b.lines) >= maxBatch {
		return nil, 0, false, fmt.Errorf("add to the ledger: %w: %d lines wait", ErrBusy, maxBatch)
	}
	b.lines = append(b.lines, a)
	return b, len(b.lines) - 1, first, nil
}

// commit stores a batch. The tree in memory moves once the one on disk has.
func (l *Log) commit(b *batch) {
	l.mu.Lock()
	l.next = nil
	tree := l.tree
	l.mu.Unlock()
	defer close(b.done)

	next, chunks, err := tree, map[int64][]byte(nil), error(nil)
	if l.doubt {
		next, err = l.resume(tree)
	}
	if err == nil {
		next, chunks, err = l.store(next, b)
	}
	if err != nil {
		l.doubt = true
		for i := range b.lines {
			if a := &b.lines[i]; a.err == nil && !a.place.Known {
				a.err = fmt.Errorf("add to the ledger: %w", err)
			}
		}
		return
	}
	for n, chunk := range chunks {
		l.hashes.keep(n, chunk)
	}
	l.mu.Lock()
	l.tree = next
	l.mu.Unlock()
}

// resume reads what is stored after a commit that failed: it may have happened
// all the same.
func (l *Log) resume(tree tlog.Tree) (tlog.Tree, error) {
	l.hashes.forget()
	stored, err := l.load()
	if err == nil && stored.N < tree.N {
		err = fmt.Errorf("%w: it has %d lines, and had %d", ErrDamaged, stored.N, tree.N)
	}
	if err == nil {
		l.doubt = false
	}
	return stored, err
}

// store gives each new line of a batch its place, and makes all of it durable.
func (l *Log) store(tree tlog.Tree, b *batch) (tlog.Tree, map[int64][]byte, error) {
	records := make(map[string][]byte)
	fresh := make(map[string]entry)
	g := &growing{stored: &l.hashes, count: tlog.StoredHashCount(tree.N)}
	for i := range b.lines {
		a := &b.lines[i]
		e, known := fresh[a.key]
		if !known {
			var err error
			if e, known, err = l.known(a.key); err != nil {
				return tree, nil, err
			}
			a.place.Known = known
		}
		switch {
		case known && e.hash != a.hash:
			a.place, a.err = Place{}, fmt.Errorf("add to the ledger: %w", ErrConflict)
			continue
		case known:
			a.place.Index = e.index
			continue
		}
		e = entry{tree.N, a.hash}
		if err := g.add(tree.N, a.hash); err != nil {
			return tree, nil, err
		}
		fresh[a.key], records[a.key], records[lineKey(tree.N)] = e, e.bytes(), a.line
		a.place.Index = tree.N
		tree.N++
	}
	if len(fresh) == 0 {
		return tree, nil, nil
	}
	chunks, err := g.chunks()
	if err != nil {
		return tree, nil, err
	}
	for n, chunk := range chunks {
		records[chunkKey(n)] = chunk
	}
	if tree.Hash, err = tlog.TreeHash(tree.N, g); err != nil {
		return tree, nil, err
	}
	records["tree"] = append(binary.BigEndian.AppendUint64(nil, uint64(tree.N)), tree.Hash[:]...)
	return tree, chunks, l.storage.Put(records)
}
