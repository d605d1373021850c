package store

import (
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/chordwheel/chordwheel/chain"
)

// Limits on records.
const (
	MaxKeyBytes   = 1 << 10
	MaxValueBytes = 4 << 20
)

// Bucket is a named set of records. A key may be a stranger's text: it is
// never a file name. Values are encoded as deterministic CBOR.
type Bucket struct {
	s    *Store
	name string
}

// Bucket gives the bucket called name. It exists from its first Put on.
func (s *Store) Bucket(name string) *Bucket { return &Bucket{s, dataPrefix + name} }

// Put stores v under key and returns when it is on disk.
func (b *Bucket) Put(key string, v any) error { return b.PutAll(map[string]any{key: v}) }

// PutAll stores all of records or, after an error, none of them. It costs one
// sync however many there are.
func (b *Bucket) PutAll(records map[string]any) error {
	encoded := make(map[string][]byte, len(records))
	for key, v := range records {
		if key == "" || len(key) > MaxKeyBytes {
			return fmt.Errorf("store %s: a key of %d bytes: want 1 to %d", b.name, len(key), MaxKeyBytes)
		}
		payload, err := chain.Marshal(v)
		if err != nil {
			return fmt.Errorf("store %s: %w", b.name, err)
		}
		if len(payload) > MaxValueBytes {
			return fmt.Errorf("store %s: a value of %d bytes, at most %d", b.name, len(payload), MaxValueBytes)
		}
		encoded[key] = payload
	}
	err := b.s.update(func(tx *bbolt.Tx) error {
		for key, payload := range encoded {
			if err := put(tx, b.name, key, payload); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("store %s: %w", b.name, err)
	}
	return nil
}

// Get decodes what is stored under key into v and reports whether there was
// something. A damaged record is nothing: it is counted and logged once met.
func (b *Bucket) Get(key string, v any) (bool, error) {
	var payload []byte
	var found, whole bool
	err := b.s.view(func(tx *bbolt.Tx) error {
		payload, found, whole = get(tx, b.name, key)
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("read %s: %w", b.name, err)
	}
	if !found {
		return false, nil
	}
	if !whole {
		b.s.skip(b.name)
		return false, nil
	}
	if err := chain.Unmarshal(payload, v); err != nil {
		return false, fmt.Errorf("read %s: %w", b.name, err)
	}
	return true, nil
}

// Delete removes what is stored under keys, if anything: all of it or, after an
// error, nothing. It costs one sync however many there are.
func (b *Bucket) Delete(keys ...string) error {
	err := b.s.update(func(tx *bbolt.Tx) error {
		bucket := tx.Bucket([]byte(b.name))
		if bucket == nil {
			return nil
		}
		for _, key := range keys {
			if err := bucket.Delete([]byte(key)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("delete from %s: %w", b.name, err)
	}
	return nil
}

// Each calls f for every record in the order of keys until f returns an error,
// which Each returns. Damaged records are passed over, counted and logged. F
// may use the bucket; whether it meets what is written meanwhile is open.
func (b *Bucket) Each(f func(key string, decode func(v any) error) error) error {
	return b.s.each(b.name, func(key string, payload []byte) error {
		return f(key, func(v any) error { return chain.Unmarshal(payload, v) })
	})
}

// page bounds how much each holds in memory at once.
const (
	pageRecords = 256
	pageBytes   = 1 << 20
)

type record struct {
	key     string
	payload []byte
	whole   bool
}

// each reads a page of records a transaction and calls f outside of it, so
// that a panic in f is f's, and f may write.
func (s *Store) each(bucket string, f func(key string, payload []byte) error) error {
	from, more := []byte(nil), true
	for more {
		var records []record
		err := s.view(func(tx *bbolt.Tx) error {
			records, more = readPage(tx, bucket, from)
			return nil
		})
		if err != nil {
			return fmt.Errorf("read %s: %w", bucket, err)
		}
		for _, r := range records {
			if !r.whole {
				s.skip(bucket)
				continue
			}
			if err := f(r.key, r.payload); err != nil {
				return err
			}
		}
		if n := len(records); n > 0 {
			from = append([]byte(records[n-1].key), 0) // the next key there can be
		}
	}
	return nil
}

func readPage(tx *bbolt.Tx, bucket string, from []byte) (records []record, more bool) {
	b := tx.Bucket([]byte(bucket))
	if b == nil {
		return nil, false
	}
	size := 0
	c := b.Cursor()
	for k, v := c.Seek(from); k != nil; k, v = c.Next() {
		if len(records) == pageRecords || size > pageBytes {
			return records, true
		}
		r := record{key: string(k)}
		r.payload, r.whole = unseal(bucket, r.key, v)
		records, size = append(records, r), size+len(v)
	}
	return records, false
}
