package merkle

import (
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/chordwheel/chordwheel/chain"
)

// Hash is a SHA-256 of the tree.
type Hash = tlog.Hash

// MaxCheckpoint bounds a signed checkpoint: three lines and a dozen signatures.
const MaxCheckpoint = 4 << 10

// Refusals.
var (
	// ErrCheckpoint: no checkpoint of that ledger, in form or origin.
	ErrCheckpoint = errors.New("not a checkpoint of this ledger")
	// ErrSignature: none of the keys that are trusted signed it.
	ErrSignature = errors.New("not signed by the ledger's key")
)

// Origin is the name of the ledger of a mesh's hub.
func Origin(mesh chain.MeshID) string { return "chordwheel/" + string(mesh) + "/ledger" }

// Checkpoint says how long a ledger is and what is in it.
type Checkpoint struct {
	Origin string // the ledger's name: printable, without blanks and "+"
	Size   int64  // lines
	Root   Hash
}

// text gives what is signed.
func (c Checkpoint) text() string {
	return fmt.Sprintf("%s\n%d\n%s\n", c.Origin, c.Size, base64.StdEncoding.EncodeToString(c.Root[:]))
}

// Sign gives the checkpoint with a signature. It fails for an origin that cannot
// be the name of a key.
func (c Checkpoint) Sign(key ed25519.PrivateKey) ([]byte, error) {
	public, ok := key.Public().(ed25519.PublicKey)
	if !ok {
		return nil, errors.New("sign a checkpoint: no Ed25519 key")
	}
	v, err := verifier(c.Origin, public)
	if err != nil {
		return nil, fmt.Errorf("sign a checkpoint: %w", err)
	}
	b, err := note.Sign(&note.Note{Text: c.text()}, signer{v, key})
	if err != nil {
		return nil, fmt.Errorf("sign a checkpoint: %w", err)
	}
	return b, nil
}

// OpenCheckpoint gives the checkpoint of the ledger called origin that one of keys has
// signed. Errors wrap ErrCheckpoint or ErrSignature.
func OpenCheckpoint(signed []byte, origin string, keys ...ed25519.PublicKey) (Checkpoint, error) {
	if len(signed) > MaxCheckpoint {
		return Checkpoint{}, fmt.Errorf("%w: %d bytes", ErrCheckpoint, len(signed))
	}
	var known []note.Verifier
	for _, key := range keys {
		v, err := verifier(origin, key)
		if err != nil {
			return Checkpoint{}, err
		}
		known = append(known, v)
	}
	n, err := note.Open(signed, note.VerifierList(known...))
	if err != nil {
		return Checkpoint{}, fmt.Errorf("%w: %s", ErrSignature, chain.Clip(err.Error()))
	}
	c, err := parse(n.Text)
	if err != nil {
		return Checkpoint{}, err
	}
	if c.Origin != origin {
		return Checkpoint{}, fmt.Errorf("%w: of %q", ErrCheckpoint, chain.Clip(c.Origin))
	}
	return c, nil
}

// parse is the reverse of text, and accepts nothing else.
func parse(text string) (Checkpoint, error) {
	lines := strings.Split(text, "\n")
	if len(lines) != 4 || lines[3] != "" {
		return Checkpoint{}, fmt.Errorf("%w: want three lines", ErrCheckpoint)
	}
	c := Checkpoint{Origin: lines[0]}
	var err error
	c.Size, err = strconv.ParseInt(lines[1], 10, 64)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("%w: size %q", ErrCheckpoint, chain.Clip(lines[1]))
	}
	root, err := base64.StdEncoding.DecodeString(lines[2])
	if err != nil || len(root) != len(c.Root) {
		return Checkpoint{}, fmt.Errorf("%w: root %q", ErrCheckpoint, chain.Clip(lines[2]))
	}
	copy(c.Root[:], root)
	if c.Size < 0 || c.Size == 0 && c.Root != Empty() || !validOrigin(c.Origin) || c.text() != text {
		return Checkpoint{}, fmt.Errorf("%w: %q", ErrCheckpoint, chain.Clip(text))
	}
	return c, nil
}

func validOrigin(origin string) bool {
	return origin != "" && len(origin) <= 200 && !strings.ContainsFunc(origin, func(r rune) bool { return r <= ' ' || r > '~' || r == '+' })
}

// Empty is the root of a ledger without lines.
func Empty() Hash {
	h, err := tlog.TreeHash(0, nil)
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return h
}

// signer signs as the library does with a key in its own text form.
type signer struct {
	note.Verifier // has name and hash of the key
	key           ed25519.PrivateKey
}

func (s signer) Sign(msg []byte) ([]byte, error) { return ed25519.Sign(s.key, msg), nil }

// verifier gives what knows the signatures of a key under a name.
func verifier(name string, key ed25519.PublicKey) (note.Verifier, error) {
	text, err := note.NewEd25519VerifierKey(name, key)
	if err != nil {
		return nil, fmt.Errorf("%w: a key of %d bytes", ErrSignature, len(key))
	}
	v, err := note.NewVerifier(text)
	if err != nil || !validOrigin(name) {
		return nil, fmt.Errorf("%w: origin %q", ErrCheckpoint, chain.Clip(name))
	}
	return v, nil
}
