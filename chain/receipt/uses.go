package receipt

import (
	"crypto/ed25519"
	"crypto/sha256"
	"strings"

	"github.com/chordwheel/chordwheel/chain"
)

// How a token was used that is more than its holder's use of it. See [DoubleUse].
const (
	// TwoSeekers: receipts of two seekers name one token. A token is made for one.
	TwoSeekers = "two_seekers"
	// NonceTwice: one token came with one nonce for two pieces of work of a peer.
	NonceTwice = "nonce_twice"
)

// DoubleUse says that a receipt and one before it do not fit together.
type DoubleUse struct {
	Kind  string // TwoSeekers or NonceTwice
	First int64  // the number that came with the receipt before
}

// Uses finds tokens that were used by two. One token serves many requests of the device
// that it was made for, so that a second use is nothing by itself: a second user is, and a
// second use of the nonce by which a peer took work with it. What a submitter and its
// executor both say of one piece of work is one use.
//
// It remembers a bounded number of tokens, and takes receipts in any order. Its methods
// must not be called at once from several goroutines.
type Uses struct {
	most          int
	recent, older map[[16]byte]use
}

// use is the first receipt of a token, or of a token with a nonce.
type use struct {
	name, key [8]byte // of the seeker: its DID, and the key that it signs with; zero: not known
	work      [8]byte // of a peer: what both ends say of it alike
	line      [8]byte // the executor's own receipt; zero: not seen yet
	first     int64   // its number
}

// NewUses makes a memory for at least most tokens and nonces, and for twice as many at
// most: some 100 bytes each.
func NewUses(most int) *Uses {
	return &Uses{most: max(1, most), recent: map[[16]byte]use{}}
}

// Add takes in a receipt whose signature holds, under a number of the caller's, and says
// which it does not fit to. keys are those that its signer stands for.
func (u *Uses) Add(s *Signed, number int64, keys ...ed25519.PublicKey) (twice []DoubleUse) {
	if s.TokenID == "" {
		return nil
	}
	is := use{name: short(s.SeekerDID), key: s.seekerKey(keys), first: number}
	at := long("token", s.TokenID)
	if was, ok := u.get(at); !ok {
		u.put(at, is)
	} else if !was.same(&is) {
		twice = append(twice, DoubleUse{TwoSeekers, was.first})
	}
	if s.Executor == nil {
		return twice
	}
	is.work = short(s.TransactionID, s.AgentDID, s.RequestHash)
	if s.Signer() == s.AgentDID {
		is.line = short(string(s.Line))
	}
	at = long("nonce", s.TokenID, s.Executor.Nonce)
	was, ok := u.get(at)
	switch none := [8]byte{}; {
	case !ok:
		u.put(at, is)
	case was.work != is.work, was.line != none && is.line != none && was.line != is.line:
		twice = append(twice, DoubleUse{NonceTwice, was.first})
	case was.line == none && is.line != none:
		was.line = is.line
		u.put(at, was)
	}
	return twice
}

// same reports whether two seekers are one: by name, or by the key where a device has a
// did:webvh as well.
func (a *use) same(b *use) bool {
	return a.name == b.name || a.key != [8]byte{} && a.key == b.key
}

// seekerKey is the key that the seeker of s signs with, as far as s shows it.
func (s *Signed) seekerKey(keys []ed25519.PublicKey) (none [8]byte) {
	if strings.HasPrefix(s.SeekerDID, "did:key:") {
		return short(s.SeekerDID)
	}
	if s.Signer() != s.SeekerDID {
		return none
	}
	if k := s.signedWith(keys); k != nil {
		return short(chain.DIDKey(k))
	}
	return none
}

// get looks a use up, and keeps it for longer.
func (u *Uses) get(at [16]byte) (use, bool) {
	if was, ok := u.recent[at]; ok {
		return was, true
	}
	was, ok := u.older[at]
	if ok {
		u.put(at, was)
	}
	return was, ok
}

// put remembers a use. Half of all is forgotten at once, what was not met for longest.
func (u *Uses) put(at [16]byte, is use) {
	if _, ok := u.recent[at]; !ok && len(u.recent) >= u.most {
		u.recent, u.older = map[[16]byte]use{}, u.recent
	}
	u.recent[at] = is
}

// long is a hash of texts without line breaks, and short less of it.
func long(texts ...string) [16]byte {
	sum := sha256.Sum256([]byte(strings.Join(texts, "\n")))
	return [16]byte(sum[:])
}

func short(texts ...string) [8]byte {
	sum := long(texts...)
	return [8]byte(sum[:])
}
