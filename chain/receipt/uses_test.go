package receipt

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
)

// party signs receipts.
type party struct {
	key    chain.Key
	public ed25519.PublicKey
}

func newParty(t testing.TB, n int) party {
	t.Helper()
	key := chaintest.Key(n)
	public, err := key.PeerID().Public()
	if err != nil {
		t.Fatal(err)
	}
	return party{key, public}
}

// receiptOf is p's receipt of its own request by a token.
func (p party) receiptOf(t testing.TB, transaction, token string, change func(*Receipt)) Signed {
	t.Helper()
	at := time.Date(2026, 5, 1, 10, 0, 0, 0, time.UTC)
	r := Receipt{TransactionID: transaction, MessageID: MessageID(transaction, RoleRoot), SeekerDID: p.key.DID(), Capability: "llm.chat",
		RequestHash: sha(transaction), ResponseHash: sha("answer"), TokenID: token, RequestAt: at, ResponseAt: at, Status: OK}
	if change != nil {
		change(&r)
	}
	s, err := r.Sign(p.key)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// by makes a receipt that of work which agent did, as the submitter has it.
func by(agent party, nonce string) func(*Receipt) {
	return func(r *Receipt) {
		r.AgentDID = agent.key.DID()
		r.Executor = &Executor{Nonce: nonce, Signature: base64.RawURLEncoding.EncodeToString(make([]byte, 64))}
	}
}

// runs is p's receipt of what it ran for a submitter.
func (p party) runs(t testing.TB, of party, transaction, token, nonce string, change func(*Receipt)) Signed {
	t.Helper()
	return p.receiptOf(t, transaction, token, func(r *Receipt) {
		by(p, nonce)(r)
		r.SeekerDID, r.MessageID = of.key.DID(), MessageID(transaction, RoleExec(nonce))
		if change != nil {
			change(r)
		}
	})
}

// What is one holder's use of its token is nothing; what cannot be is found, whatever comes
// first.
func TestTokensThatAreUsedByTwo(t *testing.T) {
	a, b, x, y := newParty(t, 1), newParty(t, 2), newParty(t, 3), newParty(t, 4)
	webvh := func(r *Receipt) { r.SeekerDID = "did:webvh:QmScid:example.com" }
	later := func(r *Receipt) { r.ResponseAt = r.ResponseAt.Add(time.Second) }
	for name, c := range map[string]struct {
		receipts []Signed
		want     []string
	}{
		"many requests by one token":                  {[]Signed{a.receiptOf(t, "t1", "k", nil), a.receiptOf(t, "t2", "k", nil), a.receiptOf(t, "t2", "k", later)}, nil},
		"many without a token":                        {[]Signed{a.receiptOf(t, "t1", "", by(x, "n")), b.receiptOf(t, "t2", "", by(x, "n"))}, nil},
		"two devices by a token each":                 {[]Signed{a.receiptOf(t, "t1", "k", nil), b.receiptOf(t, "t2", "l", nil)}, nil},
		"two devices by one token":                    {[]Signed{a.receiptOf(t, "t1", "k", nil), b.receiptOf(t, "t2", "k", nil)}, []string{TwoSeekers}},
		"also of one transaction":                     {[]Signed{a.receiptOf(t, "t1", "k", nil), b.receiptOf(t, "t1", "k", nil)}, []string{TwoSeekers}},
		"one device under two names":                  {[]Signed{a.receiptOf(t, "t1", "k", webvh), a.receiptOf(t, "t2", "k", nil)}, nil},
		"two devices, one by another name":            {[]Signed{a.receiptOf(t, "t1", "k", webvh), b.receiptOf(t, "t2", "k", nil)}, []string{TwoSeekers}},
		"a device that was given another key":         {[]Signed{a.receiptOf(t, "t1", "k", webvh), b.receiptOf(t, "t2", "k", webvh)}, nil},
		"both ends of one piece of work":              {[]Signed{a.receiptOf(t, "t1", "k", by(x, "n")), x.runs(t, a, "t1", "k", "n", nil)}, nil},
		"each twice, as it may be sent":               {[]Signed{x.runs(t, a, "t1", "k", "n", nil), a.receiptOf(t, "t1", "k", by(x, "n")), x.runs(t, a, "t1", "k", "n", nil)}, nil},
		"many pieces by one token, each by its nonce": {[]Signed{x.runs(t, a, "t1", "k", "n1", nil), x.runs(t, a, "t1", "k", "n2", nil), x.runs(t, a, "t2", "k", "n3", nil)}, nil},
		"one nonce with two tokens":                   {[]Signed{x.runs(t, a, "t1", "k", "n", nil), x.runs(t, a, "t2", "l", "n", nil)}, nil},
		"a replay that ran":                           {[]Signed{x.runs(t, a, "t1", "k", "n", nil), x.runs(t, a, "t1", "k", "n", later)}, []string{NonceTwice}},
		"also where the submitter says it once":       {[]Signed{a.receiptOf(t, "t1", "k", by(x, "n")), x.runs(t, a, "t1", "k", "n", nil), x.runs(t, a, "t1", "k", "n", later)}, []string{NonceTwice}},
		"one nonce for two transactions":              {[]Signed{x.runs(t, a, "t1", "k", "n", nil), x.runs(t, a, "t2", "k", "n", nil)}, []string{NonceTwice}},
		"one nonce at two executors":                  {[]Signed{x.runs(t, a, "t1", "k", "n", nil), y.runs(t, a, "t1", "k", "n", nil)}, []string{NonceTwice}},
		"one nonce for two requests":                  {[]Signed{a.receiptOf(t, "t1", "k", by(x, "n")), x.runs(t, a, "t1", "k", "n", func(r *Receipt) { r.RequestHash = sha("other") })}, []string{NonceTwice}},
		"one token and nonce of two submitters":       {[]Signed{x.runs(t, a, "t1", "k", "n", nil), x.runs(t, b, "t1", "k", "n", nil)}, []string{TwoSeekers, NonceTwice}},
	} {
		for range 2 {
			u := NewUses(8)
			var got []string
			for i, s := range c.receipts {
				for _, twice := range u.Add(&s, int64(i), a.public, b.public, x.public) {
					if got = append(got, twice.Kind); twice.First < 0 || twice.First >= int64(i) {
						t.Errorf("%s: the receipt before %d is said to be %d", name, i, twice.First)
					}
				}
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%s: %v, want %v", name, got, c.want)
			}
			slices.Reverse(c.receipts)
		}
	}
}

// However many tokens there are, what is remembered is bounded, and what was met lately is
// remembered.
func TestWhatIsRememberedOfUsesIsBounded(t *testing.T) {
	a, b := newParty(t, 1), newParty(t, 2)
	const most = 20
	u := NewUses(most)
	met := a.receiptOf(t, "t", "met", nil)
	for i := range 5 * most {
		s := a.receiptOf(t, "t", fmt.Sprint("k", i), nil)
		u.Add(&s, int64(i))
		u.Add(&met, 1000)
		if n := len(u.recent) + len(u.older); n > 2*most {
			t.Fatalf("%d are remembered", n)
		}
	}
	for token, want := range map[string]int{"met": 1, fmt.Sprint("k", 5*most-1): 1, fmt.Sprint("k", 4*most+1): 1, "k0": 0} {
		s := b.receiptOf(t, "t", token, nil)
		if got := u.Add(&s, 0); len(got) != want {
			t.Errorf("%s: %v, want %d", token, got, want)
		}
	}
}

// BenchmarkUses is what a receipt costs beside the check of its signature, in the same run.
func BenchmarkUses(b *testing.B) {
	a := newParty(b, 1)
	u := NewUses(1 << 16)
	var all []Signed
	for i := range 512 {
		all = append(all, a.receiptOf(b, "t", fmt.Sprint("k", i/4), nil))
	}
	var floor, uses time.Duration
	for i := 0; b.Loop(); i++ {
		began := time.Now()
		if err := all[i%len(all)].Verify(a.public); err != nil {
			b.Fatal(err)
		}
		middle := time.Now()
		u.Add(&all[i%len(all)], int64(i), a.public)
		uses, floor = uses+time.Since(middle), floor+middle.Sub(began)
	}
	b.ReportMetric(float64(uses)/float64(floor), "x_verify")
}
