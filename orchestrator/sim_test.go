package orchestrator_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/sim"
	"github.com/chordwheel/chordwheel/mesh/spoke"
	"github.com/chordwheel/chordwheel/mesh/wire"
	"github.com/chordwheel/chordwheel/orchestrator"
)

// node is a bare device in the simulated network.
type node struct {
	*mesh.Device
	mu    sync.Mutex
	heard uint64 // highest sequence of an invalidation
	lists int
	mark  chain.Mark

	membership []byte
}

func (n *node) told() (seq uint64, lists int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.heard, n.lists
}

// startHub starts a hub on node 0, and gives what its devices pin. The caller closes
// the hub first, its link after it.
func startHub(t *testing.T, net *sim.Net, log *slog.Logger) (*orchestrator.Hub, *mesh.Hub, chain.Trust) {
	t.Helper()
	key, err := chain.NewKey(net.Random(0))
	if err != nil {
		t.Fatal(err)
	}
	d := newDisk()
	id, err := orchestrator.MeshID(d)
	if err != nil {
		t.Fatal(err)
	}
	hub, err := orchestrator.New(orchestrator.Config{Key: key, Mesh: id, Catalogue: parsed(t, declared), Storage: d.storage(), Log: log,
		Addrs: func() []string { return net.Addrs(0) }})
	if err != nil {
		t.Fatal(err)
	}
	link, err := mesh.NewHub(mesh.HubConfig{Key: key, Mesh: id, Host: net.HostFactory(0), Handler: hub, Log: log, OnChords: hub.Adjacent, OnGone: hub.Gone})
	if err != nil {
		t.Fatal(err)
	}
	if err := link.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := hub.Start(t.Context(), link); err != nil {
		t.Fatal(err)
	}
	return hub, link, chain.Trust{Mesh: id, Orchestrator: key.PeerID()}
}

// TestOverTheMesh: the hub with real hosts, QUIC and gossip. Devices join, are told
// of each new chain, fetch and verify it, report, protest and are revoked; and
// nothing in the process ever asked the hub to dial.
func TestOverTheMesh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const devices = 3
		net := sim.New(sim.Config{Nodes: devices + 1})
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("seed %d", net.Seed())
			}
		})
		defer net.Close()
		log := slog.New(slog.NewTextHandler(t.Output(), nil))
		hub, link, trust := startHub(t, net, log)
		defer link.Close()
		defer hub.Close()

		made, err := hub.Invite(t.Context(), orchestrator.Invite{Uses: devices})
		if err != nil {
			t.Fatal(err)
		}
		var nodes []*node
		for i := 1; i <= devices; i++ {
			n := join(t, net, i, made.Text, log)
			defer n.Close()
			nodes = append(nodes, n)
		}
		time.Sleep(5 * time.Second) // the gossip's mesh forms
		order := func(n *node) (*chain.Chain, []chain.OptionID) {
			t.Helper()
			f, err := n.Fetch(t.Context(), wire.Fetch{Slot: home})
			if err != nil {
				t.Fatal(err)
			}
			c, err := trust.Verify(home, f.Head, f.Body, n.mark, time.Now())
			if err != nil {
				t.Fatal(err)
			}
			n.mark = c.Mark()
			return c, ids(c.Options())
		}
		everyoneHears := func(what string) {
			t.Helper()
			chains, err := hub.Chains(t.Context())
			if err != nil || len(chains) != 1 {
				t.Fatal(err)
			}
			for i, n := range nodes {
				for end := time.Now().Add(2 * time.Second); ; time.Sleep(10 * time.Millisecond) {
					if seq, _ := n.told(); seq == chains[0].Seq {
						break
					}
					if time.Now().After(end) {
						t.Fatalf("%s: device %d was not told of sequence %d", what, i+1, chains[0].Seq)
					}
				}
			}
		}
		_, got := order(nodes[0])
		wantOrder(t, got, "alpha/small", "beta/small", "peer")

		if err := hub.Reload(t.Context(), parsed(t, strings.Replace(declared, "[alpha/small, beta/small, peer]", "[beta/small, alpha/small, peer]", 1))); err != nil {
			t.Fatal(err)
		}
		everyoneHears("a reload")
		for _, n := range nodes {
			_, got = order(n)
			wantOrder(t, got, "beta/small", "alpha/small", "peer")
		}

		for seq := range uint64(3) {
			reply, err := nodes[1].Report(t.Context(), batch("boot-2", seq+1, "beta/small", chain.Unreachable, 20, time.Second))
			if err != nil || !reply.Accepted {
				t.Fatalf("%+v %v", reply, err)
			}
		}
		everyoneHears("a report")
		c, got := order(nodes[2])
		want(t, "first option after the failures", got[0], "alpha/small")

		reply, err := nodes[2].Protest(t.Context(), wire.Protest{Slot: home, Body: c.Head().Body, Nonce: "n", Failed: []chain.Failure{{Option: "alpha/small", Class: chain.Timeout}}})
		if err != nil {
			t.Fatal(err)
		}
		options, err := trust.VerifyExtension(c, "n", nodes[2].PeerID(), reply.Extension, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		wantOrder(t, ids(options), "gamma/large")

		if _, err := hub.Revoke(t.Context(), string(nodes[2].PeerID())); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		for i, n := range nodes[:2] {
			if _, lists := n.told(); lists == 0 {
				t.Errorf("device %d did not hear of the revocation", i+1)
			}
		}
		_, err = nodes[2].Fetch(t.Context(), wire.Fetch{Slot: home})
		want(t, "the revoked device", code(err), spoke.CodeRevoked)

		s, err := hub.Status(t.Context())
		if err != nil || s.DialsAsked == nil || *s.DialsAsked != 0 {
			t.Errorf("dials asked: %v, %v", s.DialsAsked, err)
		}
		for _, d := range s.Devices {
			if !strings.HasSuffix(d.Network, "/24") && !strings.HasSuffix(d.Network, "/48") {
				t.Errorf("device %s speaks from network %q", d.Name, d.Network)
			}
		}
	})
}

