package audit

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/merkle"
)

// Every receipt of a ledger comes once and in order, to who has the token; and what the
// checkpoint does not sign is noticed, whatever was done to it.
func TestAWholeLedgerIsRead(t *testing.T) {
	const token = chain.Secret("read-all")
	var lines [][]byte
	var tree merkle.Tree
	for i := range 600 {
		lines = append(lines, fmt.Appendf(nil, "line %d", i))
		tree.Add(lines[i])
	}
	c := merkle.Checkpoint{Origin: origin, Size: int64(len(lines)), Root: tree.Root()}
	tiles := map[string][2]int{"000": {0, 256}, "001": {256, 512}, "002.p/88": {512, 600}}
	for name, d := range map[string]struct {
		spoil func(b []byte, of string) []byte
		shown chain.Secret
		size  int64
		want  error
	}{
		"as it is":              {nil, token, 600, nil},
		"an empty one":          {nil, token, 0, nil},
		"without the token":     {nil, "another", 600, ErrToken},
		"a line is altered":     {func(b []byte, of string) []byte { return bytes.Replace(b, []byte("line 300"), []byte("line 3oo"), 1) }, token, 600, ErrOther},
		"a line is left out":    {func(b []byte, of string) []byte { return b[2+len("line 0"):] }, token, 600, ErrAnswer},
		"a tile is cut":         {func(b []byte, of string) []byte { return b[:len(b)-1] }, token, 600, ErrAnswer},
		"a length is altered":   {func(b []byte, of string) []byte { return append([]byte{0xff}, b[1:]...) }, token, 600, ErrAnswer},
		"one byte too many":     {func(b []byte, of string) []byte { return append(b, 0) }, token, 600, ErrAnswer},
		"a tile that is larger": {func(b []byte, of string) []byte { return bytes.Repeat(b, 2500) }, token, 600, ErrAnswer},
		"another tile":          {func(b []byte, of string) []byte { return bytes.ReplaceAll(b, []byte("line 2"), []byte("line 9")) }, token, 600, ErrOther},
		"more than it has":      {nil, token, 601, ErrNotFound},
	} {
		var asked atomic.Int64
		client := ledgerThat(t, func(w http.ResponseWriter, r *http.Request) {
			asked.Add(1)
			of, _ := strings.CutPrefix(r.URL.Path, "/audit/v1/tile/entries/")
			span, ok := tiles[of]
			switch {
			case r.Header.Get("Authorization") != "Bearer "+token.Reveal():
				w.WriteHeader(http.StatusUnauthorized)
				return
			case !ok:
				w.WriteHeader(http.StatusNotFound)
				return
			}
			var b []byte
			for _, line := range lines[span[0]:span[1]] {
				b = append(binary.BigEndian.AppendUint16(b, uint16(len(line))), line...)
			}
			if d.spoil != nil {
				b = d.spoil(b, of)
			}
			w.Header().Set("Content-Length", strconv.Itoa(len(b)))
			_, _ = w.Write(b)
		})
		at := c
		if at.Size = d.size; d.size == 0 {
			at.Root = merkle.Empty()
		}
		var got [][]byte
		err := client.Each(t.Context(), at, d.shown, func(index int64, line []byte) error {
			if index != int64(len(got)) {
				t.Errorf("%s: line %d after %d", name, index, len(got))
			}
			got = append(got, bytes.Clone(line))
			return nil
		})
		if !errors.Is(err, d.want) || err == nil && !slices.EqualFunc(got, lines[:d.size], bytes.Equal) {
			t.Errorf("%s: %v, want %v; %d lines", name, err, d.want, len(got))
		}
		if d.want != nil || d.size == 0 {
			continue
		}
		line := client.Lines(t.Context(), at, token)
		before := asked.Load()
		for _, i := range []int64{0, 255, 256, 599} {
			if line, err := line(i); err != nil || !bytes.Equal(line, lines[i]) {
				t.Errorf("line %d: %q %v", i, line, err)
			}
		}
		if n := asked.Load() - before; n != 3 {
			t.Errorf("it asked %d times for three tiles", n)
		}
		for _, i := range []int64{-1, 600} {
			if _, err := line(i); !errors.Is(err, ErrNotFound) {
				t.Errorf("line %d: %v", i, err)
			}
		}
		stop := errors.New("enough")
		if err := client.Each(t.Context(), at, token, func(int64, []byte) error { return stop }); err != stop {
			t.Errorf("who has enough: %v", err)
		}
	}
}
