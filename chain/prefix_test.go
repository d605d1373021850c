package chain_test

import (
	"testing"

	"github.com/chordwheel/chordwheel/chain"
)

func TestTextIsSignedBehindItsPrefix(t *testing.T) {
	key, err := chain.NewKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	public, err := key.PeerID().Public()
	if err != nil {
		t.Fatal(err)
	}
	signature, err := key.SignText(chain.PrefixExec, []byte("{}"))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		prefix chain.Prefix
		text   string
		want   bool
	}{
		"as signed":              {chain.PrefixExec, "{}", true},
		"another text":           {chain.PrefixExec, "[]", false},
		"another prefix":         {"chordwheel-receipt-v1\n", "{}", false},
		"the prefix in the text": {"", string(chain.PrefixExec) + "[]", false},
	} {
		if got := chain.VerifyText(public, c.prefix, []byte(c.text), signature); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
	if chain.VerifyText(nil, chain.PrefixExec, []byte("{}"), signature) || chain.VerifyText(public, chain.PrefixExec, []byte("{}"), nil) {
		t.Error("no key, or no signature, was accepted")
	}
	if _, err := (chain.Key{}).SignText(chain.PrefixExec, nil); err == nil {
		t.Error("nobody signed")
	}
}
