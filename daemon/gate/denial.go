package gate

// Code is what a refused caller is told; docs/edge.md lists each with its status.
type Code string

// Codes of a denial.
const (
	TokenMissing     Code = "token_missing"
	InvalidToken     Code = "invalid_token"
	AudienceMismatch Code = "token_audience_mismatch"
	AgentSuspended   Code = "agent_suspended"
	NoAgent          Code = "no_agent"
	NoSnapshot       Code = "no_snapshot"
	SnapshotStale    Code = "snapshot_stale"
	KeysUnavailable  Code = "upstream_error" // of the trust server: nothing is known of the token
	Overloaded       Code = "overloaded"
)

// Denial says no. There is one value for each reason; Reason is a fixed text, one
// line for a person, which holds nothing of the token.
type Denial struct {
	Code   Code
	Reason string
}

// Error gives code and reason.
func (d *Denial) Error() string { return string(d.Code) + ": " + d.Reason }

// ErrIssuer denies a token that one of the trust server's keys signed and that says another
// issuer: whoever holds the gate may be told late that the server moved.
var ErrIssuer = &Denial{InvalidToken, "the token is from another issuer"}

// The other reasons, in the order in which they are looked for.
var (
	errMissing = &Denial{TokenMissing, "no token came with the work"}

	errLong      = &Denial{InvalidToken, "the token is longer than 8192 bytes"}
	errParts     = &Denial{InvalidToken, "the token has not exactly three parts"}
	errEmptyPart = &Denial{InvalidToken, "a part of the token is empty"}
	errAlphabet  = &Denial{InvalidToken, "a part of the token has a character that is not of base64url"}
	errBase64    = &Denial{InvalidToken, "a part of the token is not in the canonical form of base64url"}
	errSigLength = &Denial{InvalidToken, "the signature has not 64 bytes"}

	errHeaderJSON = &Denial{InvalidToken, "the header is not strict JSON: unique names, valid UTF-8, nothing behind it"}
	errHeaderDeep = &Denial{InvalidToken, "the header is nested deeper than 8"}
	errHeaderKind = &Denial{InvalidToken, "the header is not an object"}
	errAlgMissing = &Denial{InvalidToken, "the header has no alg"}
	errAlg        = &Denial{InvalidToken, "alg is not exactly EdDSA"}
	errTyp        = &Denial{InvalidToken, "typ is not JWT"}
	errKid        = &Denial{InvalidToken, "kid is not a text of 1 to 256 bytes"}
	errForbidden  = map[string]*Denial{
		"crit": {InvalidToken, "the header has crit"},
		"b64":  {InvalidToken, "the header has b64"},
		"zip":  {InvalidToken, "the header has zip"},
		"jku":  {InvalidToken, "the header has jku"},
		"jwk":  {InvalidToken, "the header has jwk"},
		"x5u":  {InvalidToken, "the header has x5u"},
		"x5c":  {InvalidToken, "the header has x5c"},
	}

	errKeys       = &Denial{KeysUnavailable, "the trust server's keys are not known; is TRUST_URL right and reachable?"}
	errUnknownKey = &Denial{InvalidToken, "the trust server has no such key"}
	errSignature  = &Denial{InvalidToken, "the signature does not fit"}

	errClaimsJSON = &Denial{InvalidToken, "the claims are not strict JSON: unique names, valid UTF-8, nothing behind it"}
	errClaimsDeep = &Denial{InvalidToken, "the claims are nested deeper than 8"}
	errClaimsKind = &Denial{InvalidToken, "the claims are not an object"}
	errIssuer     = &Denial{InvalidToken, "iss is not a text"}
	errSubject    = &Denial{InvalidToken, "sub is not a text"}
	errAudience   = &Denial{InvalidToken, "aud is not one text"}
	errCapability = &Denial{InvalidToken, "capability is not a text"}
	errID         = &Denial{InvalidToken, "jti is not a word of 1 to 128 characters"}
	errIssuedAt   = &Denial{InvalidToken, "iat is not whole seconds"}
	errNotBefore  = &Denial{InvalidToken, "nbf is not whole seconds"}
	errExpires    = &Denial{InvalidToken, "exp is not whole seconds"}
	errConfirm    = &Denial{InvalidToken, "cnf is not an object whose kid, if any, is a text"}
	errBackwards  = &Denial{InvalidToken, "exp is not after iat"}
	errLifetime   = &Denial{InvalidToken, "the token lives longer than one hour"}
	errExpired    = &Denial{InvalidToken, "the token has expired"}
	errFuture     = &Denial{InvalidToken, "the token was issued in the future"}
	errEarly      = &Denial{InvalidToken, "the token is not valid yet"}
	errOtherAud   = &Denial{AudienceMismatch, "the token is for another agent"}
	errOtherCap   = &Denial{InvalidToken, "the token is for another capability"}

	errNoSnapshot = &Denial{NoSnapshot, "there is no snapshot of the registry"}
	errStale      = &Denial{SnapshotStale, "the snapshot of the registry is too old"}
	errSuspended  = &Denial{AgentSuspended, "the agent is suspended"}
	errNoAgent    = &Denial{NoAgent, "the registry has no such active agent"}

	errNoConfirm  = &Denial{InvalidToken, "the token is bound to no key, and peers want one"}
	errOtherPeer  = &Denial{InvalidToken, "the token is bound to another peer"}
	errNoNonce    = &Denial{InvalidToken, "a peer's work has no nonce"}
	errReplayed   = &Denial{InvalidToken, "the token came with this nonce before"}
	errReplayFull = &Denial{Overloaded, "too many tokens are remembered against replays"}
)
