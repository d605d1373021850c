package gate

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// The trust server, a stranger, and the agent of these tests.
var (
	server   = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{1}, 32))
	stranger = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{2}, 32))
	now      = time.Unix(1764460800, 0)
)

const (
	issuer   = "https://hub.example:7443"
	agent    = "did:key:z6MkAgent"
	work     = "llm.chat"
	seeker   = "did:key:z6MkSeeker"
	tokenID  = "token-1"
	goodHead = `{"alg":"EdDSA","typ":"JWT","kid":"k1"}`
)

func published() KeySet {
	return KeySet{[]namedKey{{"k1", server.Public().(ed25519.PublicKey)}}}
}

func verifier() Verifier { return Verifier{Keys: published(), Issuer: Exactly(issuer)} }

// claims gives the good claims with members replaced; "" as a value leaves one out.
// Keys and values are raw JSON text behind NAME=.
func claims(changes ...string) string {
	members := []string{
		`iss="` + issuer + `"`, `sub="` + seeker + `"`, `aud="` + agent + `"`, `capability="` + work + `"`, `jti="` + tokenID + `"`,
		"iat=1764460800", "nbf=1764460800", "exp=1764461700",
	}
	for _, change := range changes {
		name, _, _ := strings.Cut(change, "=")
		found := false
		for i, m := range members {
			if strings.HasPrefix(m, name+"=") {
				members[i], found = change, true
			}
		}
		if !found {
			members = append(members, change)
		}
	}
	var out []string
	for _, m := range members {
		if name, value, _ := strings.Cut(m, "="); value != "" {
			out = append(out, fmt.Sprintf("%q:%s", name, value))
		}
	}
	return "{" + strings.Join(out, ",") + "}"
}

func b64(b string) string { return base64.RawURLEncoding.EncodeToString([]byte(b)) }

// mint signs any two texts as a token.
func mint(key ed25519.PrivateKey, header, claims string) string {
	signed := b64(header) + "." + b64(claims)
	return signed + "." + b64(string(ed25519.Sign(key, []byte(signed))))
}

func good(changes ...string) string { return mint(server, goodHead, claims(changes...)) }

func at(seconds int64) string { return fmt.Sprint(now.Unix() + seconds) }

// hostile is one token that must not pass, with the one reason for it.
type hostile struct {
	name  string
	token string
	want  *Denial
}

