// Package did resolves what receipts and tokens name their signers by: did:key,
// which is the key itself, and did:webvh v1.0, which is a log of signed versions at
// a web address. It owns the identifiers, the writing and the checking of logs. It opens
// nothing: where the log comes from is behind [Fetcher] (package did/fetch has the
// one that is safe against addresses of this network), and the time is an argument.
//
// # did:webvh, as far as it is used here
//
// (https://identity.foundation/didwebvh/v1.0/) did:webvh:SCID:HOST[%3APORT][:SEGMENT]… stands
// for https://HOST[:PORT]/SEGMENT/…/did.jsonl, without segments for
// https://HOST/.well-known/did.jsonl. The file has one JSON object per line:
//
//	{"versionId":"2-HASH","versionTime":"2026-05-01T10:00:00Z","parameters":{…},"state":{…},"proof":[{…}]}
//
// HASH is base58btc(0x12 0x20 SHA-256(x)) over the RFC 8785 form x of the entry without proof, in
// which versionId is that of the entry before; in the first one it is the SCID. The SCID
// is the same hash over the first entry, in which versionId is "{SCID}" and the SCID is
// replaced by {SCID} everywhere. state is the DID document. A proof is a Data
// Integrity proof eddsa-jcs-2022: Ed25519 over SHA-256(JCS(proof without proofValue)) ‖
// SHA-256(JCS(entry without proof)), proofPurpose assertionMethod, verificationMethod
// did:key:KEY#KEY. KEY has to be among the updateKeys of the entry before; of the entry itself
// in the first one, and where the entry before has nextKeyHashes, in which then the hash of
// each of the keys has to be.
//
//	parameters      method, scid, updateKeys in the first entry; later what changes
//	method          "did:webvh:1.0"
//	updateKeys      keys that may sign the next entry, z6Mk…
//	nextKeyHashes   base58btc(multihash(KEY)) of the keys that may be next; [] switches it off
//	witness         {"threshold":n,"witnesses":[{"id":"did:key:…"}]}: who has to approve; {}: nobody
//	watchers, ttl   for resolvers; ttl in seconds, 3600 if absent
//	portable        true in the first entry only: host and path may change
//	deactivated     true: the last entry
//
// Witnesses sign {"versionId":"…"} in the same way, in did-witness.json beside the log:
// [{"versionId":"…","proof":[…]}].
//
// Narrower than the specification: hosts and paths are ASCII without percent signs, keys are
// Ed25519. docs/identity.md has the checklist, with the test of each point.
package did
