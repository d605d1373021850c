package audit

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/merkle"
	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/daemon/authority"
)

const origin = "chordwheel/m/ledger"

// tree is a ledger in memory.
type tree struct {
	t      *testing.T
	key    ed25519.PrivateKey
	lines  [][]byte
	hashes []tlog.Hash
}

func (l *tree) add(line []byte) {
	all, err := tlog.StoredHashes(int64(len(l.lines)), line, tlog.HashReaderFunc(l.read))
	if err != nil {
		l.t.Fatal(err)
	}
	l.lines, l.hashes = append(l.lines, line), append(l.hashes, all...)
}

func (l *tree) read(indexes []int64) (out []tlog.Hash, err error) {
	for _, i := range indexes {
		out = append(out, l.hashes[i])
	}
	return out, nil
}

func (l *tree) signed(size int64) []byte {
	root, err := tlog.TreeHash(size, tlog.HashReaderFunc(l.read))
	if err != nil {
		l.t.Fatal(err)
	}
	b, err := merkle.Checkpoint{Origin: origin, Size: size, Root: root}.Sign(l.key)
	if err != nil {
		l.t.Fatal(err)
	}
	return b
}

func (l *tree) proven(i, size int64) []byte {
	p, err := tlog.ProveRecord(size, i, tlog.HashReaderFunc(l.read))
	if err != nil {
		l.t.Fatal(err)
	}
	b, _ := json.Marshal(receipt.Proven{Receipt: l.lines[i], Checkpoint: string(l.signed(size)), Inclusion: merkle.Inclusion{Index: i, Size: size, Hashes: p}})
	return b
}

func (l *tree) growth(from, to int64) *merkle.Consistency {
	p, err := tlog.ProveTree(to, from, tlog.HashReaderFunc(l.read))
	if err != nil {
		l.t.Fatal(err)
	}
	return &merkle.Consistency{From: from, To: to, Hashes: p}
}

func newTree(t *testing.T, n int, status receipt.Status) (*tree, *Auditor) {
	t.Helper()
	key := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, 32))
	seeker, err := chain.NewKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	l := &tree{t: t, key: key}
	for i := range n {
		id := fmt.Sprintf("T%d", i)
		s, err := receipt.Receipt{TransactionID: id, MessageID: receipt.MessageID(id, receipt.RoleRoot), SeekerDID: seeker.PeerID().DID(), Capability: "llm.chat",
			RequestHash: receipt.OutputHash([]byte("1")), ResponseHash: receipt.OutputHash([]byte("2")), RequestAt: time.Now(), ResponseAt: time.Now(), Status: status}.Sign(seeker)
		if err != nil {
			t.Fatal(err)
		}
		l.add(s.Line)
	}
	return l, &Auditor{Origin: origin, Key: key.Public().(ed25519.PublicKey), Resolve: func(_ context.Context, did string) ([]ed25519.PublicKey, error) {
		public, err := chain.ParseDIDKey(did)
		return []ed25519.PublicKey{public}, err
	}}
}

// Everything that can be altered in a file is named when it was.
func TestAFileIsCheckedOffline(t *testing.T) {
	l, a := newTree(t, 9, receipt.OK)
	other, _ := newTree(t, 9, receipt.Rejected) // the same key, another past
	replaced := func(b []byte, from, to string) []byte { return []byte(strings.Replace(string(b), from, to, 1)) }
	good := l.proven(3, 9)
	for name, c := range map[string]struct {
		file  []byte
		seen  Seen
		wrong string
	}{
		"as exported":               {good, Seen{}, ""},
		"a receipt alone":           {l.lines[3], Seen{}, ""},
		"grown since":               {good, Seen{l.signed(5), l.growth(5, 9)}, ""},
		"seen later than exported":  {l.proven(3, 5), Seen{l.signed(9), l.growth(5, 9)}, ""},
		"no receipt":                {[]byte(`{"a":1}`), Seen{}, "not a receipt"},
		"no JSON":                   {[]byte(`{`), Seen{}, "not a receipt"},
		"a status altered":          {replaced(good, `"status":"ok"`, `"status":"rejected"`), Seen{}, "signature does not fit"},
		"another line's proof":      {replaced(good, string(l.lines[3]), string(l.lines[4])), Seen{}, "not in the ledger"},
		"another index":             {replaced(good, `"index":3`, `"index":2`), Seen{}, "not in the ledger"},
		"another size":              {replaced(good, `"size":9`, `"size":8`), Seen{}, "not a proof of that"},
		"a checkpoint altered":      {replaced(good, `ledger\n9\n`, `ledger\n8\n`), Seen{}, "not signed"},
		"another ledger's name":     {replaced(good, `chordwheel/m/ledger\n9`, `chordwheel/n/ledger\n9`), Seen{}, "not"},
		"without its checkpoint":    {replaced(good, `"checkpoint"`, `"checkpoints"`), Seen{}, "no checkpoint"},
		"a forked ledger":           {good, Seen{other.signed(5), l.growth(5, 9)}, "forked"},
		"forked at the same size":   {good, Seen{other.signed(9), nil}, "forked"},
		"a proof of another growth": {good, Seen{l.signed(5), l.growth(4, 9)}, "not a proof of that"},
		"a seen one that is none":   {good, Seen{[]byte("x"), nil}, "seen before"},
	} {
		f, err := a.Check(t.Context(), c.file, c.seen)
		if err != nil || f.OK != (c.wrong == "") || !strings.Contains(f.Wrong(), c.wrong) {
			t.Errorf("%s: %+v, %v", name, f, err)
		}
	}
}

// With a ledger at hand, what a file lacks is asked for, and believed no more.
func TestAReceiptIsLookedUpInTheLedger(t *testing.T) {
	l, a := newTree(t, 9, receipt.OK)
	short := false
	a.Ledger = ledgerThat(t, func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasPrefix(r.URL.Path, "/audit/v1/proofs/T3/"):
			_, _ = w.Write(l.proven(3, 9))
		case r.URL.Path == "/audit/v1/consistency" && !short:
			_ = json.NewEncoder(w).Encode(l.growth(5, 9))
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	})
	f, err := a.Check(t.Context(), l.lines[3], Seen{Checkpoint: l.signed(5)})
	if err != nil || !f.OK || f.Index != 3 || f.Size != 9 || f.Consistency != "ok" || len(f.Checkpoint) == 0 {
		t.Errorf("%+v, %v", f, err)
	}
	if f, err := a.Check(t.Context(), l.lines[4], Seen{}); err != nil || f.OK || !strings.Contains(f.Wrong(), "does not have it") {
		t.Errorf("one that it lacks: %+v, %v", f, err)
	}
	short = true
	if f, err := a.Check(t.Context(), l.lines[3], Seen{Checkpoint: l.signed(5)}); err != nil || !strings.Contains(f.Wrong(), "shortened") {
		t.Errorf("a ledger that does not know what it signed: %+v, %v", f, err)
	}
	a.Ledger = New(authority.Follow(func() (authority.Target, error) { return authority.Target{}, errors.New("nowhere") }))
	if f, err := a.Check(t.Context(), l.lines[3], Seen{}); err == nil || f.OK {
		t.Errorf("nobody could be asked: %+v", f)
	}
}
