package ledger

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/chordwheel/chordwheel/chain/merkle"
)

// MaxLine bounds a line: what the length in an entry tile can say.
const MaxLine = 1<<16 - 1

// Errors, for [errors.Is].
var (
	// ErrConflict: another line stands under that ID; the first one stays.
	ErrConflict = errors.New("the ledger has another line under this ID")
	// ErrLine: an empty line, or one over MaxLine, or an ID that is empty or holds a line feed.
	ErrLine = errors.New("not a line for the ledger")
	// ErrBusy: too many lines wait for the disk.
	ErrBusy = errors.New("the ledger has no room for more at once")
	// ErrNotFound: there is no such line, proof or tile.
	ErrNotFound = errors.New("not in the ledger")
	// ErrDamaged: what is stored is not what was.
	ErrDamaged = errors.New("the stored ledger is damaged")
)

// Storage is what the ledger needs of a database. Its methods may be called at
// once from several goroutines.
type Storage interface {
	// Get gives what is stored under key, or nil.
	Get(key string) ([]byte, error)
	// Put stores all of records or, after an error, none, and returns when they
	// are on disk.
	Put(records map[string][]byte) error
}

// ID names a line. Both parts come from the sender.
type ID struct {
	Transaction, Message string
}

func (id ID) key() string {
	sum := sha256.Sum256([]byte(id.Transaction + "\n" + id.Message))
	return "id/" + hex.EncodeToString(sum[:])
}

// Log is an open ledger. Its methods may be called at once from several
// goroutines.
type Log struct {
	origin  string
	storage Storage
	hashes  hashStore

	mu   sync.Mutex
	tree tlog.Tree
	next *batch // lines that nobody commits yet
	last *batch // the newest one

	doubt bool // the last commit failed: what is stored has to be read again. The committer's own
}

// Open opens the ledger in a storage, or begins one there. Least is the newest checkpoint that the
// hub has signed, from a place of its own; the zero value: none is known. A storage
// that is behind it, was restored from a copy or was begun anew, is refused with [merkle.ErrShortened]
// or [merkle.ErrForked]: going on would show everybody another past. Errors about
// what is stored wrap ErrDamaged.
func Open(storage Storage, origin string, least merkle.Checkpoint) (*Log, error) {
	l := &Log{origin: origin, storage: storage}
	l.hashes.storage = storage
	var err error
	if l.tree, err = l.load(); err != nil {
		return nil, fmt.Errorf("open the ledger: %w", err)
	}
	if least.Size == 0 {
		return l, nil
	}
	var proof merkle.Consistency
	if least.Size < l.tree.N {
		if proof, err = l.Consistency(least.Size, l.tree.N); err != nil {
			return nil, fmt.Errorf("open the ledger: %w", err)
		}
	}
	if err := merkle.VerifyConsistency(least, l.Checkpoint(), proof); err != nil {
		return nil, fmt.Errorf("open the ledger: %w: restore its newest copy", err)
	}
	return l, nil
}

// load gives the tree that is stored.
func (l *Log) load() (tlog.Tree, error) {
	state, err := l.storage.Get("tree")
	if err != nil || state == nil {
		return tlog.Tree{Hash: merkle.Empty()}, err
	}
	if len(state) != 8+tlog.HashSize {
		return tlog.Tree{}, fmt.Errorf("%w: its tree has %d bytes", ErrDamaged, len(state))
	}
	tree := tlog.Tree{N: int64(binary.BigEndian.Uint64(state)), Hash: merkle.Hash(state[8:])}
	if tree.N <= 0 || tree.N > maxSize {
		return tree, fmt.Errorf("%w: %d lines", ErrDamaged, tree.N)
	}
	root, err := tlog.TreeHash(tree.N, &l.hashes)
	if err == nil && root != tree.Hash {
		err = fmt.Errorf("%w: its hashes do not give its root", ErrDamaged)
	}
	return tree, err
}

// maxSize bounds what is computed with; no disk holds as much.
const maxSize = 1 << 40

