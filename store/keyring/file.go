package keyring

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/store/datadir"
)

// Limits.
const (
	MaxKeys        = 256
	MaxNameBytes   = 64
	MaxSecretBytes = 8 << 10
	maxFileBytes   = 4 << 20
)

const (
	fileFormat = 1
	lockName   = "keys.lock"
	sumPrefix  = `{"sum":"`
	sumSuffix  = `",`
	headBytes  = len(sumPrefix) + 2*sha256.Size + len(sumSuffix)
)

// contents is keys.json without its sum.
type contents struct {
	Format int              `json:"format"`
	Serial uint64           `json:"serial"`
	Keys   map[string]entry `json:"keys"`
}

type entry struct {
	Changed uint64 `json:"changed"`
	Secret  string `json:"secret,omitempty"` // absent: the system's ring has it
	System  bool   `json:"system,omitempty"`
}

func encode(c contents) ([]byte, error) {
	b, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("encode keys: %T", err) // the text could hold a secret
	}
	b = append(b[1:], '\n') // behind the brace that the sum's line opens
	sum := sha256.Sum256(b)
	return append([]byte(sumPrefix+hex.EncodeToString(sum[:])+sumSuffix), b...), nil
}

// decode is the reverse of encode. Errors wrap datadir.ErrDamaged or ErrFormat
// and hold nothing of b.
func decode(b []byte) (contents, error) {
	var c contents
	if len(b) < headBytes || !bytes.HasPrefix(b, []byte(sumPrefix)) || string(b[headBytes-len(sumSuffix):headBytes]) != sumSuffix {
		return c, fmt.Errorf("%w: it was not written by chordwheel, or cut short", datadir.ErrDamaged)
	}
	sum := sha256.Sum256(b[headBytes:])
	if hex.EncodeToString(sum[:]) != string(b[len(sumPrefix):len(sumPrefix)+2*sha256.Size]) {
		return c, fmt.Errorf("%w: its checksum does not fit", datadir.ErrDamaged)
	}
	var format struct{ Format int }
	if err := json.Unmarshal(b, &format); err != nil {
		return c, fmt.Errorf("%w: it is not JSON", datadir.ErrDamaged)
	}
	if format.Format > fileFormat {
		return c, fmt.Errorf("%w (format %d): use that version", datadir.ErrFormat, format.Format)
	}
	if err := json.Unmarshal(b, &c); err != nil || c.Format != fileFormat || len(c.Keys) > MaxKeys {
		return contents{}, fmt.Errorf("%w: it has another shape", datadir.ErrDamaged)
	}
	for name, e := range c.Keys {
		if CheckName(name) != nil || e.Changed == 0 || e.Changed > c.Serial || e.System == (e.Secret != "") || checkSecret(e.Secret) != nil && !e.System {
			return contents{}, fmt.Errorf("%w: an entry of it has another shape", datadir.ErrDamaged)
		}
	}
	return c, nil
}

// read gives the file's content; a missing file is an empty one.
func read(path string) (contents, error) {
	b, err := datadir.ReadPrivate(path, maxFileBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return contents{Format: fileFormat}, nil
	}
	if err != nil {
		return contents{}, fmt.Errorf("keys: %w", err)
	}
	c, err := decode(b)
	if errors.Is(err, datadir.ErrDamaged) {
		return contents{}, fmt.Errorf("keys: %s is %w: remove it and set the keys again", path, err)
	} else if err != nil {
		return contents{}, fmt.Errorf("keys: %s was %w", path, err)
	}
	return c, nil
}

// change lets f edit the content and writes it, while no other process does.
func change(path string, f func(*contents) error) error {
	return datadir.Alone(filepath.Join(filepath.Dir(path), lockName), func() error { return changeAlone(path, f) })
}

func changeAlone(path string, f func(*contents) error) error {
	datadir.Sweep(path)
	c, err := read(path)
	if err != nil {
		return err
	}
	if c.Keys == nil {
		c.Keys = make(map[string]entry)
	}
	// Above the clock, too: a file that was removed and begun anew must not
	// give a generation twice.
	c.Serial = max(c.Serial+1, uint64(max(0, time.Now().UnixMilli())))
	if err := f(&c); err != nil {
		return err
	}
	b, err := encode(c)
	if err != nil {
		return err
	}
	return datadir.WritePrivate(path, b)
}

// CheckName refuses a name that is not 1 to MaxNameBytes letters, digits, dots,
// dashes or underscores, beginning with a letter or digit.
func CheckName(name string) error {
	ok := name != "" && len(name) <= MaxNameBytes && !strings.ContainsAny(name[:1], "._-")
	for _, r := range name {
		ok = ok && (r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-')
	}
	if !ok {
		return fmt.Errorf("key name %q: want 1 to %d letters, digits, dots, dashes or underscores, such as groq", chain.Clip(name), MaxNameBytes)
	}
	return nil
}

// checkSecret refuses what could not stand in a header. It never quotes it.
func checkSecret(s string) error {
	if s == "" || len(s) > MaxSecretBytes {
		return fmt.Errorf("a key of %d bytes: want 1 to %d", len(s), MaxSecretBytes)
	}
	for i := range len(s) {
		if s[i] < ' ' || s[i] >= 0x7f {
			return fmt.Errorf("the key's byte %d is not a printable ASCII character: was more pasted than the key?", i+1)
		}
	}
	return nil
}
