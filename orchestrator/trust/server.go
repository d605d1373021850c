package trust

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/did"
	"github.com/chordwheel/chordwheel/orchestrator/authority"
)

// TokenLife is how long a token lives.
const TokenLife = 15 * time.Minute

// Bounds of a request.
const (
	maxBody     = 16 << 10
	maxInFlight = 64 // requests for tokens at once
	maxWait     = 10 * time.Second
)

// Reasons of a [Policy] to refuse.
var (
	ErrSeeker    = errors.New("the DID is of no device that may hand work on")
	ErrSuspended = errors.New("the agent is suspended")
	ErrNoAgent   = errors.New("no active agent of that DID and capability")
)

// Policy says who may have a token for what.
type Policy interface {
	// Permit is asked before a DID is resolved, so that a stranger's name leads
	// nowhere. It answers from memory; errors wrap [ErrSeeker], [ErrSuspended] or
	// [ErrNoAgent]; with all others nobody knows now.
	Permit(ctx context.Context, seeker, agent, capability string) error
}

// Resolver finds the keys that may prove control of a DID. Errors that wrap
// [did.ErrInvalid] are the caller's fault; with all others nothing is known.
type Resolver interface {
	Resolve(ctx context.Context, did string) ([]ed25519.PublicKey, error)
}

// Documents resolves through package did.
type Documents struct {
	Fetcher did.Fetcher // nil: did:key only
}

// Resolve gives the keys for authentication.
func (d Documents) Resolve(ctx context.Context, id string) ([]ed25519.PublicKey, error) {
	r, err := did.Resolve(ctx, d.Fetcher, id, did.Want{}, time.Now())
	if err != nil {
		return nil, err
	}
	return r.Keys(did.Authentication), nil
}

// Config of a [Server]; every member is needed.
type Config struct {
	// Origin gives https://HOST:PORT as devices know it now: what proofs are made for,
	// and the iss of tokens.
	Origin   func() string
	Keys     *Ring
	Resolver Resolver
	Policy   Policy
}

// Server is the trust server. It is an [http.Handler] whose calls may overlap.
type Server struct {
	cfg        Config
	challenges *challenges
	inFlight   chan struct{} // a place each; never blocks, the next one is refused
	mux        *authority.Mux
}

// New makes a server.
func New(cfg Config) (*Server, error) {
	if cfg.Origin == nil || cfg.Keys == nil || cfg.Resolver == nil || cfg.Policy == nil {
		return nil, errors.New("trust server: want an origin, keys, a resolver and a policy")
	}
	s := &Server{cfg: cfg, challenges: newChallenges(maxUsed), inFlight: make(chan struct{}, maxInFlight)}
	s.mux = authority.NewMux(s.Routes()...)
	return s, nil
}

// Routes are the server's, for a listener that it shares.
func (s *Server) Routes() []authority.Route {
	return []authority.Route{
		{Method: http.MethodPost, Path: "/trust/v1/challenge", Handler: s.challenge},
		{Method: http.MethodPost, Path: "/trust/v1/token", Handler: s.token},
		{Method: http.MethodGet, Path: "/trust/v1/keys", Handler: s.keys},
	}
}

// ServeHTTP answers one request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

func (s *Server) keys(w http.ResponseWriter, _ *http.Request) (any, error) {
	w.Header().Set("Cache-Control", "max-age=300")
	return map[string]any{"keys": s.cfg.Keys.published(time.Now())}, nil
}

func (s *Server) challenge(w http.ResponseWriter, r *http.Request) (any, error) {
	var in authority.ChallengeRequest
	if err := authority.Decode(w, r, maxBody, &in); err != nil {
		return nil, err
	}
	if err := checkDID("did", in.DID); err != nil {
		return nil, err
	}
	text, expires := s.challenges.issue(in.DID, time.Now())
	return authority.Challenge{Challenge: text, ExpiresAt: expires.UTC().Truncate(time.Second)}, nil
}

// ask is the body of a request for a token.
type ask = authority.TokenRequest

