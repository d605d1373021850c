// Package audit speaks to an audit ledger: it hands receipts over, one at a time,
// asks for proofs, and reads all that a ledger has. It owns what each answer of a ledger
// means. It must not know how the ledger is reached, and keeps nothing.
//
// docs/ledger.md has the paths and answers.
package audit

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/merkle"
	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/daemon/authority"
	"github.com/chordwheel/chordwheel/daemon/retry"
	"github.com/chordwheel/chordwheel/store/spool"
)

// Bounds of an answer and of the wait for it.
const (
	maxVerdict = 4 << 10  // of an answer to a receipt, which says all in its status
	maxProof   = 64 << 10 // of a proof, a checkpoint in it
	patience   = 20 * time.Second
)

// Server is a ledger, as [authority.Client] reaches it.
type Server interface {
	Do(ctx context.Context, method, path string, header http.Header, body []byte, limit int64) (authority.Answer, error)
}

// Client speaks to a ledger. Its methods may be called at once from several
// goroutines. It is a [spool.Sender].
type Client struct{ ledger Server }

// New gives a client of a ledger.
func New(ledger Server) *Client { return &Client{ledger} }

// Send implements [spool.Sender]. Only 202 is a yes, whatever comes with it.
func (c *Client) Send(ctx context.Context, line []byte) spool.Outcome {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer, err := c.ledger.Do(ctx, http.MethodPost, "/audit/v1/receipts", nil, line, maxVerdict)
	if err != nil && answer.Status == 0 {
		return spool.Outcome{Reason: reason(err)}
	}
	return verdict(answer, time.Now())
}

// verdict reads an answer to a receipt.
func verdict(answer authority.Answer, now time.Time) spool.Outcome {
	if answer.Status == http.StatusAccepted {
		return spool.Outcome{Verdict: spool.Accepted}
	}
	why := "answered " + strconv.Itoa(answer.Status)
	code := codeOf(answer.Body)
	if code != "" {
		why += " " + code
	}
	switch code {
	case "unresolvable_did":
		why += ": it does not find the log of the DID that signed; chordwheel did show says where that has to be served, and in its own did/ the hub looks first"
	case "unknown_sender":
		why += ": it takes nothing of the DID that signed; if that is a name which this device went by before, the hub's ledger_senders can list it"
	}
	switch answer.Status {
	case http.StatusConflict:
		return spool.Outcome{Verdict: spool.Conflict, Reason: why}
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return spool.Outcome{Verdict: spool.Rejected, Reason: why}
	}
	wait, _ := retry.After(answer.Header, now)
	return spool.Outcome{After: wait, Reason: why}
}

// codeOf gives the code of an error in the shape of these services, if it is one
// that may stand in a log.
func codeOf(b []byte) string {
	var shape struct {
		Error struct {
			Code string `json:"code"`
		} `json:"error"`
	}
	if json.Unmarshal(b, &shape) != nil || len(shape.Error.Code) > 64 || strings.Trim(shape.Error.Code, "abcdefghijklmnopqrstuvwxyz_") != "" {
		return ""
	}
	return shape.Error.Code
}

// reason is an error in a few words, without an address.
func reason(err error) string {
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return "no answer in time"
	}
	return chain.ClipTo(err.Error(), 200)
}

// Errors of questions.
var (
	ErrNotFound = errors.New("the ledger does not have it")
	ErrAnswer   = errors.New("the ledger gave no answer to that")
)

// Proven asks for the proof of a receipt that one has, under the newest checkpoint.
// Nothing of the answer is verified. Errors wrap [ErrNotFound], [ErrAnswer], or are
// the network's.
func (c *Client) Proven(ctx context.Context, s *receipt.Signed) (receipt.Proven, error) {
	var p receipt.Proven
	b, err := c.get(ctx, "/audit/v1/proofs/"+url.PathEscape(s.TransactionID)+"/"+url.PathEscape(s.MessageID)+"?signer="+url.QueryEscape(s.Signer()))
	if err == nil && json.Unmarshal(b, &p) != nil {
		err = ErrAnswer
	}
	p.Receipt = s.Line
	return p, err
}

// Checkpoint asks for the newest signed checkpoint, which is not verified.
func (c *Client) Checkpoint(ctx context.Context) ([]byte, error) {
	return c.get(ctx, "/audit/v1/checkpoint")
}

// Consistency asks for the proof that the ledger only grew between two sizes.
func (c *Client) Consistency(ctx context.Context, from, to int64) (merkle.Consistency, error) {
	var p merkle.Consistency
	b, err := c.get(ctx, fmt.Sprintf("/audit/v1/consistency?from=%d&to=%d", from, to))
	if err == nil && json.Unmarshal(b, &p) != nil {
		err = ErrAnswer
	}
	return p, err
}

func (c *Client) get(ctx context.Context, path string) ([]byte, error) {
	return c.fetch(ctx, path, nil, maxProof)
}

func (c *Client) fetch(ctx context.Context, path string, header http.Header, limit int64) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	answer, err := c.ledger.Do(ctx, http.MethodGet, path, header, nil, limit)
	switch {
	case err != nil && answer.Status == 0:
		return nil, fmt.Errorf("ask the ledger: %s; see that the hub runs and that its --authority can be reached from here", reason(err))
	case answer.Status == http.StatusNotFound:
		return nil, ErrNotFound
	case answer.Status == http.StatusUnauthorized && header != nil: // else no token was shown
		return nil, ErrToken
	case errors.Is(err, authority.ErrLarge), answer.Status != http.StatusOK:
		return nil, fmt.Errorf("%w: status %d", ErrAnswer, answer.Status)
	case err != nil:
		return nil, fmt.Errorf("ask the ledger: %s", reason(err))
	}
	return answer.Body, nil
}
