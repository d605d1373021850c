// Package chain owns the words of policy: scopes, primitives, capabilities,
// options, cost vectors, chains; their bytes, addresses and signatures; and
// what makes a chain acceptable to a device. It knows no network, no disk, no
// goroutine and no clock of its own: time comes in as an argument.
//
// # Bytes
//
// Every object is deterministic CBOR (RFC 8949, section 4.2.1): maps with
// text keys in ascending order of their encoded bytes, integers and lengths in
// their shortest form, no floats, no tags, no indefinite lengths. [Canonical]
// refuses anything else before a byte is decoded. Unknown map keys are allowed
// and ignored, so that an older device reads a newer object. Times are Unix
// milliseconds, durations milliseconds, money micro-dollars, shares parts per
// million: all integers.
//
// # Objects
//
// A chain is two objects. The [Body] {primitive, options, rules} is unsigned
// and content-addressed: its [CID] is CIDv1, dag-cbor, sha2-256. All scopes
// that resolve to the same options share one body. The [Head] {mesh, scope,
// primitive, seq, body, issued, refresh_after, expires} binds a body to one
// scope. It travels as a libp2p signed envelope (libp2p RFC 0002) in the
// domain "chordwheel-chain". An [Extension] is signed in a domain of its own
// and appends options to one body for one protest.
//
// # Acceptance
//
// [Trust.Verify] is the only way to a [Chain], and a [Chain] is the only source
// of options for a walk: an option that is not in a signed chain does not
// exist. The rules stand in docs/chain.md; testdata holds vectors that another
// language can run.
package chain