func (s *Server) token(w http.ResponseWriter, r *http.Request) (any, error) {
	var in ask
	if err := authority.Decode(w, r, maxBody, &in); err != nil {
		return nil, err
	}
	// Behind the body: who sends it slowly takes no place.
	select {
	case s.inFlight <- struct{}{}:
		defer func() { <-s.inFlight }()
	default:
		return nil, &authority.Refusal{Code: authority.Overloaded, Message: "too many requests for tokens at once", RetryAfter: time.Second}
	}
	if err := errors.Join(checkDID("did", in.DID), checkDID("audience", in.Audience)); err != nil {
		return nil, err
	}
	if in.Capability == "" || len(in.Capability) > 128 || !printable(in.Capability) {
		return nil, authority.Refuse(authority.InvalidRequest, "capability: want the name of one")
	}
	key, err := s.prove(r.Context(), in)
	if err != nil {
		return nil, err
	}
	token, expires := s.mint(in, key, time.Now())
	return authority.Token{Token: token, ExpiresAt: expires.UTC()}, nil
}

// prove checks challenge, permission and proof, in the order of what they cost, and
// gives the key that signed. A challenge is used up by a proof that holds.
func (s *Server) prove(ctx context.Context, in ask) (ed25519.PublicKey, error) {
	id, expires, err := s.challenges.check(in.Challenge, in.DID, time.Now())
	if err != nil {
		return nil, failed(err)
	}
	if err := s.cfg.Policy.Permit(ctx, in.DID, in.Audience, in.Capability); err != nil {
		return nil, refused(err)
	}
	ctx, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	keys, err := s.cfg.Resolver.Resolve(ctx, in.DID)
	switch {
	case errors.Is(err, did.ErrInvalid):
		return nil, authority.Refuse(authority.InvalidDID, "%s does not resolve: its document does not hold", chain.Clip(in.DID))
	case err != nil:
		return nil, authority.Refuse(authority.UnresolvableDID, "%s could not be resolved now", chain.Clip(in.DID))
	}
	proof := chain.Control{Audience: s.cfg.Origin(), Challenge: in.Challenge, DID: in.DID}
	for _, key := range keys {
		if proof.Verify(key, in.Signature) == nil {
			return key, failed(s.challenges.use(id, expires, time.Now()))
		}
	}
	return nil, failed(fmt.Errorf("no key of the DID made this signature over the challenge for %s", s.cfg.Origin()))
}

// failed says no to a proof; nil for nil.
func failed(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errChallengeFull):
		return &authority.Refusal{Code: authority.Overloaded, Message: err.Error(), RetryAfter: time.Second}
	}
	return authority.Refuse(authority.ProofOfControlFailed, "%v", err)
}

// refused tells what a policy said.
func refused(err error) error {
	switch {
	case errors.Is(err, ErrSeeker):
		return authority.Refuse(authority.UnknownSeeker, "%v", ErrSeeker)
	case errors.Is(err, ErrSuspended):
		return authority.Refuse(authority.AgentSuspended, "%v", ErrSuspended)
	case errors.Is(err, ErrNoAgent):
		return authority.Refuse(authority.NoAgent, "%v", ErrNoAgent)
	}
	return err
}

// mint makes a token. The times are whole seconds: it may live a second less.
func (s *Server) mint(in ask, key ed25519.PublicKey, now time.Time) (token string, expires time.Time) {
	now = now.Truncate(time.Second)
	expires = now.Add(TokenLife)
	claims, err := json.Marshal(map[string]any{
		"iss": s.cfg.Origin(), "sub": in.DID, "aud": in.Audience, "capability": in.Capability, "jti": rand.Text(),
		"iat": now.Unix(), "nbf": now.Unix(), "exp": expires.Unix(), "cnf": map[string]string{"kid": chain.DIDKey(key)},
	})
	if err != nil {
		panic("BUG: texts and numbers are JSON: " + err.Error())
	}
	return s.cfg.Keys.sign(claims), expires
}

func checkDID(name, s string) error {
	if !chain.IsDID(s) {
		return authority.Refuse(authority.InvalidDID, "%s: want a DID of at most %d bytes, such as did:key:z6Mk…", name, chain.MaxDIDBytes)
	}
	return nil
}

// printable reports whether s stands for itself in what is signed.
func printable(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' || r == '"' || r == '\\' }) < 0
}
