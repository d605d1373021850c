package chain_test

import (
	"encoding/base64"
	"errors"
	"strings"
	"testing"

	"github.com/chordwheel/chordwheel/chain"
)

func TestControl(t *testing.T) {
	key, err := chain.NewKey(strings.NewReader(strings.Repeat("k", 64)))
	if err != nil {
		t.Fatal(err)
	}
	public, err := key.PeerID().Public()
	if err != nil {
		t.Fatal(err)
	}
	proof := chain.Control{Audience: "https://hub.example:7443", Challenge: "c1", DID: chain.DIDKey(public)}
	signature, err := proof.Sign(key)
	if err != nil || proof.Verify(public, signature) != nil {
		t.Fatal(signature, err)
	}
	raw, err := key.SignText(chain.PrefixControl, []byte(`{"aud":"https://hub.example:7443","challenge":"c1","did":"`+proof.DID+`"}`))
	if err != nil || signature != base64.RawURLEncoding.EncodeToString(raw) {
		t.Error("the signed text is not the canonical form", err)
	}
	for name, other := range map[string]chain.Control{
		"another service":   {Audience: "https://hub.example", Challenge: "c1", DID: proof.DID},
		"another challenge": {Audience: proof.Audience, Challenge: "c2", DID: proof.DID},
		"another DID":       {Audience: proof.Audience, Challenge: "c1", DID: proof.DID + "x"},
		"a quote":           {Audience: proof.Audience, Challenge: `c1","did":"x`, DID: proof.DID},
		"nothing":           {},
	} {
		if err := other.Verify(public, signature); !errors.Is(err, chain.ErrControl) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A signature for another purpose is no proof, nor the reverse.
	statement, err := key.SignText(chain.PrefixExec, []byte(`{"aud":"https://hub.example:7443","challenge":"c1","did":"`+proof.DID+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{base64.RawURLEncoding.EncodeToString(statement), signature + "=", signature[:80], "", signature[:85] + "\n" + signature[85:]} {
		if err := proof.Verify(public, bad); !errors.Is(err, chain.ErrControl) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := (chain.Control{Audience: "a", Challenge: "b\n", DID: "c"}).Sign(key); !errors.Is(err, chain.ErrControl) {
		t.Error(err)
	}
	if _, err := proof.Sign(chain.Key{}); err == nil {
		t.Error("nobody signed")
	}
}
