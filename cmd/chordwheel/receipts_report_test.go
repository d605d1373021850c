package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/daemon/audit"
	"github.com/chordwheel/chordwheel/daemon/authority"
	"github.com/chordwheel/chordwheel/orchestrator"
	"github.com/chordwheel/chordwheel/store/datadir"
	"github.com/chordwheel/chordwheel/store/spool"
)

// usedBy is the receipt of a request of key's device by a token.
func usedBy(t *testing.T, key chain.Key, transaction, token string) receipt.Receipt {
	t.Helper()
	now := time.Now()
	return receipt.Receipt{TransactionID: transaction, MessageID: receipt.MessageID(transaction, receipt.RoleRoot), SeekerDID: key.DID(), Capability: "llm.chat",
		RequestHash: receipt.OutputHash([]byte("1")), ResponseHash: receipt.OutputHash([]byte("2")), TokenID: token, RequestAt: now, ResponseAt: now, Status: receipt.OK}
}

// ran is the receipt of what agent ran for a device, by its token and a nonce.
func ran(t *testing.T, agent chain.Key, r receipt.Receipt, nonce string) receipt.Receipt {
	t.Helper()
	r.AgentDID, r.MessageID = agent.DID(), receipt.MessageID(r.TransactionID, receipt.RoleExec(nonce))
	says := receipt.Statement{TransactionID: r.TransactionID, Nonce: nonce, SeekerDID: r.SeekerDID, AgentDID: r.AgentDID, RequestHash: r.RequestHash, ResponseHash: r.ResponseHash, TokenID: r.TokenID}
	signature, err := says.Sign(agent)
	if err != nil {
		t.Fatal(err)
	}
	r.Executor = &receipt.Executor{Nonce: nonce, Signature: signature}
	return r
}

func signedBy(t *testing.T, key chain.Key, r receipt.Receipt) []byte {
	t.Helper()
	s, err := r.Sign(key)
	if err != nil {
		t.Fatal(err)
	}
	return s.Line
}

// reportOf runs `receipts report`.
func reportOf(t *testing.T, args ...string) (r report, stderr string, code int) {
	t.Helper()
	out, stderr, code := command(t, append([]string{"receipts", "report", "--json"}, args...)...)
	if out != "" {
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			t.Fatalf("%v: %q", err, out)
		}
	}
	return r, stderr, code
}

