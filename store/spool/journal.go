package spool

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"sync"
)

const slotSize = 2*sha256.Size + 1

var freeSlot = append(bytes.Repeat([]byte{' '}, slotSize-1), '\n')

// journal notes which requests are open, so that a start can tell how many
// had no receipt yet when the process died.
type journal struct {
	mu    sync.Mutex
	file  file
	image []byte         // what the file has, a slot after the other
	slots map[string]int // of open requests
	free  []int
}

// openJournal reads what the last process left, and begins anew. It gives the
// hashes of the requests that were open.
func openJournal(d disk) (*journal, []string, error) {
	b, err := readAll(d, openName, maxOpen*slotSize)
	if err != nil {
		b = nil // none, or nothing that this package wrote
	}
	var left []string
	for slot := range slices.Chunk(b, slotSize) {
		if slot = bytes.TrimSpace(slot); len(slot) > 0 {
			left = append(left, string(slot))
		}
	}
	f, err := d.open(openName, os.O_RDWR|os.O_CREATE|os.O_TRUNC)
	if err != nil {
		return nil, left, err
	}
	return &journal{file: f, slots: make(map[string]int)}, left, nil
}

func slotText(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:]) + "\n"
}

// keyOfSlot gives what the known IDs have for the request of a slot.
func keyOfSlot(text string) (key, bool) {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != sha256.Size {
		return key{}, false
	}
	return key(b[:16]), true
}

// Begin notes that the request called id is open. Its end is [Spool.End], once its
// receipt was appended or it turned out to need none. An error means that a
// crash would not count this request; it is no reason to refuse it.
func (s *Spool) Begin(id string) error {
	j := s.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	if _, ok := j.slots[id]; ok {
		return nil
	}
	if len(j.slots) >= maxOpen {
		return fmt.Errorf("note an open request: %w: %d are open", ErrBusy, maxOpen)
	}
	slot := len(j.image) / slotSize
	if n := len(j.free); n > 0 {
		slot = j.free[n-1]
	}
	text := slotText(id)
	if _, err := j.file.WriteAt([]byte(text), int64(slot)*slotSize); err != nil {
		return fmt.Errorf("note an open request: %w", err)
	}
	if n := len(j.free); n > 0 {
		j.free = j.free[:n-1]
		copy(j.image[slot*slotSize:], text)
	} else {
		j.image = append(j.image, text...)
	}
	j.slots[id] = slot
	return nil
}

// maxRange is how many slots are written at once at most to free some of them: a page.
const maxRange = 4096 / slotSize

// End notes that the requests called ids are not open any more.
func (s *Spool) End(ids ...string) {
	j := s.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	var freed []int
	for _, id := range ids {
		if slot, ok := j.slots[id]; ok {
			delete(j.slots, id)
			copy(j.image[slot*slotSize:], freeSlot)
			freed = append(freed, slot)
		}
	}
	// Requests that end together have slots close together: few writes free them all.
	slices.Sort(freed)
	for first := 0; first < len(freed); {
		next := first + 1
		for next < len(freed) && freed[next]-freed[first] < maxRange {
			next++
		}
		from, to := freed[first]*slotSize, (freed[next-1]+1)*slotSize
		// A slot that could not be freed counts one request too many, not one too few.
		_, _ = j.file.WriteAt(j.image[from:to], int64(from))
		first = next
	}
	slices.Reverse(freed) // the lowest is taken again first
	j.free = append(j.free, freed...)
}

func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.file.Close()
}
