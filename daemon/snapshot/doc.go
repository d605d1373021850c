// Package snapshot keeps the device's copy of the registry: which agents there are,
// for which capability, and which of them are suspended. It owns fetching pages and
// their validators, the last good copy on disk, the seed, and how old a copy may be. It
// must not know what an agent is chosen for, nor how a file is written: that is behind
// [Store].
//
// # Files
//
// Last-good is one line "chordwheel-snapshot-v1 " and the SHA-256 in hex of the rest, a
// line break, and JSON {"registry","fetched_at","truncated","agents":[{"did","capability",
// "endpoint","status","model_id"}]}. A file that is not exactly that is as good as none.
//
// A seed is JSON {"date","agents":[…]}, with more members for others. Its age counts
// from its own date, RFC 3339 or YYYY-MM-DD.
//
// docs/registry.md has every rule with its reason.
package snapshot
