package merkle_test

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"
	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/chain/merkle"
)

var update = flag.Bool("update", false, "make testdata anew")

const origin = "chordwheel/test/ledger"

func keyOf(n byte) ed25519.PrivateKey {
	return ed25519.NewKeyFromSeed(bytes.Repeat([]byte{n}, ed25519.SeedSize))
}

func public(n byte) ed25519.PublicKey { return keyOf(n).Public().(ed25519.PublicKey) }

// root is the tree as RFC 6962 §2.1 writes it down, a second time and slowly.
func root(lines []string) merkle.Hash {
	switch n := len(lines); n {
	case 0:
		return sha256.Sum256(nil)
	case 1:
		return sha256.Sum256([]byte("\x00" + lines[0]))
	default:
		k := 1
		for k*2 < n {
			k *= 2
		}
		left, right := root(lines[:k]), root(lines[k:])
		return sha256.Sum256(fmt.Appendf(nil, "\x01%s%s", left[:], right[:]))
	}
}

func at(lines []string) merkle.Checkpoint {
	return merkle.Checkpoint{Origin: origin, Size: int64(len(lines)), Root: root(lines)}
}

// hashesOf gives the stored hashes of lines, for the library to prove with.
func hashesOf(t interface{ Fatal(...any) }, lines []string) tlog.HashReader {
	var stored []merkle.Hash
	read := tlog.HashReaderFunc(func(indexes []int64) ([]merkle.Hash, error) {
		var out []merkle.Hash
		for _, i := range indexes {
			out = append(out, stored[i])
		}
		return out, nil
	})
	for n, line := range lines {
		h, err := tlog.StoredHashes(int64(n), []byte(line), read)
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, h...)
	}
	return read
}

func inclusion(t interface{ Fatal(...any) }, lines []string, n int) merkle.Inclusion {
	p, err := tlog.ProveRecord(int64(len(lines)), int64(n), hashesOf(t, lines))
	if err != nil {
		t.Fatal(err)
	}
	return merkle.Inclusion{Index: int64(n), Size: int64(len(lines)), Hashes: p}
}

func consistency(t interface{ Fatal(...any) }, from int, lines []string) merkle.Consistency {
	c := merkle.Consistency{From: int64(from), To: int64(len(lines))}
	if from == 0 {
		return c
	}
	p, err := tlog.ProveTree(c.To, c.From, hashesOf(t, lines))
	if err != nil {
		t.Fatal(err)
	}
	c.Hashes = p
	return c
}

func anyLines() *rapid.Generator[[]string] {
	return rapid.SliceOfN(rapid.StringN(1, 20, 20), 1, 40)
}

// Every line of every ledger is proven, and no other, not even elsewhere.
func TestInclusion(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		lines := anyLines().Draw(r, "lines")
		n := rapid.IntRange(0, len(lines)-1).Draw(r, "n")
		c, p := at(lines), inclusion(r, lines, n)
		if err := merkle.VerifyInclusion(c, []byte(lines[n]), p); err != nil {
			r.Fatal(err)
		}
		if err := merkle.VerifyInclusion(c, []byte(lines[n]+" "), p); !errors.Is(err, merkle.ErrNotIncluded) {
			r.Fatalf("another line: %v", err)
		}
		altered := append([]string(nil), lines...)
		k := rapid.IntRange(0, len(lines)-1).Draw(r, "altered")
		altered[k] += "x"
		if err := merkle.VerifyInclusion(at(altered), []byte(lines[n]), p); !errors.Is(err, merkle.ErrNotIncluded) {
			r.Fatalf("in a ledger with another line %d: %v", k, err)
		}
		if len(p.Hashes) > 0 {
			i, bit := rapid.IntRange(0, len(p.Hashes)-1).Draw(r, "hash"), rapid.IntRange(0, 255).Draw(r, "bit")
			p.Hashes[i][bit/8] ^= 1 << (bit % 8)
			if err := merkle.VerifyInclusion(c, []byte(lines[n]), p); !errors.Is(err, merkle.ErrNotIncluded) {
				r.Fatalf("with another hash: %v", err)
			}
			p.Hashes = p.Hashes[:len(p.Hashes)-1]
			if err := merkle.VerifyInclusion(c, []byte(lines[n]), p); !errors.Is(err, merkle.ErrNotIncluded) {
				r.Fatalf("with a hash too few: %v", err)
			}
		}
	})
}

