package main

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/authority"
	"github.com/chordwheel/chordwheel/daemon/gate"
	"github.com/chordwheel/chordwheel/daemon/snapshot"
	"github.com/chordwheel/chordwheel/daemon/token"
	"github.com/chordwheel/chordwheel/store/datadir"
)

// copied opens a copy of one file of a data directory that a process holds.
func copied(t *testing.T, from string, names ...string) *datadir.Dir {
	t.Helper()
	to := filepath.Join(t.TempDir(), "copy")
	if err := os.MkdirAll(to, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(to, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dir, err := datadir.Open(to)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := dir.Close(); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// pinOf gives the SHA-256 of the certificate that a hub's services show.
func pinOf(t *testing.T, url string) string {
	t.Helper()
	c, err := tls.Dial("tcp", strings.TrimPrefix(url, "https://"), &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS13})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sum := sha256.Sum256(c.ConnectionState().PeerCertificates[0].Raw)
	return hex.EncodeToString(sum[:])
}

// A hub of `up` has its registry and its trust server where devices are told that they are:
// over TLS 1.3 with the certificate that it pins, and no other. A device of it gets tokens for
// agents of its chain, which end with its membership.
func TestTheHubIsARegistryAndATrustServer(t *testing.T) {
	dir := t.TempDir()
	p := start(t, "up", "--dir", dir, "--devices", "2")
	url := p.ready.Hub.Authority
	if _, err := tls.Dial("tcp", strings.TrimPrefix(url, "https://"), &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}); err == nil {
		t.Error("the services speak TLS 1.2")
	}
	pin := pinOf(t, url)
	wrong, err := authority.New(url, authority.Options{Pin: strings.Repeat("00", 32)})
	if err != nil {
		t.Fatal(err)
	}
	defer wrong.Close()
	if _, err := wrong.Do(t.Context(), "GET", "/trust/v1/keys", nil, nil, 1<<16); !errors.Is(err, authority.ErrPin) {
		t.Errorf("another certificate: %v", err)
	}

	keys := map[string]chain.Key{}
	for _, d := range p.ready.Devices {
		key, err := copied(t, d.DataDir, datadir.IdentityFile).Identity()
		if err != nil {
			t.Fatal(err)
		}
		keys[d.Name] = key
	}
	client, err := authority.New(url, authority.Options{Pin: pin})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	agents, err := snapshot.New(snapshot.Config{Server: client, Registry: url, Own: true, Store: datadir.File(filepath.Join(t.TempDir(), "agents"))})
	if err != nil {
		t.Fatal(err)
	}
	defer agents.Close()
	agents.Start(t.Context())
	first, second := p.ready.Devices[0], p.ready.Devices[1]
	self, peer := keys[first.Name].PeerID().DID(), keys[second.Name].PeerID().DID()
	standing := func(did string) gate.Standing { return agents.Standing(did, string(chain.LLMChat), time.Now()) }
	for _, did := range []string{self, peer} {
		if got := standing(did); got != gate.Active {
			t.Errorf("%s is %v in the registry", did, got)
		}
	}

	mine := minting(t, client, keys[first.Name])
	got, err := mine.Token(t.Context(), peer, string(chain.LLMChat))
	if err != nil {
		t.Fatal(err)
	}
	g, err := gate.New(gate.Enforce, gate.Verifier{Keys: mine, Issuer: client.Origin()}, agents)
	if err != nil {
		t.Fatal(err)
	}
	at := gate.Request{Token: got.Value, Agent: peer, Capability: string(chain.LLMChat), From: keys[first.Name].PeerID(), Nonce: "1"}
	if d := g.Decide(t.Context(), time.Now(), at); !d.Allowed() {
		t.Errorf("the peer's gate: %v", d.Denial)
	}
	refused := func(what string, c *token.Client, agent, want string) {
		t.Helper()
		if _, err := c.Token(t.Context(), agent, string(chain.LLMChat)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", what, err, want)
		}
	}
	refused("an agent that is nobody", mine, newKey(t).PeerID().DID(), "no_agent")
	refused("a stranger", minting(t, client, newKey(t)), peer, "unknown_seeker")

	good(t, "revoke", second.Name, "--dir", filepath.Join(dir, "hub"))
	if err := agents.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := standing(peer); got != gate.Suspended {
		t.Errorf("a revoked device is %v in the registry", got)
	}
	at.Nonce = "2"
	if d := g.Decide(t.Context(), time.Now(), at); d.Allowed() || d.Denial.Code != gate.AgentSuspended {
		t.Errorf("a revoked agent's gate: %+v", d)
	}
	refused("a revoked agent", minting(t, client, keys[first.Name]), peer, "agent_suspended")
	refused("a revoked seeker", minting(t, client, keys[second.Name]), self, "unknown_seeker")
}

// minting is a device's side of the trust server.
func minting(t *testing.T, client *authority.Client, key chain.Key) *token.Client {
	t.Helper()
	c, err := token.New(token.Config{Server: client, Key: key, Issuer: client.Origin()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// What signs tokens outlives the process, and no key of it stands in the data directory.
func TestTheKeysForTokensOutliveARestart(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "hub")
	kids := func() (list []string) {
		p := start(t, "orchestrator", "--dir", dir, "--web", "127.0.0.1:0", "--authority", "127.0.0.1:0", "--listen", "/ip4/127.0.0.1/tcp/0")
		defer p.stop()
		client, err := authority.New(p.ready.Hub.Authority, authority.Options{Pin: pinOf(t, p.ready.Hub.Authority)})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		a, err := client.Do(t.Context(), "GET", "/trust/v1/keys", nil, nil, 1<<16)
		if err != nil || a.Status != 200 {
			t.Fatal(a.Status, err)
		}
		return strings.Split(string(a.Body), `"kid":`)[1:]
	}
	before := kids()
	if after := kids(); !slices.Equal(before, after) || len(after) != 1 {
		t.Errorf("before %s\nafter  %s", before, after)
	}
	info, err := os.Stat(filepath.Join(dir, "trust-key"))
	if err != nil || info.Mode().Perm() != 0o600 || info.Size() > 256 {
		t.Errorf("the count: %v %v", info, err)
	}
}
