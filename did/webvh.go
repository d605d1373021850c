package did

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/multiformats/go-multibase"

	"github.com/chordwheel/chordwheel/chain"
)

// Refusals.
var (
	// ErrInvalid: no DID that is known here, or a log that does not hold.
	ErrInvalid = errors.New("invalid DID")
	// ErrNotFound: there is no such DID, or no such version of it.
	ErrNotFound = errors.New("DID not found")
)

const (
	maxSegments = 16
	scidLength  = 46
	placeholder = "{SCID}"
)

// webvh is a did:webvh, taken apart.
type webvh struct {
	scid string
	rest string // HOST[%3APORT][:SEGMENT]…
}

// parseWebVH takes a did:webvh apart. Of a DID that is about to be created the SCID
// is the placeholder.
func parseWebVH(did string) (webvh, error) {
	bad := func(what string) (webvh, error) {
		return webvh{}, fmt.Errorf("%w: %s in %q", ErrInvalid, what, chain.Clip(did))
	}
	text, ok := strings.CutPrefix(did, "did:webvh:")
	if !ok || len(did) > chain.MaxDIDBytes {
		return bad("no did:webvh")
	}
	scid, rest, ok := strings.Cut(text, ":")
	if !ok {
		return bad("no host")
	}
	if scid != placeholder && !validHash(scid) {
		return bad("no SCID")
	}
	host, path, _ := strings.Cut(rest, ":")
	name, port, hasPort := strings.Cut(host, "%3A")
	if !validHost(name) {
		return bad("no host name")
	}
	if n, err := strconv.ParseUint(port, 10, 16); hasPort && (err != nil || n == 0 || strconv.FormatUint(n, 10) != port) {
		return bad("no port")
	}
	if strings.Contains(rest, ":") {
		segments := strings.Split(path, ":")
		if len(segments) > maxSegments {
			return bad("too many segments")
		}
		for _, s := range segments {
			if !validSegment(s) {
				return bad("a path segment that is none")
			}
		}
	}
	return webvh{scid, rest}, nil
}

// Check fails unless s is a DID that [Resolve] might resolve: a did:key of a key that is
// known here, or a did:webvh. Whether there is such a log is not looked at. Errors wrap
// ErrInvalid.
func Check(s string) error {
	if strings.HasPrefix(s, "did:key:") {
		_, err := resolveKey(s)
		return err
	}
	_, err := realWebVH(s)
	return err
}

// realWebVH takes a did:webvh apart that is not one about to be created.
func realWebVH(s string) (webvh, error) {
	if !strings.HasPrefix(s, "did:webvh:") {
		return webvh{}, fmt.Errorf("%w %q: want did:webvh:… or did:key:…", ErrInvalid, chain.Clip(s))
	}
	w, err := parseWebVH(s)
	if err == nil && w.scid == placeholder {
		err = fmt.Errorf("%w: no SCID in %q", ErrInvalid, chain.Clip(s))
	}
	return w, err
}

// url gives the address of a file that belongs to the DID.
func (w webvh) url(file string) string {
	host, path, _ := strings.Cut(w.rest, ":")
	if path == "" {
		path = ".well-known"
	}
	return "https://" + strings.Replace(host, "%3A", ":", 1) + "/" + strings.ReplaceAll(path, ":", "/") + "/" + file
}

// site gives the last two labels of the host: whoever has them can have as many hosts as he likes.
func (w webvh) site() string {
	host, _, _ := strings.Cut(w.rest, ":")
	host, _, _ = strings.Cut(strings.ToLower(host), "%3a")
	labels := strings.Split(host, ".")
	return strings.Join(labels[max(0, len(labels)-2):], ".")
}

// Address gives the https address of the log that a did:webvh stands for. Errors
// wrap ErrInvalid.
func Address(did string) (string, error) {
	w, err := parseWebVH(did)
	if err != nil {
		return "", err
	}
	return w.url(LogFile), nil
}

// Names of the files that belong to a did:webvh.
const (
	LogFile     = "did.jsonl"
	WitnessFile = "did-witness.json"
)

// Place gives the part of a did:webvh that names the place, for [New.Place], of an
// address as people write it: example.com, hub.example.com:8443/dids/hub. Errors wrap
// ErrInvalid.
func Place(address string) (string, error) {
	host, path, hasPath := strings.Cut(strings.TrimPrefix(address, "https://"), "/")
	place := strings.Replace(host, ":", "%3A", 1)
	if path = strings.TrimSuffix(path, "/"); hasPath && path != "" {
		place += ":" + strings.ReplaceAll(path, "/", ":")
	}
	if _, err := parseWebVH("did:webvh:" + placeholder + ":" + place); err != nil || strings.Count(host, ":") > 1 {
		return "", fmt.Errorf("%w: want HOST[:PORT][/PATH] with a domain name, such as example.com, not %q", ErrInvalid, chain.Clip(address))
	}
	return place, nil
}

// validHost accepts names of at least two labels and no address.
func validHost(name string) bool {
	if _, err := netip.ParseAddr(name); err == nil || len(name) > 253 {
		return false
	}
	labels := strings.Split(name, ".")
	for _, l := range labels {
		if l == "" || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' || strings.Trim(strings.ToLower(l), "abcdefghijklmnopqrstuvwxyz0123456789-") != "" {
			return false
		}
	}
	// A last label of digits would be read as an address by some.
	return len(labels) >= 2 && strings.Trim(labels[len(labels)-1], "0123456789") != ""
}

// validSegment accepts what stands for itself in a path.
func validSegment(s string) bool {
	if s == "" || strings.Trim(s, ".") == "" || len(s) > 128 {
		return false
	}
	for _, r := range strings.ReplaceAll(s, placeholder, "") {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-._~", r) {
			continue
		}
		return false
	}
	return true
}

// hash gives the multihash that this method names things by.
func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return base58(append([]byte{0x12, 0x20}, sum[:]...))
}

// validHash reports whether text can be a SHA-256 multihash in base58.
func validHash(text string) bool {
	if len(text) != scidLength {
		return false
	}
	_, b, err := multibase.Decode("z" + text)
	return err == nil && len(b) == 34 && b[0] == 0x12 && b[1] == 0x20
}

func base58(b []byte) string {
	text, err := multibase.Encode(multibase.Base58BTC, b)
	if err != nil {
		panic("BUG: base58btc: " + err.Error())
	}
	return text[1:]
}
