package did

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/chordwheel/chordwheel/chain"
)

const (
	method     = "did:webvh:1.0"
	defaultTTL = 3600
	maxTTL     = 1 << 31
	maxList    = 64 // keys, hashes, witnesses, watchers
)

// parameters are those in force after an entry.
type parameters struct {
	scid        string
	updateKeys  []string
	nextHashes  []string
	witness     witnesses
	watchers    []string
	ttl         uint64
	portable    bool
	deactivated bool
}

// witnesses are who has to approve an entry; nobody if there are none.
type witnesses struct {
	Threshold int `json:"threshold"`
	Witnesses []struct {
		ID string `json:"id"`
	} `json:"witnesses"`
}

func (w witnesses) active() bool { return len(w.Witnesses) > 0 }

func (w witnesses) names() []string {
	var out []string
	for _, x := range w.Witnesses {
		out = append(out, x.ID)
	}
	return out
}

// apply gives what is in force after an entry with the parameters o, behind p;
// first says that there is no entry before.
func (p parameters) apply(o object, first bool) (parameters, error) {
	if err := o.only("method", "scid", "updateKeys", "nextKeyHashes", "witness", "watchers", "ttl", "portable", "deactivated"); err != nil {
		return p, err
	}
	if first {
		p.ttl = defaultTTL
	}
	if err := p.applyIdentity(o, first); err != nil {
		return p, err
	}
	if err := p.applyKeys(o, first); err != nil {
		return p, err
	}
	var err error
	if raw, ok := o["witness"]; ok {
		if p.witness, err = parseWitnesses(raw); err != nil {
			return p, err
		}
	}
	if raw, ok := o["watchers"]; ok {
		if p.watchers, err = list("watchers", raw); err != nil {
			return p, err
		}
	}
	if raw, ok := o["ttl"]; ok {
		if isNull(raw) {
			p.ttl = defaultTTL
		} else if err := json.Unmarshal(raw, &p.ttl); err != nil || p.ttl > maxTTL {
			return p, errors.New("ttl: want seconds")
		}
	}
	return p, p.applyFlags(o, first)
}

func (p *parameters) applyIdentity(o object, first bool) error {
	if _, ok := o["method"]; ok || first {
		if m, err := o.string("method"); err != nil || m != method {
			return fmt.Errorf("method: want %s", method)
		}
	}
	if _, ok := o["scid"]; ok != first {
		return errors.New("scid: it belongs into the first entry, and into no other")
	}
	if first {
		scid, err := o.string("scid")
		if err != nil || !validHash(scid) && scid != placeholder {
			return errors.New("scid: want a SHA-256 multihash in base58btc")
		}
		p.scid = scid
	}
	return nil
}

// applyKeys also holds the rules of pre-rotation: while hashes are in force, each entry has to
// bring keys that they are of, and new hashes.
func (p *parameters) applyKeys(o object, first bool) error {
	committed := p.nextHashes
	rawKeys, hasKeys := o["updateKeys"]
	rawHashes, hasHashes := o["nextKeyHashes"]
	if first && !hasKeys {
		return errors.New("updateKeys: missing in the first entry")
	}
	if len(committed) > 0 && (!hasKeys || !hasHashes) {
		return errors.New("nextKeyHashes: pre-rotation wants updateKeys and nextKeyHashes in every entry")
	}
	var err error
	if hasKeys {
		if p.updateKeys, err = list("updateKeys", rawKeys); err != nil {
			return err
		}
		for _, key := range p.updateKeys {
			if _, err := chain.ParseDIDKey("did:key:" + key); err != nil {
				return errors.New("updateKeys: want Ed25519 keys, z6Mk…")
			}
			if len(committed) > 0 && !slices.Contains(committed, hash([]byte(key))) {
				return errors.New("updateKeys: a key that the entry before did not commit to")
			}
		}
		if len(p.updateKeys) == 0 && (first || len(committed) > 0) {
			return errors.New("updateKeys: empty")
		}
	}
	if hasHashes {
		p.nextHashes, err = list("nextKeyHashes", rawHashes)
	}
	return err
}

func (p *parameters) applyFlags(o object, first bool) error {
	for name, at := range map[string]*bool{"portable": &p.portable, "deactivated": &p.deactivated} {
		raw, ok := o[name]
		if !ok {
			continue
		}
		var v *bool
		if err := json.Unmarshal(raw, &v); err != nil || v == nil {
			return fmt.Errorf("%s: want true or false", name)
		}
		if name == "portable" && *v && !*at && !first {
			return errors.New("portable: it can be set in the first entry only")
		}
		*at = *v
	}
	return nil
}

func parseWitnesses(raw json.RawMessage) (witnesses, error) {
	var w witnesses
	if isNull(raw) {
		return w, nil
	}
	o, err := member(raw)
	if err != nil || o.only("threshold", "witnesses") != nil {
		return w, errors.New("witness: want a threshold and witnesses")
	}
	if len(o) == 0 {
		return w, nil
	}
	if err := json.Unmarshal(raw, &w); err != nil {
		return w, errors.New("witness: want a threshold and witnesses")
	}
	if n := len(w.Witnesses); n == 0 || n > maxList || w.Threshold < 1 || w.Threshold > n {
		return w, fmt.Errorf("witness: a threshold of %d with %d witnesses", w.Threshold, len(w.Witnesses))
	}
	seen := make(map[string]bool)
	for _, x := range w.Witnesses {
		if _, err := chain.ParseDIDKey(x.ID); err != nil || seen[x.ID] {
			return w, errors.New("witness: want different did:key of Ed25519 keys")
		}
		seen[x.ID] = true
	}
	return w, nil
}

// list reads an array of strings; null stands for the empty one, as early
// writers had it.
func list(name string, raw json.RawMessage) ([]string, error) {
	if isNull(raw) {
		return nil, nil
	}
	var l []*string
	if err := json.Unmarshal(raw, &l); err != nil || len(l) > maxList || slices.Contains(l, nil) {
		return nil, fmt.Errorf("%s: want an array of at most %d strings", name, maxList)
	}
	out := make([]string, len(l))
	for i, s := range l {
		out[i] = *s
	}
	return out, nil
}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }
