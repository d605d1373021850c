// Package gate decides whether a token lets a piece of work through. It owns the
// one strict parser of tokens, the verification of what they claim, the memory
// against replays, and the two modes. It is bytes and values to a verdict: it knows
// no HTTP, no disk and no stream. Where keys and the standing of agents come from
// is behind [Keys] and [Agents].
//
// # The token
//
// A compact JWS (RFC 7515) with Ed25519 (RFC 8037), three parts of canonical
// base64url and two dots, at most 8 KiB:
//
//	header   {"alg":"EdDSA","typ":"JWT","kid":"…"}; typ and kid may be absent
//	claims   {"iss":"…","sub":DID,"aud":DID,"capability":"llm.chat","jti":"…",
//	          "iat":1764460800,"nbf":1764460800,"exp":1764461700,"cnf":{"kid":"did:key:z6Mk…"}}
//
// Times are whole seconds since 1970. aud is the DID of the agent that the token is
// for, alone or as an array of one; nbf and cnf may be absent. Members that are not
// named here are ignored, but crit, b64, zip, jku, jwk, x5u and x5c in a header,
// which would change what the signature means or who made it, mean no.
//
// docs/gate.md has every rule with its reason.
package gate
