// Package receipt owns what is said of work without a word of its content: the
// hashes of a request and of its answer, the statement that the device which ran
// it for a peer signs over them, and the signed receipt of each request. It is
// bytes to bytes: it knows no stream, no disk and no policy. Both ends of a
// stream, the hub's ledger and whoever audits it use it, so that they mean the
// same thing.
//
// The forms stand in docs/receipts.md.
package receipt
