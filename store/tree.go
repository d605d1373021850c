package store

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Pages of the library: a header {id u64, flags u16, count u16, overflow u32}, then
// count elements of 16 bytes. A branch element is {pos u32, ksize u32, page u64},
// a leaf element {flags u32, pos u32, ksize u32, vsize u32}; pos counts from
// the element. A leaf element with bucketFlag holds {root u64, sequence u64};
// with root 0 a leaf page follows inline. A free list is count page numbers; a
// count of 0xffff says that the first number is the count.
const (
	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10
	bucketFlag   = 0x01
	element      = 16
	maxDepth     = 32 // of pages; the largest database has 6
	// wholeBytes is the size of file up to which the elements of every leaf
	// are looked at. Beyond it a record's page may only be known to be one.
	wholeBytes = 64 << 20
)

// tree walks the pages that a header speaks of. A page that points to itself,
// or to one above it, has the library recurse until the stack is full, and no
// guard ends that; one that stands in two places has it write over itself.
type tree struct {
	r     io.ReaderAt
	page  int64
	high  uint64
	whole bool
	seen  []uint64 // a bit a page
}

func lookTree(r io.ReaderAt, size int64, m *meta) error {
	t := &tree{r: r, page: int64(m.pageSize), high: m.high, whole: size <= wholeBytes, seen: make([]uint64, m.high/64+1)}
	t.take(0, 2) // the headers
	if err := t.walk(m.root, 0, true); err != nil {
		return err
	}
	return t.free(m.freelist)
}

// take marks n pages from id on as used; false if one is already, or outside.
func (t *tree) take(id, n uint64) bool {
	if n > t.high || id > t.high-n {
		return false
	}
	for ; n > 0; id, n = id+1, n-1 {
		if t.seen[id/64]&(1<<(id%64)) != 0 {
			return false
		}
		t.seen[id/64] |= 1 << (id % 64)
	}
	return true
}

func damage(what string, id uint64) error {
	return fmt.Errorf("%w: page %d %s", ErrDamaged, id, what)
}

// head is a page's header, checked and taken.
type head struct {
	flags, count uint16
	bytes        int64
}

func (t *tree) head(id uint64) (h head, err error) {
	var b [pageHeader]byte
	if id >= t.high {
		return h, damage("is outside", id)
	}
	if _, err := t.r.ReadAt(b[:], int64(id)*t.page); err != nil {
		return h, err
	}
	n := binary.NativeEndian
	h = head{flags: n.Uint16(b[8:]), count: n.Uint16(b[10:])}
	pages := uint64(n.Uint32(b[12:])) + 1
	if n.Uint64(b[:]) != id {
		return h, damage("is another page", id)
	}
	if !t.take(id, pages) {
		return h, damage("stands twice or reaches outside", id)
	}
	h.bytes = int64(pages) * t.page
	return h, nil
}

func (t *tree) read(id uint64, h head) ([]byte, error) {
	b := make([]byte, h.bytes)
	_, err := t.r.ReadAt(b, int64(id)*t.page)
	return b, err
}

// walk looks at the page and all below it. Top says that its leaves hold buckets.
func (t *tree) walk(id uint64, depth int, top bool) error {
	h, err := t.head(id)
	if err != nil {
		return err
	}
	switch {
	case depth > maxDepth:
		return damage("is too deep", id)
	case h.flags == leafPage && !top && !t.whole:
		return nil
	case h.flags != leafPage && h.flags != branchPage:
		return damage("is of the wrong kind", id)
	case h.flags == branchPage && h.count == 0:
		return damage("leads nowhere", id)
	}
	b, err := t.read(id, h)
	if err != nil {
		return err
	}
	if h.flags == leafPage {
		return t.leaf(id, b, depth, top)
	}
	for i := range int(h.count) {
		at := pageHeader + i*element
		if at+element > len(b) || !within(b, at, 0, 4) {
			return damage("has an element outside", id)
		}
		if err := t.walk(binary.NativeEndian.Uint64(b[at+8:]), depth+1, top); err != nil {
			return err
		}
	}
	return nil
}

// leaf looks at the elements of a leaf, which begins b.
func (t *tree) leaf(id uint64, b []byte, depth int, top bool) error {
	n := binary.NativeEndian
	for i := range int(n.Uint16(b[10:])) {
		at := pageHeader + i*element
		if at+element > len(b) || !within(b, at, 4, 8, 12) {
			return damage("has an element outside", id)
		}
		bucket := n.Uint32(b[at:])&bucketFlag != 0
		if bucket != top {
			return damage("has a bucket for a record, or a record for a bucket", id)
		}
		if !bucket {
			continue
		}
		from := at + int(n.Uint32(b[at+4:])) + int(n.Uint32(b[at+8:]))
		if err := t.bucket(id, b[from:from+int(n.Uint32(b[at+12:]))], depth); err != nil {
			return err
		}
	}
	return nil
}

// bucket looks at a bucket in the leaf called id.
func (t *tree) bucket(id uint64, value []byte, depth int) error {
	if len(value) < 16 {
		return damage("has a bucket cut short", id)
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return t.walk(root, depth+1, false)
	}
	inline := value[16:]
	if len(inline) < pageHeader || binary.NativeEndian.Uint16(inline[8:]) != leafPage {
		return damage("has a bucket cut short", id)
	}
	return t.leaf(id, inline, depth+1, false)
}

// within reports whether the element at b[at:] keeps inside b: its position
// and the sizes behind it, given by where they stand in the element.
func within(b []byte, at int, fields ...int) bool {
	end := uint64(at)
	for _, field := range fields {
		end += uint64(binary.NativeEndian.Uint32(b[at+field:]))
	}
	return end <= uint64(len(b))
}

// free looks at the free list: its pages are nobody's.
func (t *tree) free(id uint64) error {
	h, err := t.head(id)
	if err != nil {
		return err
	}
	if h.flags != freelistPage {
		return damage("is of the wrong kind", id)
	}
	b, err := t.read(id, h)
	if err != nil {
		return err
	}
	ids, count := b[pageHeader:], uint64(h.count)
	if count == 0xffff {
		count, ids = binary.NativeEndian.Uint64(ids), ids[8:]
	}
	if count > uint64(len(ids))/8 {
		return damage("has an element outside", id)
	}
	for i := range count {
		if free := binary.NativeEndian.Uint64(ids[i*8:]); !t.take(free, 1) {
			return damage("counts a page as free that is not", id)
		}
	}
	return nil
}
