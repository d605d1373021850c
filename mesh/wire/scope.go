package wire

import (
	"crypto/hmac"
	"crypto/sha256"

	"github.com/chordwheel/chordwheel/chain"
)

// PolicyShards is how many policy topics a mesh has. Devices of different
// scopes that share a shard carry each other's invalidations.
const PolicyShards = 16

// ScopeHash stands for a scope where strangers listen: the first 16 bytes of
// HMAC-SHA-256 under the scope's topic key over "chordwheel-scope", a newline and
// the scope. Only who was given the key can tell which scope it is.
func ScopeHash(key []byte, scope chain.ScopeID) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("chordwheel-scope\n"))
	mac.Write([]byte(scope))
	return mac.Sum(nil)[:16]
}

// PolicyShard is the number of the policy topic of a scope: the first byte of
// SHA-256 over "chordwheel-shard", a newline and the scope, modulo PolicyShards.
func PolicyShard(scope chain.ScopeID) int {
	sum := sha256.Sum256([]byte("chordwheel-shard\n" + string(scope)))
	return int(sum[0]) % PolicyShards
}
