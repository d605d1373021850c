// Package merkle is what anybody can check of a ledger without trusting whoever
// keeps it: that a line is in it, that it only ever grew, and who says so. It owns
// the signed checkpoint and the two proofs. It must not know what a line
// means, where lines are kept, or who asks; it opens nothing and keeps nothing.
//
// # The tree
//
// That of RFC 6962: the hash of line n is SHA-256(0x00 ‖ line), that of a node
// SHA-256(0x01 ‖ left ‖ right), and of a tree of n lines the left child has the largest
// power of two below n. The empty tree is SHA-256 of nothing.
//
// # Checkpoint
//
// A signed note (golang.org/x/mod/sumdb/note, C2SP tlog-checkpoint) of three lines:
//
//	chordwheel/MESH/ledger
//	20852163
//	CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=
//
//	— chordwheel/MESH/ledger Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe…
//
// that is origin, number of lines in decimal without leading zeros, root in standard
// base64; an empty line; and an Ed25519 signature of the text by the key named
// after the origin. Signatures by others may follow, and are passed over.
//
// # Proofs
//
// In JSON, hashes in standard base64, in the order of RFC 6962 §2.1:
//
//	{"index":17,"size":1024,"hashes":["…"]}      the line at index (from 0) is in the tree of size
//	{"from":1000,"to":1024,"hashes":["…"]}       the first is a prefix of the second
package merkle