// hostiles are refused each for its own reason. Whatever can be is signed by the
// server's own key, so that nothing but the rule stands in the way.
func hostiles() []hostile {
	head := func(h string) string { return mint(server, h, claims()) }
	body := func(c string) string { return mint(server, goodHead, c) }
	whole := good()
	parts := strings.Split(whole, ".")
	join := func(a, b, c string) string { return a + "." + b + "." + c }
	return []hostile{
		{"no token", "", errMissing},
		{"longer than 8 KiB", good(`pad="` + strings.Repeat("x", MaxToken) + `"`), errLong},
		{"one part", parts[0], errParts},
		{"two parts", parts[0] + "." + parts[1], errParts},
		{"four parts", whole + "." + parts[2], errParts},
		{"five parts, as if encrypted", strings.Repeat(parts[0]+".", 4) + parts[2], errParts},
		{"the general JSON form", `{"payload":"` + parts[1] + `","signatures":[]}`, errParts},
		{"no header", join("", parts[1], parts[2]), errEmptyPart},
		{"a detached payload", join(parts[0], "", parts[2]), errEmptyPart},
		{"no signature", join(parts[0], parts[1], ""), errEmptyPart},
		{"padding", join(parts[0]+"=", parts[1], parts[2]), errAlphabet},
		{"a line break behind it", whole + "\n", errAlphabet},
		{"a line break within", join(parts[0], parts[1][:4]+"\r\n"+parts[1][4:], parts[2]), errAlphabet},
		{"a space before it", " " + whole, errAlphabet},
		{"the other alphabet", join(parts[0], parts[1], "+"+parts[2][1:]), errAlphabet},
		{"a letter that only looks like one", join(strings.Replace(parts[0], "J", "Ј", 1), parts[1], parts[2]), errAlphabet},
		{"a NUL", whole[:len(whole)-1] + "\x00", errAlphabet},
		{"bits left over", join(parts[0], parts[1], parts[2][:85]+"B"), errBase64},
		{"a length that base64 has not", join(parts[0], parts[1], parts[2]+"AAA"), errBase64},
		{"a signature cut short", join(parts[0], parts[1], parts[2][:84]), errSigLength},
		{"a signature with more behind it", join(parts[0], parts[1], parts[2][:84]+"AAAA"), errSigLength},

		{"alg none", head(`{"alg":"none"}`), errAlg},
		{"alg in another case", head(`{"alg":"eddsa"}`), errAlg},
		{"an HMAC with the public key", head(`{"alg":"HS256","kid":"k1"}`), errAlg},
		{"RSA", head(`{"alg":"RS256"}`), errAlg},
		{"the other name of the algorithm", head(`{"alg":"Ed25519"}`), errAlg},
		{"alg is a list", head(`{"alg":["EdDSA"]}`), errAlg},
		{"alg is null", head(`{"alg":null}`), errAlg},
		{"no alg", head(`{"typ":"JWT"}`), errAlgMissing},
		{"ALG instead", head(`{"ALG":"EdDSA"}`), errAlgMissing},
		{"alg twice", head(`{"alg":"none","alg":"EdDSA"}`), errHeaderJSON},
		{"alg twice, once escaped", head(`{"alg":"EdDSA","\u0061lg":"none"}`), errHeaderJSON},
		{"more behind the header", head(goodHead + `{}`), errHeaderJSON},
		{"invalid UTF-8 in the header", head("{\"alg\":\"EdDSA\",\"x\":\"\xff\"}"), errHeaderJSON},
		{"a header of no JSON", head(`alg=EdDSA`), errHeaderJSON},
		{"a header that is a list", head(`[{"alg":"EdDSA"}]`), errHeaderKind},
		{"a header that is null", head(`null`), errHeaderKind},
		{"a deep header", head(`{"alg":"EdDSA","x":` + strings.Repeat("[", 8) + strings.Repeat("]", 8) + `}`), errHeaderDeep},
		{"crit", head(`{"alg":"EdDSA","crit":["exp"],"exp":1}`), errForbidden["crit"]},
		{"b64", head(`{"alg":"EdDSA","b64":false}`), errForbidden["b64"]},
		{"zip", head(`{"alg":"EdDSA","zip":"DEF"}`), errForbidden["zip"]},
		{"jku", head(`{"alg":"EdDSA","jku":"https://evil.example/keys"}`), errForbidden["jku"]},
		{"jwk", mint(stranger, `{"alg":"EdDSA","jwk":{"kty":"OKP","crv":"Ed25519","x":"`+b64(string(stranger.Public().(ed25519.PublicKey)))+`"}}`, claims()), errForbidden["jwk"]},
		{"x5u", head(`{"alg":"EdDSA","x5u":"https://evil.example/cert"}`), errForbidden["x5u"]},
		{"x5c", head(`{"alg":"EdDSA","x5c":null}`), errForbidden["x5c"]},
		{"typ of something else", head(`{"alg":"EdDSA","typ":"at+jwt"}`), errTyp},
		{"kid is a number", head(`{"alg":"EdDSA","kid":1}`), errKid},
		{"kid is empty", head(`{"alg":"EdDSA","kid":""}`), errKid},
		{"a long kid", head(`{"alg":"EdDSA","kid":"` + strings.Repeat("k", 257) + `"}`), errKid},

		{"a kid that is a path", head(`{"alg":"EdDSA","kid":"../k1"}`), errUnknownKey},
		{"a kid in another case", head(`{"alg":"EdDSA","kid":"K1"}`), errUnknownKey},
		{"signed by a stranger", mint(stranger, goodHead, claims()), errSignature},
		{"claims changed afterwards", join(parts[0], b64(claims(`sub="did:key:z6MkOther"`)), parts[2]), errSignature},
		{"header changed afterwards", join(b64(`{"alg":"EdDSA","kid":"k1"}`), parts[1], parts[2]), errSignature},
		{"a signature of zeros", join(parts[0], parts[1], b64(strings.Repeat("\x00", 64))), errSignature},
		{"a signature above the group's order", join(parts[0], parts[1], malleable(parts[2])), errSignature},

		{"claims of no JSON", body(`hello`), errClaimsJSON},
		{"claims twice", body(`{"aud":"x",` + claims()[1:]), errClaimsJSON},
		{"more behind the claims", body(claims() + " x"), errClaimsJSON},
		{"a lone surrogate in the claims", body(claims(`x="\ud800"`)), errClaimsJSON},
		{"a number beyond a double", body(claims(`exp=1e999`)), errClaimsJSON},
		{"claims in a list", body("[" + claims() + "]"), errClaimsKind},
		{"claims that are a text", body(`"eyJ"`), errClaimsKind},
		{"deep claims", body(claims(`x=` + strings.Repeat(`{"a":`, 8) + "1" + strings.Repeat("}", 8))), errClaimsDeep},
		{"no issuer", good("iss="), errIssuer},
		{"no subject", good("sub="), errSubject},
		{"no audience", good("aud="), errAudience},
		{"two audiences", good(`aud=["` + agent + `","` + agent + `"]`), errAudience},
		{"an empty list of audiences", good(`aud=[]`), errAudience},
		{"an audience in an object", good(`aud={"did":"` + agent + `"}`), errAudience},
		{"no capability", good("capability="), errCapability},
		{"Capability instead", good("capability=", `Capability="llm.chat"`), errCapability},
		{"a list of capabilities", good(`capability=["llm.chat"]`), errCapability},
		{"no token ID", good("jti="), errID},
		{"a token ID with a line break", good(`jti="a\nb"`), errID},
		{"a long token ID", good(`jti="` + strings.Repeat("a", 129) + `"`), errID},
		{"no time of issue", good("iat="), errIssuedAt},
		{"no expiry", good("exp="), errExpires},
		{"expiry as a text", good(`exp="1764461700"`), errExpires},
		{"expiry as a fraction", good(`exp=1764461700.5`), errExpires},
		{"expiry with an exponent", good(`exp=1764461.7e3`), errExpires},
		{"expiry below zero", good(`exp=-1`), errExpires},
		{"expiry past all calendars", good(`exp=253402300800`), errExpires},
		{"nbf is null", good(`nbf=null`), errNotBefore},
		{"cnf is a text", good(`cnf="did:key:z6MkSeeker"`), errConfirm},
		{"the kid of cnf is a list", good(`cnf={"kid":["did:key:z6MkSeeker"]}`), errConfirm},
		{"it ends before it begins", good("exp=" + at(0)), errBackwards},
		{"it lives too long", good("iat="+at(-1), "exp="+at(3600)), errLifetime},
		{"it has expired", good("iat="+at(-900), "nbf="+at(-900), "exp="+at(0)), errExpired},
		{"issued in the future", good("iat="+at(61), "nbf="+at(0)), errFuture},
		{"not valid yet", good("nbf=" + at(61)), errEarly},
		{"another issuer", good(`iss="https://evil.example"`), ErrIssuer},
		{"the issuer with a slash", good(`iss="` + issuer + `/"`), ErrIssuer},
		{"another audience", good(`aud="did:key:z6MkOther"`), errOtherAud},
		{"the beginning of the audience", good(`aud="` + agent[:len(agent)-1] + `"`), errOtherAud},
		{"more than the audience", good(`aud="` + agent + `#key-1"`), errOtherAud},
		{"the audience in another case", good(`aud="` + strings.ToUpper(agent) + `"`), errOtherAud},
		{"any audience", good(`aud="*"`), errOtherAud},
		{"another capability", good(`capability="llm.t3"`), errOtherCap},
		{"any capability", good(`capability="llm.*"`), errOtherCap},
		{"a capability with a space", good(`capability="llm.chat "`), errOtherCap},
	}
}

