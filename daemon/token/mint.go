package token

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/daemon/authority"
	"github.com/chordwheel/chordwheel/daemon/gate"
	"github.com/chordwheel/chordwheel/daemon/retry"
)

const maxAnswer = 16 << 10 // bytes of an answer to a challenge or a mint

// Error is why there is no token.
type Error struct {
	Code    string // proof_of_control_failed, unresolvable_did, invalid_did, agent_suspended, no_agent, upstream_timeout, else upstream_error
	Message string // one line; what a server wrote is clipped

	retryAfter time.Duration
}

// Error gives code and message.
func (e *Error) Error() string { return "mint a token: " + e.Code + ": " + e.Message }

func failure(code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}

// mint proves control and gets a token, which passes the gate's own verifier before
// anybody sees it.
func (c *Client) mint(ctx context.Context, w want) (Token, error) {
	var challenge struct {
		Challenge string `json:"challenge"`
	}
	if err := c.ask(ctx, "/trust/v1/challenge", map[string]string{"did": c.cfg.DID}, &challenge); err != nil {
		return Token{}, err
	}
	if challenge.Challenge == "" || len(challenge.Challenge) > 1024 {
		return Token{}, failure("upstream_error", "the trust server gave no usable challenge")
	}
	signature, err := chain.Control{Audience: c.cfg.Server.Origin(), Challenge: challenge.Challenge, DID: c.cfg.DID}.Sign(c.cfg.Key)
	if err != nil {
		return Token{}, failure("upstream_error", "the challenge cannot be signed: %v", err)
	}
	var minted struct {
		Token string `json:"token"`
	}
	err = c.ask(ctx, "/trust/v1/token", map[string]string{
		"did": c.cfg.DID, "challenge": challenge.Challenge, "signature": signature, "capability": w.capability, "audience": w.agent,
	}, &minted)
	if err != nil {
		return Token{}, err
	}
	return c.accept(ctx, chain.Secret(minted.Token), w)
}

// accept verifies a minted token as the gate will.
func (c *Client) accept(ctx context.Context, value chain.Secret, w want) (Token, error) {
	claims, err := gate.Verifier{Keys: c.keys, Issuer: c.cfg.Issuer}.Verify(ctx, time.Now(), value, w.agent, w.capability)
	switch {
	case err != nil:
		return Token{}, failure("upstream_error", "the trust server's token does not hold: %v", err)
	case claims.Subject != c.cfg.DID:
		return Token{}, failure("upstream_error", "the trust server's token is for another subject")
	case claims.Confirmation != "" && claims.Confirmation != c.cfg.Key.DID():
		return Token{}, failure("upstream_error", "the trust server's token is bound to another key")
	}
	return Token{Value: value, ID: claims.ID, Expires: claims.Expires}, nil
}

// ask posts JSON and reads the answer into v. Its error is a [*Error].
func (c *Client) ask(ctx context.Context, path string, in map[string]string, v any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return failure("upstream_error", "%v", err)
	}
	a, err := c.cfg.Server.Do(ctx, http.MethodPost, path, nil, body, maxAnswer)
	if err != nil {
		code := "upstream_error"
		if errors.Is(err, context.DeadlineExceeded) {
			code = "upstream_timeout"
		}
		return failure(code, "%s", chain.ClipTo(err.Error(), 256))
	}
	if a.Status != http.StatusOK {
		return refusal(a)
	}
	if kind, _, err := mime.ParseMediaType(a.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return failure("upstream_error", "%s answered with %q, not JSON", path, chain.Clip(a.Header.Get("Content-Type")))
	}
	if _, err := receipt.Canonical(a.Body); err != nil || json.Unmarshal(a.Body, v) != nil {
		return failure("upstream_error", "%s answered with JSON of another shape", path)
	}
	return nil
}

// passed are the server's codes that a caller is told as they are.
var passed = map[string]bool{"proof_of_control_failed": true, "unresolvable_did": true, "invalid_did": true, "agent_suspended": true, "no_agent": true}

// refusal reads an error of the trust server.
func refusal(a authority.Answer) *Error {
	var in struct {
		Error struct{ Code, Message string }
	}
	e := failure("upstream_error", "the trust server answered %d", a.Status)
	if json.Unmarshal(a.Body, &in) == nil && in.Error.Code != "" {
		e.Message += fmt.Sprintf(": %q: %q", chain.Clip(in.Error.Code), chain.ClipTo(in.Error.Message, 128))
		if passed[in.Error.Code] {
			e.Code = in.Error.Code
		}
	}
	e.retryAfter, _ = retry.After(a.Header, time.Now())
	return e
}
