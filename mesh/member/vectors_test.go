package member

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"flag"
	"math/rand"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

var update = flag.Bool("update", false, "rewrite the vectors under testdata")

// vectors is what another implementation can be held to: all of it follows
// from the seed, the fields and docs/wire.md.
type vectors struct {
	Note        string       `json:"note"`
	Key         string       `json:"orchestrator_key_hex"` // libp2p protobuf form
	PeerID      chain.PeerID `json:"orchestrator_peer_id"`
	Mesh        chain.MeshID `json:"mesh"`
	Membership  signed       `json:"membership"`
	Revocations signed       `json:"revocations"`
	Invitation  struct {
		CBOR   string `json:"cbor_hex"`
		Text   string `json:"text"`
		Secret string `json:"secret_hex"`
		Hash   string `json:"secret_hash"`
	} `json:"invitation"`
}

type signed struct {
	Fields   any    `json:"fields"`
	CBOR     string `json:"cbor_hex"`
	Envelope string `json:"envelope_hex"`
}

func TestVectors(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	k, err := chain.NewKey(rand.New(rand.NewSource(1)))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "vectors.json")
	old, err := os.ReadFile(path)
	if err == nil { // the key stands in the file: no generator is part of the format
		var v vectors
		if err := json.Unmarshal(old, &v); err != nil {
			t.Fatal(err)
		}
		b, _ := hex.DecodeString(v.Key)
		if k, err = chain.ParseKey(b); err != nil {
			t.Fatal(err)
		}
	}
	device := chain.PeerID("12D3KooWEYBqyRNtbnJxuAeEGRF5pHn2wLDPsFB3vZGNBGXbHoxX")
	if other, err := chain.NewKey(rand.New(rand.NewSource(2))); err == nil && len(old) == 0 {
		device = other.PeerID()
	} else if len(old) > 0 {
		var v struct {
			Membership struct {
				Fields Membership `json:"fields"`
			} `json:"membership"`
		}
		if err := json.Unmarshal(old, &v); err != nil {
			t.Fatal(err)
		}
		device = v.Membership.Fields.Peer
	}
	m := Membership{Mesh: "m", DeviceID: "7f6c2f0a-6d3c-4f6e-9a52-0f3c1f9a7b11", Peer: device, Name: "laptop", Scopes: []chain.ScopeID{chain.DefaultScope},
		Granted: []Pattern{"execute:*", "submit"}, Issued: chain.InstantOf(at), Expires: chain.InstantOf(at.Add(Lifetime)), Serial: 7}
	r := Revocations{Mesh: "m", Seq: 3, Issued: chain.InstantOf(at), Ended: []Ended{{device, chain.InstantOf(at)}}}
	i := Invitation{Mesh: "m", Orchestrator: k.PeerID(), Addresses: []string{"/ip4/192.0.2.7/tcp/7411"}, Scope: chain.DefaultScope,
		Secret: bytes.Repeat([]byte{0xA5}, 32), Expires: chain.InstantOf(at.Add(DefaultTTL)), Uses: 1}

	private, err := k.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	v := vectors{Note: "keys and secrets of this file are examples and protect nothing", Key: hex.EncodeToString(private), PeerID: k.PeerID(), Mesh: "m"}
	v.Membership.Fields, v.Revocations.Fields = m, r
	v.Membership.CBOR, v.Membership.Envelope = both(t, m, func() ([]byte, error) { return Issue(k, m) })
	v.Revocations.CBOR, v.Revocations.Envelope = both(t, r, func() ([]byte, error) { return Revoke(k, r) })
	v.Invitation.CBOR, _ = both(t, plain(i), func() ([]byte, error) { return nil, nil })
	if v.Invitation.Text, err = i.Encode(); err != nil {
		t.Fatal(err)
	}
	v.Invitation.Secret, v.Invitation.Hash = hex.EncodeToString(i.Secret), HashSecret(i.Secret)

	got, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	got = append(got, '\n')
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
		old = got
	}
	if !bytes.Equal(got, old) {
		t.Errorf("the formats changed: an older device would not read what this one writes\n%s", got)
	}
	// And back, from the bytes of the file.
	envelope, _ := hex.DecodeString(v.Membership.Envelope)
	if back, err := Verify(chain.Trust{Mesh: "m", Orchestrator: k.PeerID()}, envelope, at); err != nil || back.Serial != 7 {
		t.Errorf("%+v %v", back, err)
	}
	if back, err := ParseInvitation(v.Invitation.Text); err != nil || HashSecret(back.Secret) != v.Invitation.Hash {
		t.Errorf("%v %v", back, err)
	}
}

func both(t *testing.T, v any, sign func() ([]byte, error)) (payload, envelope string) {
	t.Helper()
	p, err := chain.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	e, err := sign()
	if err != nil {
		t.Fatal(err)
	}
	return hex.EncodeToString(p), hex.EncodeToString(e)
}

// What stands behind the checksum is foreign too: whoever invites may be
// hostile.
func FuzzInvitationContent(f *testing.F) {
	good, err := chain.Marshal(plain{Mesh: "m", Orchestrator: "12D3KooWEYBqyRNtbnJxuAeEGRF5pHn2wLDPsFB3vZGNBGXbHoxX", Addresses: []string{"/ip4/192.0.2.7/tcp/7411"},
		Scope: chain.DefaultScope, Secret: make([]byte, 32), Expires: 1, Uses: 1})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte{0xa0})
	f.Fuzz(func(t *testing.T, content []byte) {
		if len(content) > 8000 {
			return
		}
		b := append(binary.BigEndian.AppendUint16(nil, uint16(len(content))), content...)
		i, err := ParseInvitation(prefix + base64.RawURLEncoding.EncodeToString(append(b, checksum(b)...)))
		if err == nil && i.validate() != nil {
			t.Error("accepted what is out of range")
		}
	})
}
