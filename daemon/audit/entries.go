package audit

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/merkle"
	"github.com/chordwheel/chordwheel/chain/receipt"
)

// tileHeight is that of C2SP's tlog-tiles: 256 lines in a tile.
const tileHeight = 8

const maxTile = (2 + receipt.MaxReceipt) << tileHeight

// Errors of reading a whole ledger.
var (
	ErrToken = errors.New("the ledger shows its receipts to auditors only: CHORDWHEEL_LEDGER_TOKEN is not the hub's")
	ErrOther = errors.New("the receipts of the ledger are not those that its checkpoint signs")
)

// Each calls f for every receipt of the ledger up to checkpoint c, which is verified, in
// their order. token is the hub's CHORDWHEEL_LEDGER_TOKEN. What f is given is the ledger's
// word until Each has returned nil: then it is all of what the checkpoint signs. Errors
// wrap [ErrToken], [ErrOther], [ErrNotFound], [ErrAnswer], are f's, or the network's.
func (c *Client) Each(ctx context.Context, checkpoint merkle.Checkpoint, token chain.Secret, f func(index int64, line []byte) error) error {
	var tree merkle.Tree
	for tile := range (checkpoint.Size + 1<<tileHeight - 1) >> tileHeight {
		lines, err := c.tile(ctx, checkpoint, tile, token)
		if err != nil {
			return err
		}
		for i, line := range lines {
			tree.Add(line)
			if err := f(tile<<tileHeight+int64(i), line); err != nil {
				return err
			}
		}
	}
	if tree.Root() != checkpoint.Root {
		return ErrOther
	}
	return nil
}

// Lines gives receipts of the ledger one by one, each of which is the ledger's word. It asks once
// for those that stand together, where they are wanted one after the other. Errors are like those
// of [Client.Each].
func (c *Client) Lines(ctx context.Context, checkpoint merkle.Checkpoint, token chain.Secret) func(index int64) ([]byte, error) {
	var lines [][]byte
	have := int64(-1) // the tile that lines are of
	return func(index int64) (_ []byte, err error) {
		if index < 0 || index >= checkpoint.Size {
			return nil, ErrNotFound
		}
		if tile := index >> tileHeight; tile != have {
			have = -1
			if lines, err = c.tile(ctx, checkpoint, tile, token); err != nil {
				return nil, err
			}
			have = tile
		}
		return lines[index-have<<tileHeight], nil
	}
}

// tile gives the lines of a tile that the checkpoint has.
func (c *Client) tile(ctx context.Context, checkpoint merkle.Checkpoint, n int64, token chain.Secret) ([][]byte, error) {
	width := int(min(1<<tileHeight, checkpoint.Size-n<<tileHeight))
	name := strings.TrimPrefix(tlog.Tile{H: tileHeight, L: -1, N: n, W: width}.Path(), fmt.Sprintf("tile/%d/data/", tileHeight))
	b, err := c.fetch(ctx, "/audit/v1/tile/entries/"+name, http.Header{"Authorization": {"Bearer " + token.Reveal()}}, maxTile)
	if err != nil {
		return nil, err
	}
	lines := make([][]byte, 0, width)
	for len(b) >= 2 {
		size := int(binary.BigEndian.Uint16(b))
		if b = b[2:]; size > len(b) {
			break
		}
		lines, b = append(lines, b[:size]), b[size:]
	}
	if len(b) != 0 || len(lines) != width {
		return nil, fmt.Errorf("%w: a tile of another shape", ErrAnswer)
	}
	return lines, nil
}
