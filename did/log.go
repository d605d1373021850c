package did

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/nesting"
)

// Bounds of what is read.
const (
	// MaxLog bounds a log, and the proofs of its witnesses.
	MaxLog = 5 << 20

	maxEntries = 10_000
	maxProofs  = 16 // per entry
	maxDepth   = 64
	// leeway is how far a clock elsewhere may be ahead.
	leeway = time.Minute
)

// version is a checked entry.
type version struct {
	id       string
	time     time.Time
	did      string
	document object
	state    json.RawMessage // the document in its RFC 8785 form
	after    parameters
	witness  witnesses // who has to approve it
}

// readLog checks a log from its first entry on. It knows nothing of the DID that was
// asked for, and of witnesses only who has to approve what.
func readLog(log []byte, now time.Time) ([]version, error) {
	if len(log) > MaxLog {
		return nil, fmt.Errorf("%w: the log has more than %d bytes", ErrInvalid, MaxLog)
	}
	lines := bytes.Split(bytes.TrimSuffix(log, []byte{'\n'}), []byte{'\n'})
	if len(lines) > maxEntries {
		return nil, fmt.Errorf("%w: the log has more than %d entries", ErrInvalid, maxEntries)
	}
	var all []version
	for i, line := range lines {
		v, err := readEntry(line, all)
		if err != nil {
			return nil, fmt.Errorf("%w: entry %d: %w", ErrInvalid, i+1, err)
		}
		all = append(all, v)
	}
	if last := all[len(all)-1]; last.time.After(now.Add(leeway)) {
		return nil, fmt.Errorf("%w: entry %d: versionTime: in the future", ErrInvalid, len(all))
	}
	return all, nil
}

// readEntry checks the entry behind those of before.
func readEntry(line []byte, before []version) (version, error) {
	first := len(before) == 0
	var last version
	if !first {
		last = before[len(before)-1]
	}
	entry, err := parseObject(line)
	if err != nil {
		return version{}, err
	}
	if err := entry.only("versionId", "versionTime", "parameters", "state", "proof"); err != nil {
		return version{}, err
	}
	if last.after.deactivated {
		return version{}, errors.New("the DID was deactivated before")
	}
	raw, err := member(entry["parameters"])
	if err != nil {
		return version{}, fmt.Errorf("parameters: %w", err)
	}
	v := version{}
	if v.after, err = last.after.apply(raw, first); err != nil {
		return v, fmt.Errorf("parameters: %w", err)
	}
	// A new list of witnesses counts from the next entry on, the first list at once.
	if v.witness = last.after.witness; !v.witness.active() {
		v.witness = v.after.witness
	}
	if err := v.readID(entry, last, len(before)+1); err != nil {
		return v, err
	}
	if err := v.readTime(entry, last); err != nil {
		return v, err
	}
	if err := v.readState(entry, last); err != nil {
		return v, fmt.Errorf("state: %w", err)
	}
	active := v.after.updateKeys
	if !first && len(last.after.nextHashes) == 0 {
		active = last.after.updateKeys
	}
	return v, checkProofs(entry, active)
}

func (v *version) readID(entry object, last version, number int) error {
	var err error
	if v.id, err = entry.string("versionId"); err != nil {
		return err
	}
	n, sum, ok := strings.Cut(v.id, "-")
	if !ok || n != strconv.Itoa(number) {
		return fmt.Errorf("versionId: want number %d", number)
	}
	previous := last.id
	if number == 1 {
		previous = v.after.scid
		if scid, err := scidOf(entry, v.after.scid); err != nil || scid != v.after.scid {
			return errors.New("scid: it is not that of this entry")
		}
	}
	if sum != entryHash(entry, previous) {
		return errors.New("versionId: the hash is not that of this entry behind the one before")
	}
	return nil
}

