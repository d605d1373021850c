package wire

import (
	"bufio"
	"encoding/binary"
	"sync/atomic"
)

// Room is a budget of bytes that frames on their way may hold together. The zero
// value has none; NewRoom makes one.
type Room struct {
	used atomic.Int64
	most int64
}

// NewRoom makes a budget of most bytes.
func NewRoom(most int64) *Room { return &Room{most: most} }

// Take reserves n bytes, or reports that they are not to be had. What was taken
// is given back with Give.
func (r *Room) Take(n int64) bool {
	if r.used.Add(n) > r.most {
		r.used.Add(-n)
		return false
	}
	return true
}

// Give returns n bytes.
func (r *Room) Give(n int64) { r.used.Add(-n) }

// Used gives the bytes that are taken now.
func (r *Room) Used() int64 { return r.used.Load() }

// PeekLength waits for the length of the next frame and gives it without
// consuming anything. A length that is no length is left for [ReadFrame] to refuse.
func PeekLength(in *bufio.Reader) (int64, error) {
	for n := 1; n <= binary.MaxVarintLen32; n++ {
		head, err := in.Peek(n)
		if err != nil {
			return 0, err
		}
		if head[n-1] < 0x80 {
			size, _ := binary.Uvarint(head)
			return int64(size), nil
		}
	}
	return 0, nil
}
