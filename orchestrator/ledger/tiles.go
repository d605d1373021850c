package ledger

import (
	"encoding/binary"
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/chordwheel/chordwheel/chain"
)

// tileHeight is what C2SP tlog-tiles fixes: 256 hashes a tile.
const tileHeight = 8

// Tile gives the bytes of a tile, and whether it is full and so will never change. The
// path is a stranger's. Errors wrap ErrNotFound.
func (l *Log) Tile(path string) (b []byte, full bool, err error) {
	t, err := parseTile(path)
	if err != nil {
		return nil, false, err
	}
	level := max(t.L, 0)
	// The hashes or lines that the tile has at the present size.
	have := l.size()>>(tileHeight*level) - t.N<<tileHeight
	if have < int64(t.W) || level*tileHeight >= 62 {
		return nil, false, fmt.Errorf("tile %s: %w", chain.Clip(path), ErrNotFound)
	}
	full = t.W == 1<<tileHeight
	if t.L >= 0 {
		b, err = tlog.ReadTileData(t, &l.hashes)
		return b, full, err
	}
	for i := range int64(t.W) {
		line, err := l.Line(t.N<<tileHeight + i)
		if err != nil {
			return nil, false, err
		}
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(line))), line...)
	}
	return b, full, nil
}

// parseTile reads a path like tile/0/x001/067 or tile/entries/000.p/17. It accepts
// only the one usual spelling.
func parseTile(path string) (tlog.Tile, error) {
	rest, ok := strings.CutPrefix(path, "tile/")
	if !ok || len(path) > 100 {
		return tlog.Tile{}, fmt.Errorf("tile %q: %w", chain.Clip(path), ErrNotFound)
	}
	if entries, ok := strings.CutPrefix(rest, "entries/"); ok {
		rest = "data/" + entries
	} else if strings.HasPrefix(rest, "data/") {
		return tlog.Tile{}, fmt.Errorf("tile %q: %w", chain.Clip(path), ErrNotFound)
	}
	// The library's paths have the height in front.
	t, err := tlog.ParseTilePath(fmt.Sprintf("tile/%d/%s", tileHeight, rest))
	if err != nil || t.N > maxSize {
		return tlog.Tile{}, fmt.Errorf("tile %q: %w", chain.Clip(path), ErrNotFound)
	}
	return t, nil
}
