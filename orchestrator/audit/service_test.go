package audit_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/merkle"
	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/did"
	"github.com/chordwheel/chordwheel/orchestrator/audit"
	"github.com/chordwheel/chordwheel/orchestrator/authority"
)

// disk is a storage and its files in memory.
type disk struct {
	mu      sync.Mutex
	records map[string][]byte
	files   map[string][]byte
}

func (d *disk) Get(key string) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.records[key], nil
}

func (d *disk) Put(records map[string][]byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.Copy(d.records, records)
	return nil
}

func (d *disk) ReadChecked(name string) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if b, ok := d.files[name]; ok {
		return b, nil
	}
	return nil, fs.ErrNotExist
}

func (d *disk) WriteChecked(name string, b []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files[name] = bytes.Clone(b)
	return nil
}

const (
	mesh  = "m1"
	token = chain.Secret("read-all")
)

type bench struct {
	*testing.T
	disk    *disk
	hub     chain.Key
	seeker  chain.Key
	service *audit.Service
	mux     *authority.Mux
	token   string // that calls show
	log     *slog.Logger

	old  bool      // what did:webvh:rotated is resolved to is from before its key changed
	asOf time.Time // when it was fetched anew, if that was a moment ago
}

func newKey(t *testing.T) chain.Key {
	key, err := chain.NewKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newBench(t *testing.T) *bench {
	b := &bench{T: t, disk: &disk{records: map[string][]byte{}, files: map[string][]byte{}}, hub: newKey(t), seeker: newKey(t), token: token.Reveal()}
	if err := b.open(); err != nil {
		t.Fatal(err)
	}
	return b
}

func (b *bench) open() (err error) {
	b.service, err = audit.New(audit.Config{Key: b.hub, Mesh: mesh, Log: b.log, Storage: b.disk, Files: b.disk,
		Resolve: func(ctx context.Context, name string) ([]ed25519.PublicKey, error) {
			if strings.HasSuffix(name, "rotated") {
				public, err := b.seeker.PeerID().Public()
				if b.old {
					public, err = b.hub.PeerID().Public()
				}
				return []ed25519.PublicKey{public}, err
			}
			if strings.HasSuffix(name, "away") {
				return nil, errors.New("no route")
			}
			r, err := did.Resolve(ctx, nil, name, did.Want{}, time.Now())
			return r.Keys(did.Assertion), err
		}, Doubt: func(string) (bool, time.Time) {
			again := b.asOf.IsZero()
			b.old = b.old && !again
			return again, b.asOf
		}, Token: token, Admit: func(_ context.Context, got *receipt.Signed) error {
			switch signer := got.Signer(); {
			case strings.HasSuffix(signer, "stranger"):
				return fmt.Errorf("%w: nobody", audit.ErrSender)
			case strings.HasSuffix(signer, "unknown"):
				return errors.New("the hub starts")
			}
			return nil
		}})
	b.mux = authority.NewMux(b.service.Routes()...)
	return err
}

func (b *bench) receipt(transaction string, change func(*receipt.Receipt)) receipt.Signed {
	r := receipt.Receipt{TransactionID: transaction, MessageID: receipt.MessageID(transaction, receipt.RoleRoot), SeekerDID: b.seeker.PeerID().DID(), Capability: "llm.chat",
		RequestHash: receipt.OutputHash([]byte("1")), ResponseHash: receipt.OutputHash([]byte("2")), RequestAt: time.Now(), ResponseAt: time.Now(), Status: receipt.OK}
	if change != nil {
		change(&r)
	}
	s, err := r.Sign(b.seeker)
	if err != nil {
		b.Fatal(err)
	}
	return s
}

func (b *bench) call(method, path string, body []byte) (int, []byte) {
	r := httptest.NewRequest(method, path, bytes.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+b.token)
	w := httptest.NewRecorder()
	b.mux.ServeHTTP(w, r)
	got, _ := io.ReadAll(w.Body)
	return w.Code, got
}

func (b *bench) post(line []byte) (int, string) {
	status, body := b.call(http.MethodPost, "/audit/v1/receipts", line)
	var no struct {
		Error struct{ Code string }
	}
	_ = json.Unmarshal(body, &no)
	return status, no.Error.Code
}

func TestIntake(t *testing.T) {
	b := newBench(t)
	first := b.receipt("t1", nil)
	forged := bytes.Replace(first.Line, []byte(`"status":"ok"`), []byte(`"status":"rejected"`), 1)
	var spaced bytes.Buffer
	_ = json.Indent(&spaced, first.Line, "", "  ")
	for _, c := range []struct {
		name   string
		line   []byte
		status int
		code   string
	}{
		{"a receipt", first.Line, 202, ""},
		{"the same again", first.Line, 202, ""},
		{"the same in another spelling", spaced.Bytes(), 202, ""},
		{"another under its ID", b.receipt("t1", func(r *receipt.Receipt) { r.Status = receipt.UpstreamError }).Line, 409, "conflict"},
		{"altered", forged, 400, "invalid_request"},
		{"no receipt", []byte(`{}`), 400, "invalid_request"},
		{"no JSON", []byte(`{`), 400, "invalid_request"},
		{"from the future", b.receipt("t2", func(r *receipt.Receipt) { r.ResponseAt = r.ResponseAt.Add(2 * time.Minute) }).Line, 425, "too_early"},
		{"from a far future", b.receipt("t2", func(r *receipt.Receipt) { r.RequestAt = r.RequestAt.Add(2 * time.Hour) }).Line, 400, "invalid_request"},
		{"of a DID that is none", b.receipt("t3", func(r *receipt.Receipt) { r.SeekerDID = "did:web:example.com" }).Line, 400, "invalid_did"},
		{"of a DID out of reach", b.receipt("t4", func(r *receipt.Receipt) { r.SeekerDID = "did:webvh:away" }).Line, 502, "unresolvable_did"},
		{"of a stranger", b.receipt("t5", func(r *receipt.Receipt) { r.SeekerDID = "did:webvh:stranger" }).Line, 403, "unknown_sender"},
		{"of whom nobody knows now", b.receipt("t6", func(r *receipt.Receipt) { r.SeekerDID = "did:webvh:unknown" }).Line, 500, "internal_error"},
		{"too long", append(bytes.Repeat([]byte(" "), receipt.MaxReceipt), first.Line...), 413, "request_too_large"},
	} {
		if status, code := b.post(c.line); status != c.status || code != c.code {
			t.Errorf("%s: %d %s, want %d %s", c.name, status, code, c.status, c.code)
		}
	}
	if n := b.service.Size(); n != 1 {
		t.Errorf("%d lines, want 1", n)
	}
}

// A device that was given another key signs with it at once, while the ledger remembers the
// document of before: its receipts wait for a newer one, and are not called wrong by the old.
func TestAReceiptByAKeyThatIsNew(t *testing.T) {
	b := newBench(t)
	line := func(transaction string) []byte {
		return b.receipt(transaction, func(r *receipt.Receipt) { r.SeekerDID = "did:webvh:rotated" }).Line
	}
	b.old = true
	if status, code := b.post(line("t1")); status != 202 || b.old {
		t.Errorf("%d %s", status, code)
	}
	b.old, b.asOf = true, time.Now().Add(-time.Minute)
	if status, code := b.post(line("t2")); status != 502 || code != "unresolvable_did" {
		t.Errorf("%d %s", status, code)
	}
	b.asOf = time.Time{}
	if status, code := b.post(line("t2")); status != 202 {
		t.Errorf("%d %s", status, code)
	}
	if status, code := b.post(bytes.Replace(line("t3"), []byte(`"status":"ok"`), []byte(`"status":"rejected"`), 1)); status != 400 || code != "invalid_request" {
		t.Errorf("%d %s", status, code)
	}
	b.old, b.asOf = true, time.Now().Add(time.Minute) // fetched after the receipt was made: it knows the key, or there is none
	if status, code := b.post(line("t4")); status != 400 || code != "invalid_request" {
		t.Errorf("%d %s", status, code)
	}
	if n := b.service.Size(); n != 2 {
		t.Errorf("%d lines", n)
	}
}

// A receipt of a device whose clock is ahead is not lost: it is taken when it is due.
func TestAReceiptThatIsEarlyComesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		line := b.receipt("t1", func(r *receipt.Receipt) {
			r.RequestAt, r.ResponseAt = r.RequestAt.Add(10*time.Minute), r.ResponseAt.Add(10*time.Minute)
		}).Line
		r := httptest.NewRequest(http.MethodPost, "/audit/v1/receipts", bytes.NewReader(line))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		b.mux.ServeHTTP(w, r)
		after, err := strconv.Atoi(w.Header().Get("Retry-After"))
		if w.Code != 425 || err != nil || after < 530 || after > 545 {
			t.Fatalf("%d %s, Retry-After %q", w.Code, w.Body, w.Header().Get("Retry-After"))
		}
		time.Sleep(time.Duration(after) * time.Second)
		if status, code := b.post(line); status != 202 {
			t.Errorf("%d %s", status, code)
		}
	})
}

