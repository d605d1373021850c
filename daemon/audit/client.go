// Package audit speaks to an audit ledger over HTTP: it hands receipts over, one
// at a time, and asks for proofs. It owns what each answer of a ledger means. It
// must not know what a receipt says, and keeps nothing.
//
// docs/ledger.md has the paths and answers.
package audit

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/merkle"
	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/store/spool"
)

// Bounds of an answer and of the wait for it.
const (
	maxVerdict = 4 << 10  // of an answer to a receipt, which says all in its status
	maxProof   = 64 << 10 // of a proof, a checkpoint in it
	patience   = 20 * time.Second
)

// Target is a ledger.
type Target struct {
	URL string // https, or http of this machine; without a path of its own, or with one before /audit
	// Certificate is the SHA-256 of the one certificate that is accepted, over
	// its DER form; nil: one that an authority of Roots signed.
	Certificate []byte
	Roots       *x509.CertPool // nil: the system's
}

// Check reports what is wrong with the URL of a ledger.
func (t Target) Check() error {
	u, err := url.Parse(t.URL)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		return fmt.Errorf("%q is no address of a ledger: want https://HOST[:PORT]", chain.Clip(t.URL))
	}
	switch {
	case u.Scheme == "https", u.Scheme == "http" && loopback(u.Hostname()):
		return nil
	}
	return fmt.Errorf("%q: receipts travel over https only, or over http on this machine", chain.Clip(t.URL))
}

func loopback(host string) bool {
	if host == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

// Client speaks to a ledger. Its methods may be called at once from several
// goroutines. It is a [spool.Sender].
type Client struct {
	target func() (Target, error)
	mu     sync.Mutex
	url    string // of the transport
	pin    []byte
	client *http.Client
}

// New gives a client of the ledger that target names at each call: that may not be
// known yet, and may move.
func New(target func() (Target, error)) *Client { return &Client{target: target} }

// to gives the ledger's address and who speaks to it.
func (c *Client) to() (string, *http.Client, error) {
	t, err := c.target()
	if err == nil {
		err = t.Check()
	}
	if err != nil {
		return "", nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client == nil || c.url != t.URL || !bytes.Equal(c.pin, t.Certificate) {
		if c.client != nil {
			c.client.CloseIdleConnections()
		}
		c.client, c.url, c.pin = newClient(t), t.URL, t.Certificate
	}
	return strings.TrimSuffix(t.URL, "/"), c.client, nil
}

// Close ends idle connections.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != nil {
		c.client.CloseIdleConnections()
	}
}

// errPin: the ledger is not the one that the hub said.
var errPin = errors.New("the certificate is not the one that the hub named")

func newClient(t Target) *http.Client {
	secure := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: t.Roots}
	if pin := t.Certificate; pin != nil {
		secure.InsecureSkipVerify = true // the one certificate is known, whoever signed it
		secure.VerifyConnection = func(s tls.ConnectionState) error {
			sum := sha256.Sum256(s.PeerCertificates[0].Raw)
			if subtle.ConstantTimeCompare(sum[:], pin) != 1 {
				return errPin
			}
			return nil
		}
	}
	return &http.Client{
		Transport: &http.Transport{TLSClientConfig: secure, DisableCompression: true, ResponseHeaderTimeout: patience, TLSHandshakeTimeout: patience / 2,
			DialContext: (&net.Dialer{Timeout: patience / 2}).DialContext, MaxResponseHeaderBytes: 16 << 10, MaxIdleConns: 2, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// Send implements [spool.Sender]. Only 202 is a yes.
func (c *Client) Send(ctx context.Context, line []byte) spool.Outcome {
	base, client, err := c.to()
	if err != nil {
		return spool.Outcome{Reason: reason(err)}
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/audit/v1/receipts", bytes.NewReader(line))
	if err != nil {
		return spool.Outcome{Reason: reason(err)}
	}
	r.Header.Set("Content-Type", "application/json")
	answer, err := client.Do(r)
	if err != nil {
		return spool.Outcome{Reason: reason(err)}
	}
	defer answer.Body.Close()
	said, _ := io.ReadAll(io.LimitReader(answer.Body, maxVerdict)) // the status alone counts
	return verdict(answer, said, time.Now())
}

// verdict reads an answer to a receipt.
func verdict(answer *http.Response, said []byte, now time.Time) spool.Outcome {
	why := "answered " + strconv.Itoa(answer.StatusCode)
	if code := codeOf(said); code != "" {
		why += " " + code
	}
	switch answer.StatusCode {
	case http.StatusAccepted:
		return spool.Outcome{Verdict: spool.Accepted}
	case http.StatusConflict:
		return spool.Outcome{Verdict: spool.Conflict, Reason: why}
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return spool.Outcome{Verdict: spool.Rejected, Reason: why}
	}
	return spool.Outcome{After: retryAfter(answer.Header.Get("Retry-After"), now), Reason: why}
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

// retryAfter reads what the ledger asked for; 0 where it asked for nothing that
// makes sense.
func retryAfter(s string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseFloat(s, 64); err == nil {
		if seconds > 0 && seconds < 1e9 {
			return time.Duration(seconds * float64(time.Second))
		}
		return 0
	}
	if at, err := http.ParseTime(s); err == nil {
		return max(0, at.Sub(now))
	}
	return 0
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

// Proven asks for a receipt and its proof under the newest checkpoint. Nothing of
// the answer is verified. Errors wrap [ErrNotFound], [ErrAnswer], or are the
// network's.
func (c *Client) Proven(ctx context.Context, transaction, message string) (receipt.Proven, error) {
	var p receipt.Proven
	b, err := c.get(ctx, "/audit/v1/receipts/"+url.PathEscape(transaction)+"/"+url.PathEscape(message))
	if err == nil && json.Unmarshal(b, &p) != nil {
		err = ErrAnswer
	}
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
	base, client, err := c.to()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, base+path, nil)
	if err != nil {
		return nil, err
	}
	answer, err := client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("ask the ledger: %s; see that the hub runs and that its --authority can be reached from here", reason(err))
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(io.LimitReader(answer.Body, maxProof+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("ask the ledger: %s", reason(err))
	case answer.StatusCode == http.StatusNotFound:
		return nil, ErrNotFound
	case answer.StatusCode != http.StatusOK || len(b) > maxProof:
		return nil, fmt.Errorf("%w: status %d", ErrAnswer, answer.StatusCode)
	}
	return b, nil
}
