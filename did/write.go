package did

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// New says what a did:webvh begins with.
type New struct {
	// Place is the host, a port behind %3A, and path segments behind colons:
	// example.com, example.com%3A8443:dids:hub.
	Place string
	// Update signs this entry and the next one; it may be Sign.
	Update ed25519.PrivateKey
	// Next are the keys that the next entry may be signed with: with them, a thief of
	// Update gains nothing. Empty: Update signs the next entry too.
	Next []ed25519.PublicKey
	// Sign is the key that the document lists: it proves control and signs receipts.
	Sign ed25519.PublicKey
	// Portable lets the DID move to another host later.
	Portable bool
}

// Create gives a new did:webvh and the log with its first entry, to be served at the address
// that the DID stands for. Errors wrap ErrInvalid.
func Create(n New, now time.Time) (did string, log []byte, err error) {
	draft := "did:webvh:" + placeholder + ":" + n.Place
	if _, err := parseWebVH(draft); err != nil {
		return "", nil, err
	}
	p := object{"method": text(method), "scid": text(placeholder), "updateKeys": texts([]string{multikey(n.Update)})}
	if len(n.Next) > 0 {
		p["nextKeyHashes"] = commitments(n.Next)
	}
	if n.Portable {
		p["portable"] = json.RawMessage("true")
	}
	entry := object{
		"versionId": text(placeholder), "versionTime": text(stamp(now)), "parameters": p.canonical(),
		"state": documentOf(draft, "key-1", n.Sign).canonical(),
	}
	scid := hash(entry.canonical())
	entry, err = parseObject(bytes.ReplaceAll(entry.canonical(), []byte(placeholder), []byte(scid)))
	if err != nil {
		return "", nil, fmt.Errorf("create a DID: %w", err)
	}
	line := seal(entry, scid, 1, n.Update, now)
	did = strings.Replace(draft, placeholder, scid, 1)
	if _, err := Verify(line, nil, did, Want{}, now); err != nil {
		return "", nil, fmt.Errorf("create a DID: %w", err)
	}
	return did, line, nil
}

// Change says what an entry changes; what is zero stays.
type Change struct {
	// Update replaces the keys that sign entries: it is one of those that the entry before
	// committed to, if it did.
	Update ed25519.PrivateKey
	// Next are the keys that may sign the entry behind this one. They have to
	// be named in every entry as long as pre-rotation lasts; none ends it.
	Next []ed25519.PublicKey
	// Sign replaces the document by one with this key.
	Sign ed25519.PublicKey
	// Place moves a portable DID.
	Place string
	// Deactivate ends the DID: no entry can follow.
	Deactivate bool
}

// Update gives a log with one more entry, which by signs: the key of the last entry or, under
// pre-rotation, the new one (Change.Update) itself. The new log is checked before it
// is given; approvals of witnesses are not made here. Errors wrap ErrInvalid.
func Update(log []byte, c Change, by ed25519.PrivateKey, now time.Time) ([]byte, error) {
	all, err := readLog(log, now)
	if err != nil {
		return nil, err
	}
	last := all[len(all)-1]
	p := object{}
	rotating := len(last.after.nextHashes) > 0
	if c.Update != nil {
		p["updateKeys"] = texts([]string{multikey(c.Update)})
	}
	if rotating || len(c.Next) > 0 {
		p["nextKeyHashes"] = commitments(c.Next)
	}
	if c.Deactivate {
		p["deactivated"] = json.RawMessage("true")
		if !rotating {
			p["updateKeys"] = texts(nil)
		}
	}
	did, document := last.did, last.document
	if c.Place != "" {
		did = "did:webvh:" + last.after.scid + ":" + c.Place
		if _, err := parseWebVH(did); err != nil {
			return nil, err
		}
		if document, err = parseObject(bytes.ReplaceAll(document.canonical(), []byte(last.did), []byte(did))); err != nil {
			return nil, fmt.Errorf("%w: move a DID: %w", ErrInvalid, err)
		}
	}
	if c.Sign != nil {
		document = documentOf(did, "key-"+strconv.Itoa(len(all)+1), c.Sign)
	}
	if did != last.did {
		document = document.with(object{"alsoKnownAs": texts([]string{last.did})})
	}
	// Times have seconds, and each has to be later than the one before.
	if at := last.time.Truncate(time.Second).Add(time.Second); now.Before(at) {
		return nil, fmt.Errorf("%w: the last entry is of %s: wait until the next second", ErrInvalid, stamp(last.time))
	}
	entry := object{"versionTime": text(stamp(now)), "parameters": p.canonical(), "state": document.canonical()}
	longer := slices.Concat(bytes.TrimSuffix(log, []byte{'\n'}), []byte{'\n'}, seal(entry, last.id, len(all)+1, by, now))
	if _, err := readLog(longer, now); err != nil {
		return nil, fmt.Errorf("update %s: %w", chain.Clip(did), err)
	}
	return longer, nil
}

// seal gives the line of an entry behind the one called previous.
func seal(entry object, previous string, number int, by ed25519.PrivateKey, now time.Time) []byte {
	entry = entry.with(object{"versionId": text(strconv.Itoa(number) + "-" + entryHash(entry, previous))})
	proof := slices.Concat([]byte{'['}, sign(by, entry, now), []byte{']'})
	return append(entry.with(object{"proof": proof}).canonical(), '\n')
}

func texts(l []string) json.RawMessage {
	b := []byte{'['}
	for i, s := range l {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, text(s)...)
	}
	return append(b, ']')
}

// commitments gives the hashes of keys for nextKeyHashes.
func commitments(keys []ed25519.PublicKey) json.RawMessage {
	var l []string
	for _, key := range keys {
		l = append(l, hash([]byte(strings.TrimPrefix(chain.DIDKey(key), "did:key:"))))
	}
	return texts(l)
}