// Every prefix is consistent with every extension; a past in which a line was
// changed, removed, put in or moved is not.
func TestConsistency(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		lines := anyLines().Draw(r, "lines")
		from := rapid.IntRange(0, len(lines)).Draw(r, "from")
		older, newer := at(lines[:from]), at(lines)
		if err := merkle.VerifyConsistency(older, newer, consistency(r, from, lines)); err != nil {
			r.Fatal(err)
		}
		if from == 0 {
			return
		}
		k := rapid.IntRange(0, from-1).Draw(r, "k")
		for name, past := range map[string][]string{
			"changed": append(append(append([]string(nil), lines[:k]...), lines[k]+"x"), lines[k+1:]...),
			"removed": append(append(append([]string(nil), lines[:k]...), lines[k+1:]...), "new", "newer"),
			"put in":  append(append(append([]string(nil), lines[:k]...), lines[k]+"x"), lines[k:]...),
		} {
			if len(past) < from || root(past[:from]) == older.Root {
				continue // removed what stood twice in a row
			}
			if err := merkle.VerifyConsistency(older, at(past), consistency(r, from, past)); !errors.Is(err, merkle.ErrForked) {
				r.Fatalf("line %d %s: %v", k, name, err)
			}
		}
	})
}

func TestWhatAProofIsNot(t *testing.T) {
	lines := strings.Fields("a b c d e f g")
	c := at(lines)
	p := inclusion(t, lines, 3)
	for name, change := range map[string]func(p *merkle.Inclusion){
		"another size":    func(p *merkle.Inclusion) { p.Size = 6 },
		"negative index":  func(p *merkle.Inclusion) { p.Index = -1 },
		"index past size": func(p *merkle.Inclusion) { p.Index = 7 },
		"endless":         func(p *merkle.Inclusion) { p.Hashes = make([]merkle.Hash, 1000) },
	} {
		q := p
		change(&q)
		if err := merkle.VerifyInclusion(c, []byte("d"), q); !errors.Is(err, merkle.ErrProof) {
			t.Errorf("%s: %v", name, err)
		}
	}
	other := at(strings.Fields("a b c d e f h"))
	foreign := c
	foreign.Origin = "other"
	k := consistency(t, 4, lines)
	for name, v := range map[string]struct {
		older, newer merkle.Checkpoint
		p            merkle.Consistency
		want         error
	}{
		"shortened":            {c, at(lines[:5]), k, merkle.ErrShortened},
		"two roots":            {c, other, k, merkle.ErrForked},
		"two origins":          {at(lines[:4]), foreign, k, merkle.ErrCheckpoint},
		"of other checkpoints": {at(lines[:5]), c, k, merkle.ErrProof},
		"none":                 {at(lines[:4]), c, merkle.Consistency{}, merkle.ErrProof},
		"empty":                {at(lines[:4]), c, merkle.Consistency{From: 4, To: 7}, merkle.ErrForked},
		"endless":              {at(lines[:4]), c, merkle.Consistency{From: 4, To: 7, Hashes: make([]merkle.Hash, 1000)}, merkle.ErrProof},
		"the same":             {c, c, merkle.Consistency{}, nil},
		"from nothing":         {at(nil), c, merkle.Consistency{}, nil},
	} {
		if err := merkle.VerifyConsistency(v.older, v.newer, v.p); !errors.Is(err, v.want) {
			t.Errorf("%s: %v, want %v", name, err, v.want)
		}
	}
}

