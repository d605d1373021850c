package spool

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

const (
	checkpointFormat = 1
	maxCheckpoint    = 1 << 20 // room for the counts of 50,000 full segments
)

// position is how far the worker is: in the segment that has this number and
// first line, so many lines and bytes are done.
type position struct {
	segment int
	first   string // hash of the segment's first line; "" while that is empty
	lines   int64
	offset  int64
	last    string // hash of the last line that is done; "" if none is
}

// checkpoint is the file's first line.
type checkpoint struct {
	Format int              `json:"format"`
	Spool  string           `json:"spool"`
	Lines  int64            `json:"lines"`
	Offset int64            `json:"offset"`
	Last   string           `json:"last"`
	Closed map[string]int64 `json:"closed,omitempty"`
}

func hashOf(line []byte) string {
	sum := sha256.Sum256(line)
	return hex.EncodeToString(sum[:])
}

func segmentID(number int, first string) string { return fmt.Sprintf("%06d-%s", number, first) }

// encode gives the bytes of a checkpoint file.
func (p position) encode(closed map[int]int64) []byte {
	c := checkpoint{Format: checkpointFormat, Spool: segmentID(p.segment, p.first), Lines: p.lines, Offset: p.offset, Last: p.last}
	if len(closed) > 0 {
		c.Closed = make(map[string]int64, len(closed))
		for n, lines := range closed {
			c.Closed[strconv.Itoa(n)] = lines
		}
	}
	b, err := json.Marshal(c)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return fmt.Appendf(nil, "%s\n%s\n", b, hashOf(b))
}

// decodeCheckpoint is the reverse of encode. It accepts nothing that encode would write
// in another way.
func decodeCheckpoint(b []byte) (position, map[int]int64, error) {
	line, sum, ok := bytes.Cut(b, []byte{'\n'})
	if !ok || string(sum) != hashOf(line)+"\n" {
		return position{}, nil, errors.New("cut short or damaged")
	}
	var c checkpoint
	if err := json.Unmarshal(line, &c); err != nil {
		return position{}, nil, errors.New("no checkpoint")
	}
	if c.Format != checkpointFormat {
		return position{}, nil, fmt.Errorf("of format %d", c.Format)
	}
	number, first, _ := strings.Cut(c.Spool, "-")
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 {
		return position{}, nil, errors.New("without a segment")
	}
	closed := make(map[int]int64, len(c.Closed))
	for text, lines := range c.Closed {
		k, err := strconv.Atoi(text)
		if err != nil || lines < 0 {
			return position{}, nil, errors.New("with impossible counts")
		}
		closed[k] = lines
	}
	p := position{segment: n, first: first, lines: c.Lines, offset: c.Offset, last: c.Last}
	begun := p.lines > 0
	if p.lines < 0 || p.offset < 0 || begun != (p.offset > 0) || begun != (p.last != "") || begun && p.first == "" || !bytes.Equal(p.encode(closed), b) {
		return position{}, nil, errors.New("with an impossible position")
	}
	return p, closed, nil
}

// fits compares a position with the segment that it is about. It reads the
// first line and the last one that is done, never all.
func (p position) fits(seg segment, f file) error {
	if p.lines > seg.lines || p.offset > seg.size {
		return errors.New("it is ahead of the spool")
	}
	first, err := firstLine(f, seg.size)
	if err != nil {
		return err
	}
	if p.lines > 0 && p.first != first || p.lines == 0 && p.first != "" && p.first != first {
		return errors.New("it is of another spool")
	}
	if p.lines == 0 {
		return nil
	}
	start := max(0, p.offset-MaxLine-2)
	b := make([]byte, p.offset-start)
	if _, err := f.ReadAt(b, start); err != nil {
		return err
	}
	if b[len(b)-1] != '\n' {
		return errors.New("it ends inside a line")
	}
	b = b[:len(b)-1]
	b = b[bytes.LastIndexByte(b, '\n')+1:]
	if hashOf(b) != p.last {
		return errors.New("the last line that was sent is another one")
	}
	return nil
}
