// Package spool keeps lines durable until somebody else has taken them: the
// receipts of a device on their way to the audit ledger. It owns the files in
// which lines wait, the worker that hands them on in order, and the promise that
// an acknowledged line is handed on at least once, and never passed over in
// silence. It must not know what a line means: an ID and a time are what the
// owner's [Config.Label] says about it, and who takes lines is behind [Sender].
//
// # Files
//
//	spool.jsonl           the segment that grows: one JSON object per line, LF behind each
//	spool-NNNNNN.jsonl    segments that are full, NNNNNN their number from 000001 on
//	spool.checkpoint      how far the worker is
//	spool.rejected.jsonl  lines that were set aside: {at, spool, line, offset, reason, size, sha256, text | base64}
//	spool.torn            what a crash left behind the last line feed, never acknowledged
//	spool.open            the open-request journal
//	spool.lock            locked while a process has the spool
//
// The number of spool.jsonl is one above the highest of the full ones, or that of
// the checkpoint if that is higher. The ID of a segment is its number, "-", and
// the SHA-256 in hex of its first line without the line feed; of an empty one,
// nothing stands behind the dash.
//
// # Checkpoint
//
// Two lines: a JSON object, and the SHA-256 of the first line in hex.
//
//	{"format":1,"spool":"000002-9f…","lines":17,"offset":15043,"last":"5c…","closed":{"2":70113}}
//
// Of that segment so many lines and bytes were taken by the other side, last is
// the SHA-256 of the last of them, and so are all segments with lower numbers.
// closed holds the lines of full segments, which spares a start their counting.
// Whatever does not fit the files (another ID, an offset past the end or not behind a line
// feed, another last line, another format, a wrong sum) means: send everything
// that is there, from its first line. Sending twice is harmless, because whoever
// takes lines knows them by their ID; passing one over would be a loss.
//
// # Open-request journal
//
// Slots of 65 bytes: the SHA-256 in hex of an open request's ID and a line feed, or
// 64 blanks and a line feed if the slot is free. It is written without sync: it
// outlives the process, not a power cut.
//
// docs/spool.md says what happens to a disk that is full, fails or lies.
package spool
