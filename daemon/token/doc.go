// Package token gets tokens from the trust server and keeps them. It owns the proof
// of control, the cache (in memory only, one token for each capability and agent),
// refreshing, backing off, and the server's published keys. It must not know what a
// token is for, nor decide whether work may go on without one: it says what failed,
// and package gate decides.
//
// The HTTP that it speaks stands in docs/trust.md.
package token
