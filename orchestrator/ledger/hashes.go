package ledger

import (
	"fmt"
	"sync"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/chordwheel/chordwheel/chain/merkle"
)

const (
	chunkHashes = 64
	// maxChunks bounds the cache: 256 KiB. The right edge of the tree is in it.
	maxChunks = 128
)

// hashStore reads the tree's hashes, in chunks.
type hashStore struct {
	storage Storage
	mu      sync.Mutex
	cache   map[int64][]byte
}

var _ tlog.HashReader = (*hashStore)(nil)

func chunkKey(n int64) string { return fmt.Sprintf("hash/%012x", n) }

// ReadHashes is for the tree's algorithms.
func (s *hashStore) ReadHashes(indexes []int64) ([]merkle.Hash, error) {
	out := make([]merkle.Hash, len(indexes))
	for i, index := range indexes {
		b, err := s.chunk(index / chunkHashes)
		if err != nil {
			return nil, err
		}
		at := index % chunkHashes * tlog.HashSize
		if at+tlog.HashSize > int64(len(b)) {
			// The cache may have an older edge than the tree that is asked about.
			s.drop(index / chunkHashes)
			if b, err = s.chunk(index / chunkHashes); err != nil {
				return nil, err
			}
			if at+tlog.HashSize > int64(len(b)) {
				return nil, fmt.Errorf("%w: hash %d is missing", ErrDamaged, index)
			}
		}
		copy(out[i][:], b[at:])
	}
	return out, nil
}

// chunk gives a chunk, which nobody changes.
func (s *hashStore) chunk(n int64) ([]byte, error) {
	s.mu.Lock()
	b, ok := s.cache[n]
	s.mu.Unlock()
	if ok {
		return b, nil
	}
	b, err := s.storage.Get(chunkKey(n))
	if err == nil && len(b)%tlog.HashSize != 0 {
		err = fmt.Errorf("%w: hashes of %d bytes", ErrDamaged, len(b))
	}
	if err != nil {
		return nil, err
	}
	s.keep(n, b)
	return b, nil
}

// keep caches a chunk. A shorter one never takes the place of a longer one.
func (s *hashStore) keep(n int64, b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cache == nil || len(s.cache) >= maxChunks {
		s.cache = make(map[int64][]byte)
	}
	if len(b) >= len(s.cache[n]) {
		s.cache[n] = b
	}
}

func (s *hashStore) drop(n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.cache, n)
}

func (s *hashStore) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cache = nil
}

// growing reads hashes that are stored, and those that are about to be.
type growing struct {
	stored *hashStore
	count  int64 // stored
	fresh  []merkle.Hash
}

// ReadHashes is for the tree's algorithms.
func (g *growing) ReadHashes(indexes []int64) ([]merkle.Hash, error) {
	out := make([]merkle.Hash, len(indexes))
	for i, index := range indexes {
		if index >= g.count {
			out[i] = g.fresh[index-g.count]
			continue
		}
		h, err := g.stored.ReadHashes([]int64{index})
		if err != nil {
			return nil, err
		}
		out[i] = h[0]
	}
	return out, nil
}

// add takes the leaf hash of the n-th line.
func (g *growing) add(n int64, leaf merkle.Hash) error {
	h, err := tlog.StoredHashesForRecordHash(n, leaf, g)
	if err != nil {
		return err
	}
	g.fresh = append(g.fresh, h...)
	return nil
}

// chunks gives the chunks that the fresh hashes are in, whole.
func (g *growing) chunks() (map[int64][]byte, error) {
	out := make(map[int64][]byte)
	for i, h := range g.fresh {
		n := (g.count + int64(i)) / chunkHashes
		if out[n] == nil {
			b := make([]byte, 0, chunkHashes*tlog.HashSize)
			if before := g.count - n*chunkHashes; before > 0 {
				stored, err := g.stored.chunk(n)
				if err != nil {
					return nil, err
				}
				if int64(len(stored)) < before*tlog.HashSize {
					return nil, fmt.Errorf("%w: hash %d is missing", ErrDamaged, g.count-1)
				}
				b = append(b, stored[:before*tlog.HashSize]...)
			}
			out[n] = b
		}
		out[n] = append(out[n], h[:]...)
	}
	return out, nil
}
