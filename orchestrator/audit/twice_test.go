package audit_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/receipt"
)

// A token that is used by two is noticed as the receipts come: it is counted, and said once a
// minute. What one device does with its token is not, however often it is sent, and what is
// no receipt accuses nobody.
func TestATokenThatIsUsedByTwoIsNoticed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var log bytes.Buffer
		b.log = slog.New(slog.NewTextHandler(&log, nil))
		if err := b.open(); err != nil {
			t.Fatal(err)
		}
		mine, other := b.seeker, newKey(t)
		post := func(step string, by chain.Key, transaction string, change func(*receipt.Receipt), status int, uses uint64, said int) {
			t.Helper()
			b.seeker = by
			line := b.receipt(transaction, func(r *receipt.Receipt) {
				r.TokenID = "jti-1"
				if change != nil {
					change(r)
				}
			}).Line
			if got, code := b.post(line); got != status {
				t.Errorf("%s: %d %s", step, got, code)
			}
			if n := strings.Count(log.String(), "alarm: a token was used by two"); b.service.DoubleUses() != uses || n != said {
				t.Errorf("%s: %d double uses, said %d times; want %d, %d", step, b.service.DoubleUses(), n, uses, said)
			}
		}
		runs := func(nonce string) func(r *receipt.Receipt) {
			return func(r *receipt.Receipt) {
				r.SeekerDID, r.AgentDID, r.MessageID = mine.DID(), other.DID(), receipt.MessageID(r.TransactionID, receipt.RoleExec(nonce))
				says := receipt.Statement{TransactionID: r.TransactionID, Nonce: nonce, SeekerDID: r.SeekerDID, AgentDID: r.AgentDID, RequestHash: r.RequestHash, ResponseHash: r.ResponseHash, TokenID: r.TokenID}
				signature, err := says.Sign(other)
				if err != nil {
					t.Fatal(err)
				}
				r.Executor = &receipt.Executor{Nonce: nonce, Signature: signature}
			}
		}
		post("its holder", mine, "t1", nil, 202, 0, 0)
		post("again", mine, "t2", nil, 202, 0, 0)
		post("the same receipt again", mine, "t2", nil, 202, 0, 0)
		post("a peer that it is shown to", other, "t3", runs("nonce-1"), 202, 0, 0)
		post("somebody else", other, "t4", nil, 202, 1, 1)
		post("his receipt again", other, "t4", nil, 202, 1, 1)
		post("one that is refused", other, "t5", func(r *receipt.Receipt) { r.ResponseAt = r.ResponseAt.Add(2 * time.Hour) }, 400, 1, 1)
		post("the nonce once more", other, "t6", runs("nonce-1"), 202, 2, 1)
		post("and in the transaction of before", other, "t3", func(r *receipt.Receipt) {
			runs("nonce-1")(r)
			r.Status = receipt.UpstreamError
		}, 409, 3, 1)
		time.Sleep(time.Minute)
		post("without a token", other, "t7", func(r *receipt.Receipt) { r.TokenID = "" }, 202, 3, 1)
		post("a minute later", other, "t8", nil, 202, 4, 2)
		for _, want := range []string{"kind=two_seekers", "token_id=jti-1", "receipt=t4/", "first=t1/", "signer=" + other.DID(), "receipt=t8/", "since_last=3"} {
			if !strings.Contains(log.String(), want) {
				t.Errorf("the log has no %s:\n%s", want, log.String())
			}
		}
	})
}
