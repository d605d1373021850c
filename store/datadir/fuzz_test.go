package datadir

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"testing"

	"github.com/chordwheel/chordwheel/chain"
)

// What is taken for a checked file is, byte for byte, what would be written.
func FuzzChecked(f *testing.F) {
	for _, payload := range []string{"", "1\n", "a\nb"} {
		f.Add(encodeChecked("note", 3, []byte(payload)))
	}
	f.Add(bytes.Replace(encodeChecked("note", 3, nil), []byte(" 1 3"), []byte(" 2 3"), 1))
	for _, rest := range []string{"chordwheel note 1 3\nx", "chordwheel note 01 3\n", "chordwheel note 1 +3\n", "chordwheel note 1 3 4\n", "chordwheel note 7\n"} {
		f.Add([]byte(rest))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, _, err := decodeChecked("note", b); err != nil { // once more with a sum that fits, to come further
			sum := sha256.Sum256(b)
			b = append(append(hex.AppendEncode(nil, sum[:]), '\n'), b...)
		}
		payload, generation, err := decodeChecked("note", b)
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrFormat) {
				t.Fatalf("err = %v", err)
			}
			return
		}
		if again := encodeChecked("note", generation, payload); !bytes.Equal(again, b) {
			t.Fatalf("%q was taken, %q would be written", b, again)
		}
	})
}

func FuzzMarks(f *testing.F) {
	slot := chain.Slot{Scope: chain.DefaultScope, Primitive: chain.LLMChat}
	for _, all := range []map[chain.Slot]chain.Mark{nil, {slot: {Seq: 7, Body: chain.CIDOf(nil), Issued: 9}}} {
		b, err := encodeMarks(all)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := decodeMarks(b)
		if err != nil {
			if !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrFormat) {
				t.Fatalf("err = %v", err)
			}
			return
		}
		again, err := encodeMarks(all)
		if err != nil {
			t.Fatal(err)
		}
		if twice, err := decodeMarks(again); err != nil || len(twice) != len(all) {
			t.Fatalf("%d marks, then %d, %v", len(all), len(twice), err)
		}
	})
}

func FuzzDeviceID(f *testing.F) {
	f.Add([]byte("7f3cdd2a-5f0e-4c55-8b6c-0d2f3a4b5c6d\n"))
	f.Add([]byte("{7f3cdd2a-5f0e-4c55-8b6c-0d2f3a4b5c6d}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		id, err := parseDeviceID(b)
		if err != nil {
			return
		}
		if again, err := parseDeviceID([]byte(id)); err != nil || again != id || len(id) != 36 {
			t.Fatalf("%q gave %q, then %q, %v", b, id, again, err)
		}
	})
}