// A hundred at once: one row, a hundred equal answers.
func TestTheSameReceiptAtOnce(t *testing.T) {
	b := newBench(t)
	line := b.receipt("t1", nil).Line
	var group sync.WaitGroup
	for range 100 {
		group.Go(func() {
			if status, _ := b.post(line); status != 202 {
				t.Errorf("status %d", status)
			}
		})
	}
	group.Wait()
	if b.service.Size() != 1 {
		t.Errorf("%d lines", b.service.Size())
	}
}

// What the service hands out is enough to check it without a network.
func TestProofs(t *testing.T) {
	b := newBench(t)
	public, _ := b.hub.PeerID().Public()
	var before merkle.Checkpoint
	for i := range 20 {
		s := b.receipt(fmt.Sprintf("t%d", i), nil)
		if status, code := b.post(s.Line); status != 202 {
			t.Fatal(status, code)
		}
		status, body := b.call(http.MethodGet, "/audit/v1/receipts/"+s.TransactionID+"/"+s.MessageID, nil)
		p, got, err := receipt.ParseProven(body)
		if status != 200 || err != nil || !bytes.Equal(got.Line, s.Line) {
			t.Fatalf("%d %s, %v", status, body, err)
		}
		c, err := p.Verify(&got, merkle.Origin(mesh), public)
		if err != nil {
			t.Fatal(err)
		}
		other := b.receipt("other", nil)
		if _, err := p.Verify(&other, merkle.Origin(mesh), public); !errors.Is(err, merkle.ErrNotIncluded) {
			t.Errorf("a receipt that is not in it: %v", err)
		}
		if i > 0 {
			_, body = b.call(http.MethodGet, fmt.Sprintf("/audit/v1/consistency?from=%d&to=%d", before.Size, c.Size), nil)
			var proof merkle.Consistency
			if err := errors.Join(json.Unmarshal(body, &proof), merkle.VerifyConsistency(before, c, proof)); err != nil {
				t.Errorf("%s: %v", body, err)
			}
		}
		before = c
	}
	if status, body := b.call(http.MethodGet, "/audit/v1/tile/0/000.p/20", nil); status != 200 || len(body) != 20*32 {
		t.Errorf("a tile: %d, %d bytes", status, len(body))
	}
	for path, want := range map[string]int{"/audit/v1/receipts/x/y": 404, "/audit/v1/receipts/x": 404, "/audit/v1/inclusion?index=99&size=1": 404,
		"/audit/v1/inclusion?index=x": 400, "/audit/v1/consistency?from=-1&to=1": 400, "/audit/v1/tile/9/x": 404, "/audit/v1/key": 200, "/audit/v1/": 404} {
		if status, body := b.call(http.MethodGet, path, nil); status != want {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}

// A ledger that lost lines which it has signed for does not go on: it would show
// everybody another past.
func TestALostDatabaseIsNoticed(t *testing.T) {
	b := newBench(t)
	for i := range 3 {
		b.post(b.receipt(fmt.Sprintf("t%d", i), nil).Line)
	}
	if err := b.service.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.open(); err != nil {
		t.Errorf("a whole one: %v", err)
	}
	b.disk.records = map[string][]byte{}
	if err := b.open(); !errors.Is(err, merkle.ErrShortened) {
		t.Errorf("a lost one: %v", err)
	}
	if status, code := b.post(b.receipt("t9", nil).Line); status != 500 || code != "internal_error" {
		t.Errorf("it took a receipt: %d %s", status, code)
	}
}

// Who has a receipt may have it proven; who has none gets none without the token.
func TestReceiptsAreForAuditors(t *testing.T) {
	b := newBench(t)
	s := b.receipt("t1", nil)
	if status, code := b.post(s.Line); status != 202 {
		t.Fatal(status, code)
	}
	id := s.TransactionID + "/" + s.MessageID
	entries := []string{"/audit/v1/receipts/" + id, "/audit/v1/tile/entries/000.p/1"}
	open := []string{"/audit/v1/proofs/" + id, "/audit/v1/checkpoint", "/audit/v1/tile/0/000.p/1", "/audit/v1/inclusion?index=0&size=1", "/audit/v1/consistency?from=0&to=1", "/audit/v1/key"}
	for _, shown := range []string{"", "read-al", "read-all "} {
		b.token = shown
		for _, path := range entries {
			if status, body := b.call(http.MethodGet, path, nil); status != 401 || bytes.Contains(body, []byte(s.SeekerDID)) || !bytes.Contains(body, []byte(`"unauthorized"`)) {
				t.Errorf("%s with %q: %d %s", path, shown, status, body)
			}
		}
		for _, path := range open {
			if status, body := b.call(http.MethodGet, path, nil); status != 200 || bytes.Contains(body, []byte(s.SeekerDID)) {
				t.Errorf("%s with %q: %d %s", path, shown, status, body)
			}
		}
	}
	b.token = token.Reveal()
	for _, path := range append(entries, open...) {
		if status, body := b.call(http.MethodGet, path, nil); status != 200 {
			t.Errorf("%s with the token: %d %s", path, status, body)
		}
	}
	_, body := b.call(http.MethodGet, "/audit/v1/proofs/"+id, nil)
	var p receipt.Proven
	if err := json.Unmarshal(body, &p); err != nil {
		t.Fatal(err)
	}
	public, _ := b.hub.PeerID().Public()
	if _, err := p.Verify(&s, merkle.Origin(mesh), public); err != nil {
		t.Errorf("the proof of a receipt that one has: %v", err)
	}
}

// A sender that floods waits, and others do not; who is refused too often is not
// listened to for a while.
func TestWhoSendsTooMuchWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.service.SetBurst(150)
		line := b.receipt("t1", nil).Line
		tooMany := func(line []byte) (status, taken int) {
			for {
				if status, _ := b.post(line); status == 429 || taken > 10_000 {
					return status, taken
				}
				taken++
			}
		}
		if status, taken := tooMany(line); status != 429 || taken != 150 {
			t.Errorf("one sender's: %d after %d", status, taken)
		}
		other := b.receipt("t2", nil)
		b.seeker = newKey(t)
		if status, code := b.post(b.receipt("t3", nil).Line); status != 202 {
			t.Errorf("another sender: %d %s", status, code)
		}
		time.Sleep(time.Second)
		if status, _ := b.post(other.Line); status != 202 {
			t.Errorf("a second later: %d", status)
		}

		if status, taken := tooMany([]byte(`{}`)); status != 429 || taken != 120 {
			t.Errorf("what is no receipt: %d after %d", status, taken)
		}
		if status, _ := b.post(other.Line); status != 429 {
			t.Errorf("from an address of which too much was refused: %d", status)
		}
		time.Sleep(time.Second)
		if status, _ := b.post(other.Line); status != 202 {
			t.Errorf("from there, a second later: %d", status)
		}

		time.Sleep(time.Minute)
		b.old, b.asOf = true, time.Now().Add(-time.Second)
		forged := b.receipt("t4", func(r *receipt.Receipt) { r.SeekerDID = "did:webvh:rotated" }).Line
		if status, taken := tooMany(forged); status != 429 || taken != 120 {
			t.Errorf("what another key signed, by a document that may be old: %d after %d", status, taken)
		}
	})
}