// malleable adds the group's order to the second half of a signature: the same
// signature in arithmetic, other bytes.
func malleable(signature string) string {
	raw, err := base64.RawURLEncoding.DecodeString(signature)
	if err != nil {
		panic(err)
	}
	order := []byte{0xed, 0xd3, 0xf5, 0x5c, 0x1a, 0x63, 0x12, 0x58, 0xd6, 0x9c, 0xf7, 0xa2, 0xde, 0xf9, 0xde, 0x14, 31: 0x10}
	carry := 0
	for i, b := range order {
		carry += int(raw[32+i]) + int(b)
		raw[32+i] = byte(carry)
		carry >>= 8
	}
	return b64(string(raw))
}

func TestHostileTokens(t *testing.T) {
	reasons := map[*Denial]bool{}
	for _, h := range hostiles() {
		c, err := verifier().Verify(context.Background(), now, chain.Secret(h.token), agent, work)
		if !errors.Is(err, h.want) {
			t.Errorf("%s: %v, want %v", h.name, err, h.want)
		}
		if c.ID != "" && strings.Contains(h.want.Reason, "signature") {
			t.Errorf("%s: claims %v of a token that nobody vouched for", h.name, c)
		}
		reasons[h.want] = true
	}
	if n := len(hostiles()); n < 40 || len(reasons) < 40 {
		t.Errorf("%d tokens, %d reasons", n, len(reasons))
	}
	seen := map[string]bool{}
	for d := range reasons {
		if seen[d.Reason] {
			t.Errorf("two denials say %q", d.Reason)
		}
		seen[d.Reason] = true
	}
}

