// Package ledger keeps the hub's audit ledger: lines that came under an ID, once
// each, in a Merkle tree that only grows. It owns the intake, what is stored, the
// proofs and the tiles. It must not know what a line means, who may send one or over what
// it came: the service in front of it checks signatures and answers HTTP. What others
// check of it is package chain/merkle.
//
// # Records
//
// In the storage that it is given, all in one commit per batch:
//
//	tree          size (8 bytes, big endian), root (32 bytes)
//	hash/CHUNK    the stored hashes (golang.org/x/mod/sumdb/tlog) from 64·CHUNK on, up to 64, 32 bytes each
//	line/INDEX    the line
//	id/KEY        its index (8 bytes) and its leaf hash; KEY: SHA-256 in hex over
//	              transaction ID, "\n", message ID
//
// CHUNK and INDEX have 12 hexadecimal digits, so that keys are in their order.
//
// # Tiles
//
// As C2SP tlog-tiles: tile/L/N[.p/W] are 256 (or W) hashes of level 8·L, tile/entries/N[.p/W]
// as many lines, each behind its length as 2 bytes, big endian. N is written in groups of
// three digits, all but the last with an "x": 1234067 is x001/x234/067. Full tiles never change.
package ledger
