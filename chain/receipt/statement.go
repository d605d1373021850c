package receipt

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/chordwheel/chordwheel/chain"
)

// Purpose is what every [Statement] says it is for.
const Purpose = "exec"

// Refusals of a statement.
var (
	ErrAgent     = errors.New("the statement is of another agent")
	ErrSignature = errors.New("the executor's signature does not fit the statement")
)

// Statement is what a device says of work that it ran for a peer: who asked,
// who ran it, and the hashes of what went in and came out. Both ends know every
// member of it, so only its signature travels.
type Statement struct {
	TransactionID string
	Nonce         string
	SeekerDID     string // the submitter
	AgentDID      string // the executor: a did:key
	RequestHash   string
	ResponseHash  string
	TokenID       string // "" without a token
}

// text is what is signed, after its prefix.
func (s Statement) text() []byte {
	b, err := json.Marshal(map[string]string{
		"purpose": Purpose, "transaction_id": s.TransactionID, "nonce": s.Nonce, "seeker_did": s.SeekerDID, "agent_did": s.AgentDID,
		"request_hash": s.RequestHash, "response_hash": s.ResponseHash, "token_id": s.TokenID,
	})
	if err == nil {
		b, err = Canonical(b)
	}
	if err != nil {
		panic("BUG: eight texts are JSON: " + err.Error())
	}
	return b
}

// Sign gives key's signature over s: Ed25519 over the prefix of statements and
// the RFC 8785 form, as base64url without padding. It fails for a key that is not
// AgentDID's.
func (s Statement) Sign(key chain.Key) (string, error) {
	if key.DID() != s.AgentDID || s.AgentDID == "" {
		return "", fmt.Errorf("sign a statement: %w", ErrAgent)
	}
	signature, err := key.SignText(chain.PrefixExec, s.text())
	if err != nil {
		return "", fmt.Errorf("sign a statement: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(signature), nil
}

// Verify checks that executor signed s. The error wraps [ErrAgent] or
// [ErrSignature].
func (s Statement) Verify(executor chain.PeerID, signature string) error {
	if executor.DID() != s.AgentDID || s.AgentDID == "" {
		return fmt.Errorf("%w: %s ran it", ErrAgent, chain.Clip(executor))
	}
	public, err := executor.Public()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrAgent, err)
	}
	return s.verify(public, signature)
}

func (s Statement) verify(public ed25519.PublicKey, signature string) error {
	raw, err := readSignature(signature)
	if err != nil || !chain.VerifyText(public, chain.PrefixExec, s.text(), raw) {
		return ErrSignature
	}
	return nil
}
