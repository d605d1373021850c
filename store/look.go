package store

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"os"

	"github.com/chordwheel/chordwheel/store/datadir"
)

// Refusals. A damaged file is set aside; one of a newer format is left as it
// is, and the start is refused.
var (
	ErrDamaged = datadir.ErrDamaged
	ErrFormat  = datadir.ErrFormat
)

// The library's file header: two meta pages, the newer valid one counts. They
// are in the machine's byte order.
const (
	metaMagic   = 0xED0CDAED
	metaVersion = 2
	pageHeader  = 16
	metaBytes   = 64
)

// meta is what matters of a meta page.
type meta struct {
	version, pageSize    uint32
	root, freelist, high uint64 // page numbers
	txid                 uint64
}

// look examines the header and the pages of a database of the given size. The
// library trusts both so far that a file cut short, or a page that points to
// itself, kills the process. Errors wrap ErrDamaged, ErrFormat or one of the
// reader's, and hold nothing of the file but page numbers.
func look(r io.ReaderAt, size int64) error {
	if size == 0 {
		return fmt.Errorf("%w: it is empty", ErrDamaged)
	}
	var newest *meta
	newer := false
	consider := func(offset int64, want uint32) (uint32, error) {
		var b [pageHeader + metaBytes]byte
		if _, err := r.ReadAt(b[:], offset); err != nil {
			if errors.Is(err, io.EOF) {
				return 0, nil
			}
			return 0, err
		}
		m, ok := parseMeta(b[pageHeader:])
		switch {
		case !ok, want != 0 && m.pageSize != want:
			return 0, nil
		case m.version != metaVersion:
			newer = newer || m.version > metaVersion
			return m.pageSize, nil
		case newest == nil || m.txid > newest.txid:
			newest = &m
		}
		return m.pageSize, nil
	}
	first, err := consider(0, 0)
	if err != nil {
		return err
	}
	// Where the first page is bad, the second stands at one of the page sizes.
	for page := uint32(1 << 10); page <= 1<<16; page <<= 1 {
		if first != 0 && page != first {
			continue
		}
		if _, err := consider(int64(page), page); err != nil {
			return err
		}
	}
	switch {
	case newer:
		return fmt.Errorf("%w: its database version is not known", ErrFormat)
	case newest == nil:
		return fmt.Errorf("%w: it has no valid header", ErrDamaged)
	case newest.high > uint64(size)/uint64(newest.pageSize):
		return fmt.Errorf("%w: it is cut short", ErrDamaged)
	case newest.root >= newest.high, newest.freelist >= newest.high:
		// Also one without a free list, which we never write: the library
		// would look for free pages in a goroutine of its own.
		return fmt.Errorf("%w: its header points outside", ErrDamaged)
	}
	return lookTree(r, size, newest)
}

// parseMeta reads a meta page without its page header; ok says that its
// magic, checksum and page size are right.
func parseMeta(b []byte) (m meta, ok bool) {
	if len(b) < metaBytes {
		return m, false
	}
	n := binary.NativeEndian
	sum := fnv.New64a()
	sum.Write(b[:56])
	m = meta{version: n.Uint32(b[4:]), pageSize: n.Uint32(b[8:]), root: n.Uint64(b[16:]), freelist: n.Uint64(b[32:]), high: n.Uint64(b[40:]), txid: n.Uint64(b[48:])}
	power := m.pageSize >= 1<<10 && m.pageSize <= 1<<16 && m.pageSize&(m.pageSize-1) == 0
	return m, n.Uint32(b) == metaMagic && n.Uint64(b[56:]) == sum.Sum64() && power
}

// lookAt is look on the file at path, which must be a regular file.
func lookAt(path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%w: it is not a regular file", ErrDamaged)
	}
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return look(f, info.Size())
}
