// Package trust is the hub's trust server: it mints the tokens that gates ask for. It
// owns challenges, proofs of control, the claims of a token, and the keys that sign
// tokens. It must not know who is enrolled or which agent is active: that is behind
// [Policy]; nor where DID documents come from: that is behind [Resolver].
//
// # HTTP
//
//	POST /trust/v1/challenge {did}
//	  → {challenge, expires_at}
//	POST /trust/v1/token {did, challenge, signature, capability, audience}
//	  → {token, expires_at}
//	GET  /trust/v1/keys
//	  → a JWKS (RFC 7517, RFC 8037); kid is the key's thumbprint (RFC 7638)
//
// Times are RFC 3339 in UTC. signature is base64url without padding: Ed25519 over
// "chordwheel-control-v1\n" and the RFC 8785 form of {"aud":ORIGIN,"challenge":…,"did":…}
// (package chain, Control), where ORIGIN is the server's own, https://HOST:PORT.
//
// A token is a JWS with the claims iss, sub (did), aud (audience), capability, jti,
// iat, nbf, exp and cnf {"kid": the did:key of the key that made the signature}; it
// lives for 15 minutes.
//
// docs/trust.md has the refusals and the reasons.
package trust
