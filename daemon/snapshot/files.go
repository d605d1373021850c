package snapshot

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/chordwheel/chordwheel/chain/receipt"
)

// Store keeps one file, last-good.
type Store interface {
	// Load gives its bytes, nil if there is none. It reads at most limit bytes.
	Load(limit int64) ([]byte, error)
	// Save replaces it: whole and synced, or not at all.
	Save(b []byte) error
	// Delete removes it, synced. Without a file it does nothing.
	Delete() error
}

const (
	magic     = "chordwheel-snapshot-v1 "
	maxFile   = 8 << 20          // bytes of last-good or of a seed
	clockSlip = 60 * time.Second // how far in the future a date may be
)

var (
	errFile = errors.New("not a snapshot that was written here")
	errSeed = errors.New("want a seed file {\"date\",\"agents\":[…]}")
)

// lastGood is the content of the file.
type lastGood struct {
	Registry  string    `json:"registry"`
	FetchedAt time.Time `json:"fetched_at"`
	Truncated bool      `json:"truncated"`
	Agents    []Agent   `json:"agents"`
}

func (l lastGood) encode() ([]byte, error) {
	l.FetchedAt = l.FetchedAt.UTC()
	b, err := json.Marshal(l)
	if err != nil {
		return nil, fmt.Errorf("write last-good: %w", err)
	}
	sum := sha256.Sum256(b)
	return append([]byte(magic+hex.EncodeToString(sum[:])+"\n"), b...), nil
}

// decodeLastGood reads a file, and checks each record again. One of another
// registry is refused like one that was damaged.
func decodeLastGood(b []byte, registry string, own bool, now time.Time) (lastGood, error) {
	head, body, ok := bytes.Cut(b, []byte("\n"))
	sum := sha256.Sum256(body)
	if !ok || string(head) != magic+hex.EncodeToString(sum[:]) {
		return lastGood{}, errFile
	}
	var l lastGood
	if err := json.Unmarshal(body, &l); err != nil || l.Registry != registry || len(l.Agents) == 0 || len(l.Agents) > maxAgents || l.FetchedAt.After(now.Add(clockSlip)) {
		return lastGood{}, errFile
	}
	for _, a := range l.Agents {
		if !a.usable(own) {
			return lastGood{}, errFile
		}
	}
	return l, nil
}

// decodeSeed reads a seed file. A record that cannot be used is an error here: the
// file is the owner's own.
func decodeSeed(b []byte, own bool, now time.Time) (date time.Time, agents []Agent, err error) {
	if len(b) > maxFile {
		return date, nil, fmt.Errorf("%w: larger than %d bytes", errSeed, maxFile)
	}
	if _, err := receipt.Canonical(b); err != nil {
		return date, nil, fmt.Errorf("%w: %w", errSeed, err)
	}
	var in struct {
		Date   string            `json:"date"`
		Agents []json.RawMessage `json:"agents"`
	}
	if err := json.Unmarshal(b, &in); err != nil {
		return date, nil, fmt.Errorf("%w: %w", errSeed, err)
	}
	if date, err = time.Parse(time.RFC3339, in.Date); err != nil {
		if date, err = time.Parse(time.DateOnly, in.Date); err != nil {
			return date, nil, fmt.Errorf("%w: date: want 2026-01-31 or 2026-01-31T10:00:00Z", errSeed)
		}
	}
	if date.After(now.Add(clockSlip)) {
		return date, nil, fmt.Errorf("%w: its date is in the future", errSeed)
	}
	for i, raw := range in.Agents {
		a, ok := readAgent(raw, own)
		if !ok {
			return date, nil, fmt.Errorf("%w: agent %d: did, capability, endpoint or status is missing or wrong", errSeed, i+1)
		}
		agents = append(agents, a)
	}
	agents, conflicts := merge(agents)
	if len(conflicts) > 0 || len(agents) > maxAgents {
		return date, nil, fmt.Errorf("%w: %d agents twice, each time different; at most %d in all", errSeed, len(conflicts), maxAgents)
	}
	return date, agents, nil
}