// The signed text and the proofs have fixed bytes.
func TestGolden(t *testing.T) {
	lines := strings.Fields("a b c d e")
	signed, err := at(lines).Sign(keyOf(1))
	if err != nil {
		t.Fatal(err)
	}
	in, err1 := json.Marshal(inclusion(t, lines, 2))
	con, err2 := json.Marshal(consistency(t, 3, lines))
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%s\n%s\n%s\n", signed, in, con)
	if *update {
		if err := os.WriteFile("testdata/golden.txt", []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile("testdata/golden.txt")
	if err != nil || string(want) != got {
		t.Errorf("%v: got\n%s", err, got)
	}
	c, err := merkle.OpenCheckpoint(signed, origin, public(9), public(1))
	if err != nil || c != at(lines) {
		t.Errorf("opened as %+v: %v", c, err)
	}
	var p merkle.Inclusion
	if err := json.Unmarshal(in, &p); err != nil || merkle.VerifyInclusion(c, []byte("c"), p) != nil {
		t.Errorf("the proof in JSON: %v", err)
	}
}

func TestCheckpointsThatAreRefused(t *testing.T) {
	good, err := at(strings.Fields("a b")).Sign(keyOf(1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := merkle.OpenCheckpoint(good, "other", public(1)); !errors.Is(err, merkle.ErrSignature) {
		t.Errorf("of another origin: %v", err)
	}
	if _, err := merkle.OpenCheckpoint(good, origin, public(2)); !errors.Is(err, merkle.ErrSignature) {
		t.Errorf("by another key: %v", err)
	}
	if _, err := merkle.OpenCheckpoint(good, origin); !errors.Is(err, merkle.ErrSignature) {
		t.Errorf("no key: %v", err)
	}
	if _, err := merkle.OpenCheckpoint(append(good, make([]byte, merkle.MaxCheckpoint)...), origin, public(1)); !errors.Is(err, merkle.ErrCheckpoint) {
		t.Errorf("far too long: %v", err)
	}
	for i := range good {
		changed := bytes.Clone(good)
		changed[i] ^= 1
		if _, err := merkle.OpenCheckpoint(changed, origin, public(1)); err == nil {
			t.Errorf("byte %d changed: accepted %q", i, changed)
		}
	}
	// Signed, and still not a checkpoint.
	empty := merkle.Empty().String()
	for _, text := range []string{
		origin + "\n2\n", origin + "\n02\n" + empty + "\n", origin + "\n-1\n" + empty + "\n", origin + "\n+1\n" + empty + "\n",
		origin + "\n2\nAAAA\n", origin + "\n2\n" + empty + "\nmore\n", "other\n2\n" + empty + "\n", origin + "\n99999999999999999999\n" + empty + "\n",
		origin + "\n0\nAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n", origin + "\n2\n" + strings.TrimRight(empty, "=") + "\n",
	} {
		if _, err := merkle.OpenCheckpoint(merkle.SignText(t, text, origin, keyOf(1)), origin, public(1)); !errors.Is(err, merkle.ErrCheckpoint) {
			t.Errorf("%q: %v", text, err)
		}
	}
	for _, name := range []string{"", "with blank", "with+plus", "é", strings.Repeat("x", 300)} {
		if _, err := (merkle.Checkpoint{Origin: name}).Sign(keyOf(1)); !errors.Is(err, merkle.ErrCheckpoint) {
			t.Errorf("origin %q: %v", name, err)
		}
	}
}

// What is accepted is what would be signed.
func FuzzCheckpoint(f *testing.F) {
	f.Add(origin + "\n2\n" + merkle.Empty().String() + "\n")
	f.Add(origin + "\n0\n47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=\n")
	f.Fuzz(func(t *testing.T, text string) {
		_, _ = merkle.OpenCheckpoint([]byte(text), origin, public(1))
		c, err := merkle.Parse(text)
		if err == nil && merkle.Text(c) != text {
			t.Errorf("%q is written as %q", text, merkle.Text(c))
		}
	})
}