// TestAClosedConnectionIsNoPresence: the hub's own link tells it that a device's last
// connection has ended, and that one is offline then; the other stays.
func TestAClosedConnectionIsNoPresence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		net := sim.New(sim.Config{Nodes: 3})
		t.Cleanup(func() {
			if t.Failed() {
				t.Logf("seed %d", net.Seed())
			}
		})
		defer net.Close()
		log := slog.New(slog.NewTextHandler(t.Output(), nil))
		hub, link, _ := startHub(t, net, log)
		defer link.Close()
		defer hub.Close()
		made, err := hub.Invite(t.Context(), orchestrator.Invite{Uses: 2})
		if err != nil {
			t.Fatal(err)
		}
		leaves, stays := join(t, net, 1, made.Text, log), join(t, net, 2, made.Text, log)
		defer stays.Close()
		states := func() string {
			s, err := hub.Status(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			var said []string
			for _, d := range s.Devices {
				said = append(said, d.Name+" "+d.State)
			}
			slices.Sort(said)
			return strings.Join(said, ", ")
		}
		time.Sleep(5 * time.Second)
		want(t, "both there", states(), "d1 online, d2 online")
		if err := leaves.Close(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		want(t, "one gone", states(), "d1 offline, d2 online")
	})
}

// join starts the node at place i and enrols it.
func join(t *testing.T, net *sim.Net, i int, text string, log *slog.Logger) *node {
	t.Helper()
	invitation, err := member.ParseInvitation(text)
	if err != nil {
		t.Fatal(err)
	}
	key, err := chain.NewKey(net.Random(i))
	if err != nil {
		t.Fatal(err)
	}
	n := &node{}
	n.Device, err = mesh.NewDevice(mesh.DeviceConfig{Key: key, Trust: invitation.Trust(), HubAddrs: invitation.Addresses, Host: net.HostFactory(i), Log: log,
		OnInvalidation: func(slot chain.Slot, seq uint64, _ []byte) {
			n.mu.Lock()
			defer n.mu.Unlock()
			if slot == home {
				n.heard = max(n.heard, seq)
			}
		},
		OnRevoked: func([]byte) { n.mu.Lock(); defer n.mu.Unlock(); n.lists++ },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	w, err := n.Hello(ctx, wire.Hello{Version: "test", DeviceID: chain.DeviceID(fmt.Sprintf("00000000-0000-4000-8000-%012d", i)), Name: fmt.Sprintf("d%d", i),
		BootID: fmt.Sprintf("boot-%d", i), Capabilities: []chain.Capability{"key:alpha", "key:beta", "execute:llm.chat"},
		Invitation: &wire.Redeem{Secret: invitation.Secret, Scope: invitation.Scope}})
	if err != nil {
		t.Fatal(err)
	}
	n.membership = w.Membership
	if err := n.Join(w.Topics...); err != nil {
		t.Fatal(err)
	}
	return n
}
