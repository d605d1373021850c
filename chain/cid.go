package chain

import (
	"fmt"

	"github.com/ipfs/go-cid"
	"github.com/multiformats/go-multihash"
)

// CID is the content address of a body: CIDv1, dag-cbor, sha2-256. It holds
// the binary form and is comparable; the zero value is no address. Its text
// form is base32 ("bafy…").
type CID string

var cidPrefix = cid.Prefix{Version: 1, Codec: cid.DagCBOR, MhType: multihash.SHA2_256, MhLength: 32}

// CIDOf addresses b.
func CIDOf(b []byte) CID {
	c, err := cidPrefix.Sum(b)
	if err != nil {
		panic("BUG: sha2-256 is always registered: " + err.Error())
	}
	return CID(c.Bytes())
}

// ParseCID reads the text form.
func ParseCID(s string) (CID, error) {
	c, err := cid.Decode(s)
	if err != nil {
		return "", fmt.Errorf("CID %q: %w", Clip(s), err)
	}
	return cidOf(c)
}

func cidOf(c cid.Cid) (CID, error) {
	if c.Prefix() != cidPrefix {
		return "", fmt.Errorf("CID %s: want version 1, dag-cbor, sha2-256", Clip(c.String()))
	}
	return CID(c.Bytes()), nil
}

// String gives the base32 text form, or "" for the zero value.
func (c CID) String() string {
	if c == "" {
		return ""
	}
	parsed, err := cid.Cast([]byte(c))
	if err != nil {
		return "(not a CID)" // made by a conversion, not by this package
	}
	return parsed.String()
}

// MarshalText makes CIDs readable in JSON.
func (c CID) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText is the reverse of MarshalText.
func (c *CID) UnmarshalText(b []byte) error {
	if len(b) == 0 {
		*c = ""
		return nil
	}
	got, err := ParseCID(string(b))
	*c = got
	return err
}

// MarshalCBOR writes the binary form as a byte string.
func (c CID) MarshalCBOR() ([]byte, error) { return Marshal([]byte(c)) }

// UnmarshalCBOR reads a byte string; an empty one is the zero value.
func (c *CID) UnmarshalCBOR(b []byte) error {
	var raw []byte
	if err := decMode.Unmarshal(b, &raw); err != nil {
		return fmt.Errorf("%w: CID", ErrEncoding)
	}
	if len(raw) == 0 {
		*c = ""
		return nil
	}
	parsed, err := cid.Cast(raw)
	if err != nil {
		return fmt.Errorf("%w: CID", ErrEncoding)
	}
	got, err := cidOf(parsed)
	*c = got
	return err
}