// Checkpoint gives how long the ledger is and what is in it, for the hub to sign.
func (l *Log) Checkpoint() merkle.Checkpoint {
	l.mu.Lock()
	defer l.mu.Unlock()
	return merkle.Checkpoint{Origin: l.origin, Size: l.tree.N, Root: l.tree.Hash}
}

func (l *Log) size() int64 { return l.Checkpoint().Size }

// Find gives the index of the line under an ID. Errors wrap ErrNotFound, or are the
// storage's.
func (l *Log) Find(id ID) (int64, error) {
	p, ok, err := l.known(id.key())
	if err == nil && !ok {
		err = fmt.Errorf("find a line: %w", ErrNotFound)
	}
	return p.index, err
}

// entry is what an ID stands for.
type entry struct {
	index int64
	hash  merkle.Hash
}

func (l *Log) known(key string) (entry, bool, error) {
	b, err := l.storage.Get(key)
	if b == nil || err != nil {
		return entry{}, false, err
	}
	if len(b) != 8+tlog.HashSize {
		return entry{}, false, fmt.Errorf("%w: an ID of %d bytes", ErrDamaged, len(b))
	}
	return entry{int64(binary.BigEndian.Uint64(b)), merkle.Hash(b[8:])}, true, nil
}

func (e entry) bytes() []byte {
	return append(binary.BigEndian.AppendUint64(nil, uint64(e.index)), e.hash[:]...)
}

// Line gives the line at an index, from 0. Errors wrap ErrNotFound or ErrDamaged.
func (l *Log) Line(index int64) ([]byte, error) {
	if index < 0 || index >= l.size() {
		return nil, fmt.Errorf("line %d: %w", index, ErrNotFound)
	}
	b, err := l.storage.Get(lineKey(index))
	if err == nil && b == nil {
		err = fmt.Errorf("line %d: %w: it is missing", index, ErrDamaged)
	}
	return b, err
}

func lineKey(index int64) string { return fmt.Sprintf("line/%012x", index) }

// Inclusion proves that the line at index is in the ledger of size lines, which
// is the present one or a former one. Errors wrap ErrNotFound.
func (l *Log) Inclusion(index, size int64) (merkle.Inclusion, error) {
	if index < 0 || index >= size || size > l.size() {
		return merkle.Inclusion{}, fmt.Errorf("prove line %d of %d: %w", index, size, ErrNotFound)
	}
	p, err := tlog.ProveRecord(size, index, &l.hashes)
	if err != nil {
		return merkle.Inclusion{}, fmt.Errorf("prove line %d of %d: %w", index, size, err)
	}
	return merkle.Inclusion{Index: index, Size: size, Hashes: p}, nil
}

// Consistency proves that the ledger of from lines is the beginning of that of to
// lines. Errors wrap ErrNotFound.
func (l *Log) Consistency(from, to int64) (merkle.Consistency, error) {
	if from < 0 || from > to || to > l.size() {
		return merkle.Consistency{}, fmt.Errorf("prove %d lines to begin %d: %w", from, to, ErrNotFound)
	}
	c := merkle.Consistency{From: from, To: to}
	if from == 0 || from == to {
		return c, nil
	}
	p, err := tlog.ProveTree(to, from, &l.hashes)
	if err != nil {
		return merkle.Consistency{}, fmt.Errorf("prove %d lines to begin %d: %w", from, to, err)
	}
	c.Hashes = p
	return c, nil
}

// Check reads every line and compares it with the tree. Errors wrap ErrDamaged
// and name the first line that is not what was taken.
func (l *Log) Check() error {
	c := l.Checkpoint()
	for i := range c.Size {
		line, err := l.Line(i)
		if err != nil {
			return err
		}
		h, err := l.hashes.ReadHashes([]int64{tlog.StoredHashIndex(0, i)})
		if err != nil {
			return err
		}
		if tlog.RecordHash(line) != h[0] {
			return fmt.Errorf("line %d: %w: it is another one", i, ErrDamaged)
		}
		p, err := l.Inclusion(i, c.Size)
		if err != nil {
			return err
		}
		if err := merkle.VerifyInclusion(c, line, p); err != nil {
			return fmt.Errorf("line %d: %w: %w", i, ErrDamaged, err)
		}
	}
	return nil
}
