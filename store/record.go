package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strconv"

	"go.etcd.io/bbolt"
)

const (
	metaBucket   = "meta"
	chainsBucket = "chains"
	bodiesBucket = "bodies"
	dataPrefix   = "data/"
	formatKey    = "format"
	sumBytes     = 16
)

// seal puts the sum before payload.
func seal(bucket, key string, payload []byte) []byte {
	out := make([]byte, 0, sumBytes+len(payload))
	return append(append(out, sum(bucket, key, payload)...), payload...)
}

// unseal gives a copy of the payload, or false if it is not what was written
// under this key. The copy outlives the transaction.
func unseal(bucket, key string, value []byte) ([]byte, bool) {
	if len(value) < sumBytes || !bytes.Equal(value[:sumBytes], sum(bucket, key, value[sumBytes:])) {
		return nil, false
	}
	return bytes.Clone(value[sumBytes:]), true
}

func sum(bucket, key string, payload []byte) []byte {
	h := sha256.New()
	for _, part := range []string{bucket, key} {
		var n [4]byte
		binary.BigEndian.PutUint32(n[:], uint32(len(part)))
		h.Write(n[:])
		h.Write([]byte(part))
	}
	h.Write(payload)
	return h.Sum(nil)[:sumBytes]
}

func put(tx *bbolt.Tx, bucket, key string, payload []byte) error {
	b, err := tx.CreateBucketIfNotExists([]byte(bucket))
	if err != nil {
		return err
	}
	return b.Put([]byte(key), seal(bucket, key, payload))
}

// get gives the payload under key. Found says that something stands there,
// whole that it is what was written.
func get(tx *bbolt.Tx, bucket, key string) (payload []byte, found, whole bool) {
	b := tx.Bucket([]byte(bucket))
	if b == nil {
		return nil, false, false
	}
	value := b.Get([]byte(key))
	if value == nil {
		return nil, false, false
	}
	payload, whole = unseal(bucket, key, value)
	return payload, true, whole
}

// checkFormat refuses a database of another format.
func checkFormat(tx *bbolt.Tx) error {
	payload, _, whole := get(tx, metaBucket, formatKey)
	n, err := strconv.Atoi(string(payload))
	switch {
	case !whole, err != nil, n < 1:
		return fmt.Errorf("%w: it does not say its format", ErrDamaged)
	case n > Format:
		return fmt.Errorf("database was %w (format %d, this one knows %d): use that version, or give another --dir", ErrFormat, n, Format)
	}
	return nil
}

// prove writes what is there already: the first write after opening is where
// bad free pages show.
func prove(tx *bbolt.Tx) error {
	return put(tx, metaBucket, formatKey, fmt.Appendf(nil, "%d", Format))
}