// An auditor finds in a file which tokens were used by two, by whose word; forged receipts
// accuse nobody.
func TestAFileOfReceiptsIsReportedOn(t *testing.T) {
	a, b := newKey(t), newKey(t)
	file := func(lines ...[]byte) string {
		name := filepath.Join(t.TempDir(), "receipts.jsonl")
		if err := os.WriteFile(name, append(bytes.Join(lines, []byte("\n")), '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	first, second := signedBy(t, a, usedBy(t, a, "t1", "jti-1")), signedBy(t, a, usedBy(t, a, "t2", "jti-1"))
	work := signedBy(t, b, ran(t, b, usedBy(t, a, "t3", "jti-1"), "nonce-1"))
	honest := file(first, second, work)
	if r, _, code := reportOf(t, "--offline", honest); code != 0 || r.Receipts != 3 || len(r.DoubleUses)+len(r.Unverified) != 0 {
		t.Errorf("what is honest: code %d, %+v", code, r)
	}
	if out := good(t, "receipts", "report", "--offline", honest); !strings.Contains(out, "3 receipts looked at: no token was used by two") {
		t.Errorf("%q", out)
	}
	stolen := signedBy(t, b, usedBy(t, b, "t4", "jti-1"))
	forged := bytes.Replace(stolen, []byte("jti-1"), []byte("jti-2"), 1)
	again := signedBy(t, b, ran(t, b, usedBy(t, a, "t5", "jti-1"), "nonce-1"))
	found := file(first, work, stolen, forged, again, second)
	r, said, code := reportOf(t, "--offline", found)
	if code != 1 || r.Receipts != 6 || len(r.DoubleUses) != 2 || len(r.Unverified) != 1 || r.Unverified[0].TransactionID != "t4" || r.Unverified[0].Number != 3 ||
		!strings.Contains(said, "2 double uses of tokens, and 1 receipt without a signature that holds") {
		t.Fatalf("code %d, %+v, %q", code, r, said)
	}
	two, twice := r.DoubleUses[0], r.DoubleUses[1]
	if two.Kind != receipt.TwoSeekers || two.TokenID != "jti-1" || len(two.Receipts) != 2 || two.Receipts[0].TransactionID != "t1" || two.Receipts[0].Seeker != a.DID() ||
		two.Receipts[1].TransactionID != "t4" || two.Receipts[1].Signer != b.DID() {
		t.Errorf("%+v", two)
	}
	if twice.Kind != receipt.NonceTwice || twice.Nonce != "nonce-1" || len(twice.Receipts) != 2 || twice.Receipts[0].TransactionID != "t3" || twice.Receipts[1].Number != 4 || twice.Receipts[1].Signer != b.DID() {
		t.Errorf("%+v", twice)
	}
	out, _, _ := command(t, "receipts", "report", "--offline", found)
	for _, want := range []string{"TWICE  token jti-1 was used by two devices", "TWICE  token jti-1 came twice with nonce nonce-1", "t4  seeker " + b.DID(), "WRONG  t4: the receipt's signature does not fit it", "6 receipts looked at, 1 of them without a signature that holds\n"} {
		if !strings.Contains(out, want) {
			t.Errorf("it does not say %q:\n%s", want, out)
		}
	}
	many := [][]byte{first}
	for range 2 * maxNamed {
		many = append(many, signedBy(t, b, usedBy(t, b, "t", "jti-1")), []byte("{}"))
	}
	if r, _, code := reportOf(t, "--offline", file(many...)); code != 1 || len(r.DoubleUses) != 1 || len(r.DoubleUses[0].Receipts) != maxNamed || r.DoubleUses[0].More != maxNamed+1 ||
		len(r.Unverified) != maxNamed || r.MoreWrong != maxNamed {
		t.Errorf("of many, some are named and all are counted: code %d, %d, %d and %d", code, len(r.DoubleUses), len(r.Unverified), r.MoreWrong)
	}
}

// A ledger is asked a second time for what a finding is of. What it shows then accuses nobody
// unless it is signed, and of the same token and nonce.
func TestALedgerThatLiesAccusesNobody(t *testing.T) {
	a, b, innocent := newKey(t), newKey(t), newKey(t)
	lines := [][]byte{signedBy(t, a, usedBy(t, a, "t1", "jti-1")), signedBy(t, b, usedBy(t, b, "t2", "jti-1")),
		signedBy(t, b, ran(t, b, usedBy(t, a, "t3", "jti-1"), "nonce-1")), signedBy(t, b, ran(t, b, usedBy(t, a, "t4", "jti-1"), "nonce-1"))}
	named := func(number int64, shown []byte) error {
		r := reporting{verification: verification{app: &app{}, offline: true}, found: map[string]*doubleUse{}, keys: map[string]resolved{}, uses: receipt.NewUses(10)}
		for i, line := range lines {
			r.look(t.Context(), int64(i), line)
		}
		if len(r.report.DoubleUses) != 2 || len(r.report.Unverified) != 0 {
			t.Fatalf("%+v", r.report)
		}
		last := int64(-1)
		return r.name(t.Context(), func(n int64) ([]byte, error) {
			if n < last {
				t.Errorf("asked for %d after %d", n, last)
			}
			if last = n; n == number {
				return shown, nil
			}
			return lines[n], nil
		})
	}
	if err := named(1, lines[1]); err != nil {
		t.Errorf("what it was: %v", err)
	}
	for name, c := range map[string]struct {
		number int64
		shown  []byte
	}{
		"what nobody signed":  {1, bytes.ReplaceAll(lines[1], []byte(b.DID()), []byte(innocent.DID()))},
		"of another token":    {1, signedBy(t, innocent, usedBy(t, innocent, "t5", "jti-2"))},
		"of another nonce":    {3, signedBy(t, innocent, ran(t, innocent, usedBy(t, a, "t5", "jti-1"), "nonce-2"))},
		"of a nonce: no peer": {3, lines[0]},
		"what is no receipt":  {0, []byte("{}")},
		"nothing at all":      {0, nil},
	} {
		if err := named(c.number, c.shown); !errors.Is(err, audit.ErrOther) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// However many tokens were used by two, a report of it stays of a size, and counts all.
func TestAReportOfManyTokens(t *testing.T) {
	r := reporting{found: map[string]*doubleUse{}, uses: receipt.NewUses(10)}
	for i := range int64(maxFound + 7) {
		for j, seeker := range []string{"did:key:a", "did:key:b"} {
			r.take(&receipt.Signed{Receipt: receipt.Receipt{SeekerDID: seeker, TokenID: fmt.Sprint(i)}}, 2*i+int64(j), nil)
		}
	}
	var out bytes.Buffer
	r.verification.app = &app{}
	r.tell(&out)
	if len(r.report.DoubleUses) != maxFound || r.report.MoreUses != 7 || !strings.Contains(out.String(), "7 receipts of more tokens") {
		t.Errorf("%d and %d", len(r.report.DoubleUses), r.report.MoreUses)
	}
}

// A token that two devices used is seen by the hub as their receipts come, and by an auditor
// who reads the whole ledger. Nobody else reads it.
func TestTheLedgerIsReportedOn(t *testing.T) {
	t.Setenv(ledgerToken, "read-all")
	dir := t.TempDir()
	p := start(t, "up", "--dir", dir, "--devices", "2")
	client, err := authority.New(p.ready.Hub.Authority, authority.Options{Transport: pinned(t, pinOf(t, p.ready.Hub.Authority))})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var keys []chain.Key
	for _, d := range p.ready.Devices {
		key, err := copied(t, d.DataDir, datadir.IdentityFile).Identity()
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, key)
	}
	device, ledger := p.ready.Devices[0].DataDir, audit.New(client)
	send := func(lines ...[]byte) {
		t.Helper()
		for _, line := range lines {
			if o := ledger.Send(t.Context(), line); o.Verdict != spool.Accepted {
				t.Fatalf("%+v", o)
			}
		}
	}
	uses := func() uint64 {
		t.Helper()
		var s orchestrator.Status
		if err := json.Unmarshal([]byte(good(t, "status", "--json", "--dir", filepath.Join(dir, "hub"))), &s); err != nil || s.Ledger == nil {
			t.Fatalf("%v: %+v", err, s.Ledger)
		}
		return s.Ledger.DoubleUses
	}
	send(signedBy(t, keys[0], usedBy(t, keys[0], "t1", "jti-1")), signedBy(t, keys[0], usedBy(t, keys[0], "t2", "jti-1")), signedBy(t, keys[1], ran(t, keys[1], usedBy(t, keys[0], "t3", "jti-1"), "nonce-1")))
	if r, said, code := reportOf(t, "--ledger", "--dir", device); code != 0 || r.Receipts != 3 || r.Ledger == nil || r.Ledger.Size != 3 || uses() != 0 {
		t.Errorf("what is honest: code %d %s, %+v", code, said, r)
	}
	send(signedBy(t, keys[1], usedBy(t, keys[1], "t4", "jti-1")))
	r, said, code := reportOf(t, "--ledger", "--dir", device)
	if code != 1 || len(r.DoubleUses) != 1 || len(r.Unverified) != 0 || r.DoubleUses[0].Kind != receipt.TwoSeekers || r.DoubleUses[0].Receipts[0].TransactionID != "t1" ||
		r.DoubleUses[0].Receipts[1].Signer != keys[1].DID() {
		t.Errorf("code %d %s, %+v", code, said, r)
	}
	if n := uses(); n != 1 {
		t.Errorf("the hub counts %d", n)
	}
	if out := good(t, "status", "--dir", filepath.Join(dir, "hub")); !strings.Contains(out, "4 in the ledger; 1 double use of tokens: chordwheel receipts report --ledger") {
		t.Errorf("%s", out)
	}
	for token, want := range map[string]struct {
		said string
		code int
	}{"another": {"CHORDWHEEL_LEDGER_TOKEN is not the hub's", 1}, "": {"set CHORDWHEEL_LEDGER_TOKEN", exitUsage}} {
		t.Setenv(ledgerToken, token)
		if r, said, code := reportOf(t, "--ledger", "--dir", device); code != want.code || r.Receipts != 0 || !strings.Contains(said, want.said) {
			t.Errorf("with %q: code %d, %q, %+v", token, code, said, r)
		}
	}
	if _, said, code := reportOf(t, "--ledger", "--offline", "--dir", device); code != exitUsage {
		t.Errorf("code %d, %q", code, said)
	}
}
