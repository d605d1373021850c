package chain_test

import (
	"errors"
	"math/rand"
	"strings"
	"testing"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
)

// The pair stands in the did:key method's own text: the DID and its key in hex.
const knownDID = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"

func TestADIDIsTheKeyItself(t *testing.T) {
	public, err := chain.ParseDIDKey(knownDID)
	if err != nil {
		t.Fatal(err)
	}
	if got := chain.DIDKey(public); got != knownDID {
		t.Errorf("DIDKey gives %s, want %s", got, knownDID)
	}
	key, err := chain.NewKey(rand.New(rand.NewSource(1)))
	if err != nil {
		t.Fatal(err)
	}
	fromPeer, err := key.PeerID().Public()
	if err != nil {
		t.Fatal(err)
	}
	if fromDID, err := chain.ParseDIDKey(key.PeerID().DID()); err != nil || !fromDID.Equal(fromPeer) {
		t.Errorf("the DID of a peer ID names key %x (%v), the peer ID itself %x", fromDID, err, fromPeer)
	}
	if peer, err := chain.PeerOfDID(key.PeerID().DID()); err != nil || peer != key.PeerID() {
		t.Errorf("the peer of the DID of %s is %s (%v)", key.PeerID(), peer, err)
	}
	if _, err := chain.PeerOfDID("did:key:z6Mk"); !errors.Is(err, chain.ErrDID) {
		t.Errorf("the peer of no DID: %v", err)
	}
}

func TestWhatIsNoDIDKeyIsRefused(t *testing.T) {
	for _, bad := range []string{"", "did:key:", "did:key:z", "did:web:example.org", knownDID + "1", knownDID[:len(knownDID)-1], strings.ToUpper(knownDID),
		"did:key:f" + "ed01" + strings.Repeat("00", 32),             // another base
		"did:key:zQ3shokFTS3brHcDQrn82RUDfCZESWL1ZdCEJwekUDPQiYBme", // secp256k1
		"did:key:z" + strings.Repeat("1", 5000), knownDID + "#" + "key1"} {
		if _, err := chain.ParseDIDKey(bad); !errors.Is(err, chain.ErrDID) {
			t.Errorf("ParseDIDKey(%q) gives %v, want ErrDID", chain.Clip(bad), err)
		}
	}
	for _, bad := range []chain.PeerID{"", "x", "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"} {
		if did := bad.DID(); did != "" {
			t.Errorf("peer ID %q has DID %s", bad, did)
		}
	}
}

func FuzzParseDIDKey(f *testing.F) {
	f.Add(knownDID)
	f.Add("did:key:zQ3shokFTS3brHcDQrn82RUDfCZESWL1ZdCEJwekUDPQiYBme")
	f.Fuzz(func(t *testing.T, did string) {
		if public, err := chain.ParseDIDKey(did); err == nil && chain.DIDKey(public) != did {
			t.Errorf("%q was accepted and is spelled %q", did, chain.DIDKey(public))
		}
	})
}

func TestIsDID(t *testing.T) {
	for _, s := range []string{knownDID, "did:web:a.example%3A8443:agents:x", "did:webvh:Qm_1-2:a.example", "did:1:0", "did:a::b"} {
		if !chain.IsDID(s) {
			t.Errorf("%q is one", s)
		}
	}
	for why, s := range chaintest.NoDIDs() {
		if chain.IsDID(s) {
			t.Errorf("%s: %q is none", why, s)
		}
	}
	for _, s := range []string{"", "did", "did:", "did:web", "did:web:", "did::x", "did:Web:x", "DID:web:x", "did:web:x:", "did:web:x/y", "did:web:x#k", "did:web:x?y", "did:web:x y", "did:web:x%3", "did:web:x%zz", "did:web:é", "did:key:z6Mk", knownDID + "1", "did:web:" + strings.Repeat("x", chain.MaxDIDBytes)} {
		if chain.IsDID(s) {
			t.Errorf("%q is none", s)
		}
	}
}
