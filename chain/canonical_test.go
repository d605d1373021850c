package chain_test

import (
	"bytes"
	"errors"
	"runtime"
	"testing"

	"github.com/fxamacker/cbor/v2"
	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
)

func TestCanonical(t *testing.T) {
	deep := func(n int) []byte { return append(bytes.Repeat([]byte{0x81}, n), 0) }
	for _, c := range []struct {
		name string
		in   []byte
		good bool
	}{
		{"zero", []byte{0}, true},
		{"23 in one byte", []byte{0x17}, true},
		{"24 in two", []byte{0x18, 24}, true},
		{"23 in two", []byte{0x18, 23}, false},
		{"255 in three", []byte{0x19, 0, 255}, false},
		{"65535 in five", []byte{0x1a, 0, 0, 255, 255}, false},
		{"2^32-1 in nine", long(0, 1<<32-1), false},
		{"2^64-1", long(0, 1<<64-1), true},
		{"-1", []byte{0x20}, true},
		{"-2^64", long(1, 1<<64-1), true},
		{"-24 in two bytes", []byte{0x38, 23}, false},
		{"false, true, null", []byte{0x83, 0xf4, 0xf5, 0xf6}, true},
		{"undefined", []byte{0xf7}, false},
		{"a simple value", []byte{0xe0}, false},
		{"true in two bytes", []byte{0xf8, 0x15}, false},
		{"half float", []byte{0xf9, 0, 0}, false},
		{"single float", []byte{0xfa, 0, 0, 0, 0}, false},
		{"double float", []byte{0xfb, 0, 0, 0, 0, 0, 0, 0, 0}, false},
		{"tag", []byte{0xc1, 0}, false},
		{"bignum", []byte{0xc2, 0x41, 1}, false},
		{"empty bytes, text, array, map", []byte{0x84, 0x40, 0x60, 0x80, 0xa0}, true},
		{"reserved lengths", []byte{0x1c}, false},
		{"break alone", []byte{0xff}, false},
		{"indefinite text", []byte{0x7f, 0x61, 'a', 0xff}, false},
		{"indefinite bytes", []byte{0x5f, 0xff}, false},
		{"indefinite array", []byte{0x9f, 0xff}, false},
		{"indefinite map", []byte{0xbf, 0xff}, false},
		{"text not UTF-8", []byte{0x61, 0x80}, false},
		{"bytes not UTF-8", []byte{0x41, 0x80}, true},
		{"shorter key first", pairs(entry("b", item(0, 1)), entry("aa", item(0, 1))), true},
		{"longer key first", pairs(entry("aa", item(0, 1)), entry("b", item(0, 1))), false},
		{"same key twice", pairs(entry("a", item(0, 1)), entry("a", item(0, 2))), false},
		{"bytes as a key", []byte{0xa1, 0x41, 'a', 0}, false},
		{"key in a long form", append([]byte{0xa1, 0x78, 1, 'a'}, 0), false},
		{"map cut after a key", []byte{0xa1, 0x61, 'a'}, false},
		{"map cut before a key", []byte{0xa2, 0x61, 'a', 0}, false},
		{"array cut", []byte{0x82, 0}, false},
		{"nothing", nil, false},
		{"two items", []byte{0, 0}, false},
		{"16 deep", deep(16), true},
		{"17 deep", deep(17), false},
		{"100,000 deep", deep(100_000), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := chain.Canonical(c.in)
			if (err == nil) != c.good || err != nil && !errors.Is(err, chain.ErrEncoding) {
				t.Errorf("%x: %v", c.in[:min(len(c.in), 20)], err)
			}
			if reference(c.in) != c.good {
				t.Errorf("%x: the second opinion differs", c.in[:min(len(c.in), 20)])
			}
		})
	}
}

var generic, deterministic = genericModes()

func genericModes() (cbor.DecMode, cbor.EncMode) {
	dec, err := cbor.DecOptions{DupMapKey: cbor.DupMapKeyEnforcedAPF, IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden,
		MaxNestedLevels: 16, MaxArrayElements: 1 << 20, MaxMapPairs: 1 << 20, DefaultByteStringType: nil}.DecMode()
	if err != nil {
		panic(err)
	}
	enc, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		panic(err)
	}
	return dec, enc
}

// reference is a second opinion on what is canonical: decode to a tree, look for
// what we do not use, encode the tree, compare. It is slow, and made of other code.
func reference(b []byte) bool {
	var tree any
	if err := generic.Unmarshal(b, &tree); err != nil || !plainTree(tree) {
		return false
	}
	again, err := deterministic.Marshal(tree)
	return err == nil && bytes.Equal(again, b)
}

