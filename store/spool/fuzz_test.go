package spool_test

import (
	"bytes"
	"testing"

	"github.com/chordwheel/chordwheel/store/spool"
)

// What is accepted as a checkpoint is what would be written.
func FuzzCheckpoint(f *testing.F) {
	for _, text := range []string{
		`{"format":1,"spool":"000001-","lines":0,"offset":0,"last":""}`,
		`{"format":1,"spool":"000012-ab","lines":3,"offset":90,"last":"cd","closed":{"12":7}}`,
		`{"format":2}`,
	} {
		f.Add(spool.WithSum(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, b := range [][]byte{b, spool.WithSum(string(b))} {
			again, err := spool.DecodeCheckpoint(b)
			if err == nil && !bytes.Equal(again, b) {
				t.Errorf("%q is written as %q", b, again)
			}
		}
	})
}

// Whatever stands in a segment, reading it gives each of its lines once, in
// their order, with no byte left out.
func FuzzSegment(f *testing.F) {
	f.Add([]byte("{}\n\n{\"a\":1}\nrest"), uint16(3))
	f.Add(bytes.Repeat([]byte("x"), 500), uint16(1))
	f.Fuzz(func(t *testing.T, b []byte, times uint16) {
		// Long lines come from repeating, so that inputs stay small.
		b = bytes.Repeat(b, int(times)%2000+1)
		if len(b) > 4<<20 {
			return
		}
		want := bytes.SplitAfter(b, []byte{'\n'})
		if len(want[len(want)-1]) == 0 {
			want = want[:len(want)-1]
		}
		at := 0
		for n := 0; ; n++ {
			line, size, ok := spool.LineAt(b, int64(at), n)
			if !ok {
				if n != len(want) || at != len(b) {
					t.Fatalf("%d lines of %d, %d bytes of %d", n, len(want), at, len(b))
				}
				return
			}
			whole := bytes.TrimSuffix(want[n], []byte{'\n'})
			if size != int64(len(want[n])) || !bytes.Equal(line, whole[:min(len(whole), spool.MaxLine+1)]) {
				t.Fatalf("line %d: %d bytes of %d", n, size, len(want[n]))
			}
			at += int(size)
		}
	})
}