func (v *version) readTime(entry object, last version) error {
	s, err := entry.string("versionTime")
	if err != nil {
		return err
	}
	if v.time, err = parseTime(s); err != nil {
		return err
	}
	if last.id != "" && !v.time.After(last.time) {
		return errors.New("versionTime: not after the entry before")
	}
	return nil
}

func (v *version) readState(entry object, last version) error {
	var err error
	v.state = entry["state"]
	if v.document, err = member(v.state); err != nil {
		return err
	}
	if v.did, err = v.document.string("id"); err != nil {
		return err
	}
	w, err := parseWebVH(v.did)
	if err != nil {
		return err
	}
	if w.scid != v.after.scid {
		return errors.New("id: its SCID is another one")
	}
	if last.id == "" || v.did == last.did {
		return nil
	}
	if !last.after.portable {
		return errors.New("id: the DID was moved and is not portable")
	}
	known, err := list("alsoKnownAs", v.document["alsoKnownAs"])
	if v.document["alsoKnownAs"] == nil || err != nil || !slices.Contains(known, last.did) {
		return errors.New("alsoKnownAs: it has to name the DID of before the move")
	}
	return nil
}

// checkProofs wants every proof to hold, and to be made by an active key.
func checkProofs(entry object, active []string) error {
	var proofs []json.RawMessage
	if err := json.Unmarshal(entry["proof"], &proofs); entry["proof"] == nil || err != nil || len(proofs) == 0 || len(proofs) > maxProofs {
		return fmt.Errorf("proof: want an array of 1 to %d", maxProofs)
	}
	document := entry.with(object{"proof": nil}).digest()
	for _, p := range proofs {
		key, err := checkProof(p, document)
		if err != nil {
			return err
		}
		if !slices.Contains(active, key) {
			return fmt.Errorf("proof: %s is not among the updateKeys in force", key)
		}
	}
	return nil
}

// checkWitnesses wants, for each entry that has to be approved, enough of its witnesses
// to have signed it or a later one. Proofs that do not hold, or are about entries that
// are not there, do not count.
func checkWitnesses(all []version, file []byte) error {
	if !slices.ContainsFunc(all, func(v version) bool { return v.witness.active() }) {
		return nil
	}
	if len(file) > MaxLog || nesting.Depth(file) > maxDepth {
		return fmt.Errorf("%w: the witnesses' proofs are too large", ErrInvalid)
	}
	var records []struct {
		VersionID string            `json:"versionId"`
		Proof     []json.RawMessage `json:"proof"`
	}
	if err := json.Unmarshal(file, &records); err != nil || len(records) > maxEntries {
		return fmt.Errorf("%w: the witnesses' proofs are no list of them", ErrInvalid)
	}
	number := make(map[string]int, len(all))
	for i, v := range all {
		number[v.id] = i
	}
	upTo := make(map[string]int) // by witness: entries that it approved
	left := maxEntries           // of signatures to look at
	for _, r := range records {
		i, ok := number[r.VersionID]
		if !ok {
			continue
		}
		for _, p := range r.Proof {
			if left--; left < 0 {
				return fmt.Errorf("%w: too many proofs of witnesses", ErrInvalid)
			}
			if key, err := checkProof(p, object{"versionId": text(r.VersionID)}.digest()); err == nil {
				upTo["did:key:"+key] = max(upTo["did:key:"+key], i+1)
			}
		}
	}
	for i, v := range all {
		have := 0
		for _, w := range v.witness.Witnesses {
			if upTo[w.ID] > i {
				have++
			}
		}
		if have < v.witness.Threshold {
			return fmt.Errorf("%w: entry %d: witness: %d of %d approvals", ErrInvalid, i+1, have, v.witness.Threshold)
		}
	}
	return nil
}

// theirs fails if none of the versions is of the DID that was asked for.
func theirs(all []version, did string) error {
	if !slices.ContainsFunc(all, func(v version) bool { return v.did == did }) {
		return fmt.Errorf("%w: the log is not that of %q", ErrInvalid, chain.Clip(did))
	}
	return nil
}