// A device that had a part in another's request knows under which IDs the other's
// receipts come. It cannot take their place.
func TestNobodyTakesAnothersPlace(t *testing.T) {
	b := newBench(t)
	root := b.receipt("t1", nil)
	honest := b.seeker
	b.seeker = newKey(t) // the quicker one
	squatter := b.receipt("t1", func(r *receipt.Receipt) { r.ResponseHash = receipt.OutputHash([]byte("nothing of the sort")) })
	second := b.receipt("t1", func(r *receipt.Receipt) { r.ResponseHash = receipt.OutputHash([]byte("another")) })
	b.seeker = honest
	altered := b.receipt("t1", func(r *receipt.Receipt) { r.Status = receipt.Rejected })
	for i, c := range []struct {
		s      receipt.Signed
		status int
	}{{squatter, 202}, {root, 202}, {root, 202}, {squatter, 202}, {second, 409}, {altered, 409}} {
		if status, body := b.post(c.s.Line); status != c.status {
			t.Errorf("%d: %d %s, want %d", i, status, body, c.status)
		}
	}
	if n := b.service.Size(); n != 2 {
		t.Errorf("%d receipts in the ledger, want 2", n)
	}
	for _, s := range []receipt.Signed{squatter, root} {
		for _, route := range []string{"proofs", "receipts"} {
			status, body := b.call(http.MethodGet, "/audit/v1/"+route+"/t1/"+s.MessageID+"?signer="+s.Signer(), nil)
			var p receipt.Proven
			if err := json.Unmarshal(body, &p); err != nil || status != 200 {
				t.Fatalf("%d %s", status, body)
			}
			p.Receipt = s.Line
			public, err := b.hub.PeerID().Public()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Verify(&s, merkle.Origin(mesh), public); err != nil {
				t.Errorf("%s of %s: %v", route, s.Signer(), err)
			}
		}
	}
	if status, _ := b.call(http.MethodGet, "/audit/v1/proofs/t1/"+root.MessageID+"?signer="+b.hub.DID(), nil); status != 404 {
		t.Errorf("a receipt of nobody: %d", status)
	}
}
