package chain

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/fxamacker/cbor/v2"
)

// ErrEncoding is returned for bytes that are not deterministic CBOR, or do not
// have the shape of the object they are said to be.
var ErrEncoding = errors.New("not the deterministic encoding of this object")

// maxDepth bounds nesting in foreign bytes; our own objects need 5.
const maxDepth = 16

// Canonical reports whether b is exactly one data item in the deterministic
// form of RFC 8949, section 4.2.1, restricted to what this product writes:
// unsigned and negative integers, byte and text strings, arrays, maps with
// text keys, booleans and null. It allocates nothing and its work is bounded
// by len(b).
func Canonical(b []byte) error {
	rest, err := canonicalItem(b, 0)
	if err != nil {
		return fmt.Errorf("%w: byte %d: %w", ErrEncoding, len(b)-len(rest), err)
	}
	if len(rest) > 0 {
		return fmt.Errorf("%w: %d bytes after the end", ErrEncoding, len(rest))
	}
	return nil
}

var (
	errShort   = errors.New("cut short")
	errMinimal = errors.New("a length or integer is not in its shortest form")
	errIndef   = errors.New("indefinite length")
	errKind    = errors.New("a tag, float or simple value is not allowed")
	errKeys    = errors.New("map keys must be text, unique and ascending")
	errUTF8    = errors.New("text is not UTF-8")
	errDeep    = errors.New("nested too deep")
)

// canonicalItem checks one item and returns what follows it. On error it
// returns the bytes from the offending item on.
func canonicalItem(b []byte, depth int) ([]byte, error) {
	if depth > maxDepth {
		return b, errDeep
	}
	major, n, rest, err := canonicalHead(b)
	if err != nil {
		return b, err
	}
	switch major {
	case 0, 1:
		return rest, nil
	case 2, 3:
		if n > uint64(len(rest)) {
			return b, errShort
		}
		if major == 3 && !utf8.Valid(rest[:n]) {
			return b, errUTF8
		}
		return rest[n:], nil
	case 4:
		if n > uint64(len(rest)) { // every element takes a byte at least
			return b, errShort
		}
		for range n {
			if rest, err = canonicalItem(rest, depth+1); err != nil {
				return rest, err
			}
		}
		return rest, nil
	case 5:
		return canonicalMap(b, rest, n, depth)
	default:
		if b[0] == 0xf4 || b[0] == 0xf5 || b[0] == 0xf6 {
			return rest, nil
		}
		return b, errKind
	}
}

func canonicalMap(b, rest []byte, n uint64, depth int) ([]byte, error) {
	if n > uint64(len(rest))/2 {
		return b, errShort
	}
	var last []byte
	for range n {
		key := rest
		if len(key) == 0 || key[0]>>5 != 3 {
			return key, errKeys
		}
		after, err := canonicalItem(key, depth+1)
		if err != nil {
			return after, err
		}
		key = key[:len(key)-len(after)]
		if last != nil && bytes.Compare(last, key) >= 0 {
			return rest, errKeys
		}
		last = key
		if rest, err = canonicalItem(after, depth+1); err != nil {
			return rest, err
		}
	}
	return rest, nil
}

// canonicalHead reads the initial byte and its argument.
func canonicalHead(b []byte) (major byte, n uint64, rest []byte, err error) {
	if len(b) == 0 {
		return 0, 0, nil, errShort
	}
	major, low := b[0]>>5, b[0]&31
	rest = b[1:]
	switch {
	case low < 24:
		return major, uint64(low), rest, nil
	case low == 31:
		return 0, 0, nil, errIndef
	case low > 27 || major == 7: // one-byte simple values and all floats
		return 0, 0, nil, errKind
	}
	size := 1 << (low - 24)
	if len(rest) < size {
		return 0, 0, nil, errShort
	}
	var least uint64
	switch size {
	case 1:
		n, least = uint64(rest[0]), 24
	case 2:
		n, least = uint64(binary.BigEndian.Uint16(rest)), 1<<8
	case 4:
		n, least = uint64(binary.BigEndian.Uint32(rest)), 1<<16
	case 8:
		n, least = binary.BigEndian.Uint64(rest), 1<<32
	}
	if n < least {
		return 0, 0, nil, errMinimal
	}
	return major, n, rest[size:], nil
}

var encMode, decMode = cborModes()

func cborModes() (cbor.EncMode, cbor.DecMode) {
	enc, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		panic("BUG: " + err.Error())
	}
	dec, err := cbor.DecOptions{
		DupMapKey: cbor.DupMapKeyEnforcedAPF, IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden,
		FieldNameMatching: cbor.FieldNameMatchingCaseSensitive, MaxNestedLevels: maxDepth, MaxArrayElements: 1 << 16, MaxMapPairs: 1 << 12,
	}.DecMode()
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return enc, dec
}

// Marshal encodes v deterministically. It fails only on types that no object
// of ours has.
func Marshal(v any) ([]byte, error) {
	b, err := encMode.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", v, err)
	}
	return b, nil
}

// Unmarshal checks that b is canonical and decodes it into v. Unknown fields
// are ignored. The error wraps ErrEncoding and holds nothing of b.
func Unmarshal(b []byte, v any) error {
	if err := Canonical(b); err != nil {
		return err
	}
	if err := decMode.Unmarshal(b, v); err != nil {
		return fmt.Errorf("%w: %T", ErrEncoding, v)
	}
	return nil
}
