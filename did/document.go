package did

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Purpose says what a key of a document is for.
type Purpose string

// Purposes.
const (
	Assertion      Purpose = "assertionMethod" // signing receipts
	Authentication Purpose = "authentication"  // proving control
)

// Resolution is a DID that was resolved. Of a did:key it has DID and Document alone.
type Resolution struct {
	DID         string          // as the document calls itself: of a moved DID, its present name
	Document    json.RawMessage // in its RFC 8785 form
	VersionID   string
	VersionTime time.Time
	Created     time.Time // of the first version
	Updated     time.Time // of the last

	// As the last version has it.
	SCID        string
	Portable    bool
	Deactivated bool
	TTL         time.Duration // how long its owner wants it to be remembered; 0: not at all
	Witnesses   []string      // did:key of each
	Threshold   int           // how many of them have to approve a version
	Watchers    []string      // addresses
}

// MarshalJSON gives the DID, its document, and of a did:webvh the metadata that the
// specification wants beside it, in which numbers are texts.
func (r Resolution) MarshalJSON() ([]byte, error) {
	m := map[string]any{"did": r.DID, "document": r.Document}
	if r.VersionID == "" {
		return json.Marshal(m)
	}
	for name, value := range map[string]any{
		"versionId": r.VersionID, "versionTime": r.VersionTime, "created": r.Created, "updated": r.Updated, "scid": r.SCID, "portable": r.Portable,
		"deactivated": r.Deactivated, "ttl": strconv.FormatInt(int64(r.TTL/time.Second), 10), "watchers": append([]string{}, r.Watchers...),
	} {
		m[name] = value
	}
	witness := map[string]any{}
	if len(r.Witnesses) > 0 {
		list := []map[string]string{}
		for _, id := range r.Witnesses {
			list = append(list, map[string]string{"id": id})
		}
		witness = map[string]any{"threshold": strconv.Itoa(r.Threshold), "witnesses": list}
	}
	m["witness"] = witness
	return json.Marshal(m)
}

// Keys gives the Ed25519 keys that the document lists for a purpose, none if the
// DID was deactivated. Other kinds of key, and methods of other documents, are
// passed over.
func (r Resolution) Keys(purpose Purpose) []ed25519.PublicKey {
	var d struct {
		Methods    []json.RawMessage `json:"verificationMethod"`
		Assertion  []json.RawMessage `json:"assertionMethod"`
		Authentica []json.RawMessage `json:"authentication"`
	}
	if r.Deactivated || json.Unmarshal(r.Document, &d) != nil {
		return nil
	}
	byID := make(map[string]ed25519.PublicKey)
	for _, raw := range d.Methods {
		if id, key, ok := r.methodKey(raw); ok {
			byID[id] = key
		}
	}
	uses := d.Assertion
	if purpose == Authentication {
		uses = d.Authentica
	}
	var keys []ed25519.PublicKey
	for _, raw := range uses {
		var id string
		if json.Unmarshal(raw, &id) == nil {
			if key, ok := byID[r.absolute(id)]; ok {
				keys = append(keys, key)
			}
		} else if _, key, ok := r.methodKey(raw); ok {
			keys = append(keys, key)
		}
	}
	return keys
}

func (r Resolution) absolute(id string) string {
	if strings.HasPrefix(id, "#") {
		return r.DID + id
	}
	return id
}

// methodKey reads a verification method of this document.
func (r Resolution) methodKey(raw json.RawMessage) (id string, key ed25519.PublicKey, ok bool) {
	var m struct {
		ID        string `json:"id"`
		Type      string `json:"type"`
		Multibase string `json:"publicKeyMultibase"`
	}
	if json.Unmarshal(raw, &m) != nil || m.Type != "Multikey" && m.Type != "Ed25519VerificationKey2020" {
		return "", nil, false
	}
	id = r.absolute(m.ID)
	key, err := chain.ParseDIDKey("did:key:" + m.Multibase)
	return id, key, err == nil && strings.HasPrefix(id, r.DID+"#")
}

// resolveKey gives the document that a did:key stands for.
func resolveKey(did string) (Resolution, error) {
	key, err := chain.ParseDIDKey(did)
	if err != nil {
		return Resolution{}, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return Resolution{DID: did, Document: documentOf(did, strings.TrimPrefix(did, "did:key:"), key).canonical()}, nil
}

// documentOf gives a document with one key for both purposes.
func documentOf(did, name string, key ed25519.PublicKey) object {
	id := text(did + "#" + name)
	m := object{"id": id, "type": text("Multikey"), "controller": text(did), "publicKeyMultibase": text(strings.TrimPrefix(chain.DIDKey(key), "did:key:"))}
	uses := json.RawMessage(slices.Concat([]byte{'['}, id, []byte{']'}))
	return object{
		"@context":           json.RawMessage(`["https://www.w3.org/ns/did/v1","https://w3id.org/security/multikey/v1"]`),
		"id":                 text(did),
		"verificationMethod": slices.Concat([]byte{'['}, m.canonical(), []byte{']'}),
		"assertionMethod":    uses, "authentication": uses,
	}
}
