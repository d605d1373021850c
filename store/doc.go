// Package store owns the database of a node: what can be fetched or measured
// again, and is convenient to still have after a restart. Signed chains are the
// main tenant; typed buckets serve the rest. It knows bytes, hashes and
// signatures, nothing of a network, of keys to providers, or of what a record
// means. What must not be lost (identity, marks) lives in package datadir.
//
// # Distrust
//
// The file is untrusted input. Before it is opened, its own header is looked
// at; after a run that did not close it, the library's full check runs in a
// child process; each transaction runs under a guard that turns panics and
// memory faults into errors; each value carries a hash over its bucket, its key
// and itself; each chain is verified again when it is loaded. A file that fails
// is set aside under another name with one line in the log, and an empty one
// takes its place. Neither the library's error text nor a panic's value is ever
// logged or returned: both can hold page contents.
//
// # Format 1
//
// A bbolt file. Every value is 16 bytes of SHA-256 over (length of bucket name,
// bucket name, length of key, key, payload; lengths as 4 bytes, big endian), then
// the payload. This holds in all formats. Buckets:
//
//	meta          "format" -> "1"
//	chains        scope, 0x00, primitive -> CBOR {head: signed envelope, body: CID}
//	bodies        binary CID -> body
//	data/NAME     key -> deterministic CBOR of the owner's value
//
// docs/store.md says what is lost when, and how to mend it.
package store
