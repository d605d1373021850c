package gate

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/go-jose/go-jose/v4/jwt"
	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/chain"
)

// oracle gives go-jose's verdict on the same token and the same expectations.
func oracle(token string) error {
	parsed, err := jwt.ParseSigned(token, []jose.SignatureAlgorithm{jose.EdDSA})
	if err != nil {
		return err
	}
	var c jwt.Claims
	var more struct {
		Capability string `json:"capability"`
	}
	if err := parsed.Claims(server.Public().(ed25519.PublicKey), &c, &more); err != nil {
		return err
	}
	if c.Expiry == nil || more.Capability != work {
		return errors.New("no expiry, or another capability")
	}
	return c.ValidateWithLeeway(jwt.Expected{Issuer: issuer, AnyAudience: jwt.Audience{agent}, Time: now.Add(1)}, 0) // go-jose lets the instant of expiry pass
}

// stricter are the rules that go-jose does not have, or has in the caller's hand.
// Where it lets a token through that is refused here, it is for one of these.
var stricter = []*Denial{
	errLong, errAlphabet, errBase64, errTyp, errKid, errUnknownKey, errHeaderDeep, errHeaderJSON, errAlgMissing,
	errClaimsDeep, errClaimsJSON, errIssuer, errSubject, errAudience, errCapability, errID, errIssuedAt, errNotBefore, errExpires, errConfirm, errBackwards, errLifetime,
	errForbidden["b64"], errForbidden["zip"], errForbidden["jku"], errForbidden["jwk"], errForbidden["x5u"], errForbidden["x5c"],
}

// agree holds a token's verdict against the oracle's: what is allowed here is
// allowed there, and what only go-jose allows is refused here for a rule of ours.
func agree(t interface {
	Helper()
	Errorf(string, ...any)
}, token string) {
	t.Helper()
	_, err := verifier().Verify(context.Background(), now, chain.Secret(token), agent, work)
	other := oracle(token)
	if err == nil && other != nil && !lenient(token) {
		t.Errorf("allowed here, refused by go-jose: %v\n%s", other, token)
	}
	var d *Denial
	if errors.As(err, &d) && other == nil && !slices.Contains(stricter, d) {
		t.Errorf("allowed by go-jose, refused here: %v\n%s", d, token)
	}
}

// lenient: within the minute of leeway for iat and nbf, which the oracle is not
// given because it would then also have it for exp; and claims that are none of
// ours, whose kinds the oracle minds.
func lenient(token string) bool {
	c, err := Read(chain.Secret(token))
	return err == nil && (c.Issued.After(now) || c.NotBefore.After(now))
}

func TestVerdictsAgreeWithGoJose(t *testing.T) {
	for _, h := range hostiles() {
		agree(t, h.token)
	}
	allowed := 0
	rapid.Check(t, func(t *rapid.T) {
		token := drawToken(t)
		agree(t, token)
		if _, err := verifier().Verify(context.Background(), now, chain.Secret(token), agent, work); err == nil {
			allowed++
		}
	})
	if allowed == 0 {
		t.Error("no token was allowed: the comparison shows nothing")
	}
}

// drawToken draws a token that is nearly good: a few members changed, or its text.
func drawToken(t *rapid.T) string {
	pick := func(name string, values ...string) string { return rapid.SampledFrom(values).Draw(t, name) }
	var changes []string
	for range rapid.IntRange(0, 2).Draw(t, "changes") {
		member := pick("member", "iss", "sub", "aud", "capability", "jti", "iat", "nbf", "exp", "cnf", "x")
		changes = append(changes, member+"="+pick("value", "", `"x"`, `"`+agent+`"`, `["`+agent+`"]`, `["`+agent+`","x"]`, "null", "0", "[]", "{}", "1e9", "-1", `"1764461700"`,
			at(-60), at(-1), at(0), at(1), at(60), at(61), at(900), at(3600), at(3601), `{"kid":"x"}`))
	}
	if rapid.IntRange(0, 3).Draw(t, "no changes") == 0 {
		changes = nil
	}
	head := pick("header", goodHead, goodHead, goodHead, `{"alg":"EdDSA"}`, `{"alg":"none"}`, `{"alg":"EdDSA","typ":"x"}`, `{"alg":"EdDSA","crit":["x"]}`, `{"alg":"EdDSA","kid":"k2"}`, `{"alg":"EdDSA","alg":"EdDSA"}`, `{}`)
	token := mint(rapid.SampledFrom([]ed25519.PrivateKey{server, server, server, stranger}).Draw(t, "key"), head, claims(changes...))
	if rapid.IntRange(0, 3).Draw(t, "cut") == 0 {
		at := rapid.IntRange(0, len(token)-1).Draw(t, "at")
		token = token[:at] + pick("with", "", "A", ".", "=", "\n", "-", " ") + token[at+rapid.IntRange(0, 1).Draw(t, "drop"):]
	}
	return token
}

// Whatever comes, the parser ends, and what it takes says the same to the oracle
// and stands for itself: the same parts encode to the same text.
func FuzzToken(f *testing.F) {
	for _, h := range hostiles() {
		f.Add(h.token)
	}
	f.Add(good())
	f.Fuzz(func(t *testing.T, token string) {
		agree(t, token)
		parsed, err := parse(token)
		if err != nil {
			return
		}
		if again := parsed.signed + "." + b64(string(parsed.signature)); again != token || !strings.HasSuffix(parsed.signed, "."+b64(string(parsed.payload))) {
			t.Errorf("%q is also %q", token, again)
		}
		if c, err := Read(chain.Secret(token)); err == nil && (c.ID == "" || c.Audience == "" || !json.Valid(parsed.payload)) {
			t.Errorf("%q: %+v", token, c)
		}
	})
}

func FuzzKeySet(f *testing.F) {
	f.Add([]byte(`{"keys":[{"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo","kid":"a"}]}`))
	f.Add([]byte(`{"keys":[null,{"kty":1}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ParseKeySet(b)
		if (err == nil) != (s.Len() > 0) || s.Len() > maxKeys {
			t.Errorf("%d keys, %v", s.Len(), err)
		}
	})
}