func TestGoodTokens(t *testing.T) {
	for name, token := range map[string]string{
		"as the hub mints it":         good(`cnf={"kid":"did:key:z6MkSeeker"}`),
		"no typ and no kid":           mint(server, `{"alg":"EdDSA"}`, claims()),
		"spaces and members unknown":  mint(server, " {\n\"alg\" : \"EdDSA\", \"cty\":\"x\"}", claims("scope=[1,2]")),
		"an audience in a list":       good(`aud=["` + agent + `"]`),
		"no nbf":                      good("nbf="),
		"a binding of a kind unknown": good(`cnf={"jwk":{}}`),
		"the last second":             good("iat="+at(-899), "nbf="+at(-899), "exp="+at(1)),
		"a clock a minute ahead":      good("iat="+at(60), "nbf="+at(60)),
		"one hour exactly":            good("iat="+at(0), "exp="+at(3600)),
		"an escaped audience":         good(`aud="\u0064id:key:z6MkAgent"`),
	} {
		c, err := verifier().Verify(context.Background(), now, chain.Secret(token), agent, work)
		if err != nil || c.ID != tokenID || c.Subject != seeker {
			t.Errorf("%s: %v, %+v", name, err, c)
		}
	}
	any := Verifier{Keys: published()}
	if _, err := any.Verify(context.Background(), now, chain.Secret(good(`iss="https://other"`)), agent, work); err != nil {
		t.Error("an issuer that nobody named:", err)
	}
}

// Expiry counts to the nanosecond, and the two leeways too.
func TestEdgesOfTime(t *testing.T) {
	token := chain.Secret(good("iat="+at(0), "nbf="+at(0), "exp="+at(900)))
	for _, c := range []struct {
		at   time.Duration
		want error
	}{
		{-Leeway - 1, errFuture}, {-Leeway, nil}, {0, nil}, {900*time.Second - 1, nil}, {900 * time.Second, errExpired}, {901 * time.Second, errExpired},
		{-10 * 365 * 24 * time.Hour, errFuture}, {10 * 365 * 24 * time.Hour, errExpired},
	} {
		if _, err := verifier().Verify(context.Background(), now.Add(c.at), token, agent, work); !errors.Is(err, c.want) {
			t.Errorf("%v: %v, want %v", c.at, err, c.want)
		}
	}
}

type unreachable struct{}

func (unreachable) Keys(context.Context, string) ([]ed25519.PublicKey, error) {
	return nil, errors.New("connection refused")
}

func TestWithoutKeysNothingIsKnown(t *testing.T) {
	for _, keys := range []Keys{nil, unreachable{}} {
		v := Verifier{Keys: keys}
		if _, err := v.Verify(context.Background(), now, chain.Secret(good()), agent, work); !errors.Is(err, errKeys) {
			t.Errorf("%T: %v", keys, err)
		}
	}
}

func TestRead(t *testing.T) {
	c, err := Read(chain.Secret(mint(stranger, goodHead, claims("exp="+at(-1)))))
	if err != nil || c.ID != tokenID || c.Audience != agent {
		t.Error(c, err)
	}
	if _, err := Read("a.b"); !errors.Is(err, errParts) {
		t.Error(err)
	}
}

func TestDenialsHoldNothingOfTheToken(t *testing.T) {
	_, err := verifier().Verify(context.Background(), now, chain.Secret(good(`aud="canary"`)), agent, work)
	if err == nil || strings.Contains(err.Error(), "canary") {
		t.Error(err)
	}
}
