// Package datadir owns the data directory of one node: its lock, its rights,
// the names of the files in it, and the small checked files that must outlive
// the database: the identity key, the high-water marks, what was joined. It
// knows nothing of the database, of keys to providers, or of any network.
//
// # Checked files
//
// A checked file is text, then a payload:
//
//	<sha256, 64 hex digits, of all that follows the line feed> LF
//	"chordwheel" SP NAME SP FORMAT SP GENERATION LF
//	payload
//
// The sum stands first and covers the rest, so that a file of a newer format
// can be told from a damaged one. NAME is the file's own name: a file moved
// over another is damage. FORMAT is 1. GENERATION counts the writes.
//
// Each checked file but the identity stands twice, as NAME and NAME.bak,
// written one after the other and each replaced atomically. A write has
// returned when both are on disk; a read takes the valid copy of the higher
// generation and mends the other. So damage to one copy loses nothing that was
// acknowledged, and damage to both is an error, never an empty file.
//
// Files and their mending are described in docs/store.md.
package datadir
