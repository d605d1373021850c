package chaintest

import (
	"strings"

	"github.com/chordwheel/chordwheel/chain"
)

// NoDIDs gives texts that look like DIDs and are none, by what is wrong with them: nothing
// that takes a DID from outside may take one of them.
func NoDIDs() map[string]string {
	return map[string]string{
		"the scheme alone":      "did:",
		"no method":             "did::x",
		"no id":                 "did:web:",
		"nothing behind":        "did:web:a.example:",
		"capitals":              "did:Web:a.example",
		"a path":                "did:web:a.example/x",
		"a query":               "did:web:a.example?versionId=1",
		"a fragment":            "did:web:a.example#key",
		"a quote":               `did:web:a"b`,
		"brackets":              "did:web:<a>",
		"half an escape":        "did:web:a%4",
		"letters beyond ASCII":  "did:web:é.example",
		"a blank":               "did:web:a b",
		"too long":              "did:web:" + strings.Repeat("x", chain.MaxDIDBytes),
		"a key cut short":       Key(1).DID()[:40],
		"a key that is none":    "did:key:z6MkAgent",
		"a key and a fragment":  Key(1).DID() + "#" + strings.TrimPrefix(Key(1).DID(), "did:key:"),
		"a key in another base": "did:key:f" + "ed01" + strings.Repeat("00", 32),
	}
}
