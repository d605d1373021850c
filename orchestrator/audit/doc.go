// Package audit is the hub's ledger service: it takes receipts over HTTP,
// checks who signed them, and hands out checkpoints, proofs and tiles. It owns
// what may enter the ledger and which checkpoints were signed, and notices tokens that
// were used by two. It must not know how
// the ledger keeps lines (package ledger) or how the listener answers (package
// authority).
//
//	POST /audit/v1/receipts                        202 {"index","known","root","inclusion"}
//	GET  /audit/v1/receipts/TRANSACTION/MESSAGE    {"receipt","checkpoint","inclusion"}, for auditors
//	GET  /audit/v1/proofs/TRANSACTION/MESSAGE      {"checkpoint","inclusion"}
//	GET  /audit/v1/checkpoint                      the newest signed checkpoint
//	GET  /audit/v1/consistency?from=N&to=N         the proof, as package merkle has it
//	GET  /audit/v1/inclusion?index=N&size=N        likewise
//	GET  /audit/v1/tile/…                          C2SP tlog-tiles; those of entries for auditors
//	GET  /audit/v1/key                             {"origin","did"}: what to verify with
//
// A checkpoint is on disk before anybody sees it, apart from the database: a
// database that is behind it afterwards was lost or restored from a copy, and the
// ledger does not open. Then every call is answered with internal_error, devices
// keep what they have, and docs/ledger.md says what to do.
package audit
