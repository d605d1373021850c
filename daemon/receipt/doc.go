// Package receipt owns what is said of work without a word of its content: the
// hashes of a request and of its answer, and the statement that the device which
// ran it signs over them. It is bytes to bytes: it knows no stream, no disk and
// no policy, and both ends of a stream use it, so that they mean the same thing.
//
// The forms stand in docs/receipts.md.
package receipt