func plainTree(v any) bool {
	switch v := v.(type) {
	case float32, float64, cbor.Tag, cbor.SimpleValue:
		return false
	case []any:
		for _, e := range v {
			if !plainTree(e) {
				return false
			}
		}
	case map[any]any:
		for k, e := range v {
			if _, ok := k.(string); !ok || !plainTree(e) {
				return false
			}
		}
	}
	return true
}

func FuzzCanonical(f *testing.F) {
	for _, r := range allRules() {
		v := r.vector(f)
		f.Add(v.bytes.Body)
		f.Add(chaintest.Encode(f, v.bytes))
	}
	f.Add([]byte{0x83, 0xf4, 0x20, 0xf6})
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, want := chain.Canonical(b) == nil, reference(b); got != want {
			t.Errorf("%x: canonical %v, second opinion %v", b, got, want)
		}
		// Unmarshal never panics, and accepts nothing that is not canonical.
		for _, into := range []any{new(any), new(chain.Body), new(chain.Head), new(chain.Extension), new(chain.Mark), new(parts)} {
			if err := chain.Unmarshal(b, into); err == nil && chain.Canonical(b) != nil {
				t.Errorf("%x: decoded into %T, though it is not canonical", b, into)
			} else if err != nil && !errors.Is(err, chain.ErrEncoding) {
				t.Errorf("%x: %T: %v", b, into, err)
			}
		}
	})
}

func TestRandomTreesAreCanonicalAndTheirChangesAreJudgedAlike(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, err := chain.Marshal(tree(4).Draw(t, "tree"))
		if err != nil {
			t.Fatal(err)
		}
		if err := chain.Canonical(b); err != nil || !reference(b) {
			t.Fatalf("%x: %v, second opinion %v", b, err, reference(b))
		}
		i := rapid.IntRange(0, len(b)-1).Draw(t, "at")
		b[i] = rapid.Byte().Draw(t, "byte")
		if got := chain.Canonical(b) == nil; got != reference(b) {
			t.Fatalf("%x: %v, second opinion %v", b, got, !got)
		}
	})
}

// tree draws what our objects are made of.
func tree(depth int) *rapid.Generator[any] {
	leaves := []*rapid.Generator[any]{
		rapid.Int64().AsAny(), rapid.Uint64().AsAny(), rapid.String().AsAny(), rapid.SliceOf(rapid.Byte()).AsAny(), rapid.Bool().AsAny(),
		rapid.Just[any](nil),
	}
	if depth > 0 {
		leaves = append(leaves, rapid.Custom(func(t *rapid.T) any { return rapid.SliceOfN(tree(depth-1), 0, 5).Draw(t, "array") }),
			rapid.Custom(func(t *rapid.T) any { return rapid.MapOfN(rapid.String(), tree(depth-1), 0, 5).Draw(t, "map") }))
	}
	return rapid.OneOf(leaves...)
}

// A few bytes that claim billions of elements must cost next to nothing.
func TestClaimsAllocateNothing(t *testing.T) {
	var claims [][]byte
	for _, major := range []byte{2, 3, 4, 5} {
		for _, n := range []uint64{1<<32 - 1, 1 << 32, 1<<63 - 1, 1<<64 - 1} {
			claim := make([]byte, 20)
			copy(claim, item(major, n))
			claims = append(claims, claim, pairs(entry("options", claim)), append([]byte{0x81}, claim...))
		}
	}
	claims = append(claims, []byte{0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f}) // an envelope field of 4 GiB
	device := chaintest.NewHub().Trust
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, b := range claims {
		for _, into := range []any{new(any), new(chain.Body), new(chain.Head), new(chain.Extension), new([]string), new(map[string]any)} {
			if err := chain.Unmarshal(b, into); !errors.Is(err, chain.ErrEncoding) {
				t.Errorf("%x into %T: %v", b, into, err)
			}
		}
		if _, err := chain.DecodeBody(b); !errors.Is(err, chain.ErrEncoding) {
			t.Errorf("%x: %v", b, err)
		}
		if _, err := device.Verify(chaintest.Slot, b, b, chain.Mark{}, chaintest.Start); !errors.Is(err, chain.ErrEncoding) {
			t.Errorf("%x: %v", b, err)
		}
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / uint64(len(claims)); each > 32<<10 {
		t.Errorf("%d bytes allocated for a claim of 20", each)
	}
}

func TestCanonicalAllocatesNothing(t *testing.T) {
	body := chaintest.NewHub().Body(t, anOrder)
	if n := testing.AllocsPerRun(100, func() { _ = chain.Canonical(body) }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}
