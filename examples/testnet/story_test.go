package testnet_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/examples/testnet"
	"github.com/chordwheel/chordwheel/mesh/exec"
)

// TestTwentyDevices: join, work, loss and return of devices, partition, heal, loss and
// return of the hub, a change of policy, revocation.
func TestTwentyDevices(t *testing.T) {
	testnet.Run(t, testnet.Config{Devices: devices, Seeds: stories}, func(n *testnet.Net) {
		all := n.Names()
		step := func(what string) {
			t.Helper()
			n.Check()
			t.Logf("seed %d: %s is done at %s", n.Seed(), what, time.Now().Format(time.TimeOnly))
		}
		answered := func() {
			t.Helper()
			for _, a := range n.AskAll() {
				a.WantAnswer()
			}
		}

		n.JoinAll()
		step("join")

		answered()
		foreign := 0
		for _, c := range n.Upstream.Calls() {
			if c.Foreign() {
				foreign++
			}
		}
		if foreign == 0 {
			t.Errorf("seed %d: no device ran another's work", n.Seed())
		}
		step("work")

		// A device that can do the work crashes while it works for others.
		n.Upstream.Pause(3 * time.Second)
		answers := make(chan []testnet.Answer)
		go func() { answers <- n.AskAll() }()
		n.Wait(time.Second)
		n.Network.Cut([]int{3}, n.Network.Others(3))
		for _, a := range <-answers {
			if a.From != "c" {
				a.WantAnswer()
			}
		}
		n.Upstream.Pause(0)
		n.Kill("c")
		bound := len(n.Upstream.Calls())
		answered()
		for _, c := range n.Upstream.Calls()[bound:] {
			if c.Device == "c" {
				t.Errorf("seed %d: a dead device ran %s", n.Seed(), c.ID)
			}
		}
		step("loss of a device")
		n.Start("c")
		n.Met(5 * time.Minute)
		answered()
		step("return of a device")

		half := len(all) / 2
		n.Cut(append(slices.Clone(all[:half]), testnet.Hub), all[half:])
		answered()
		n.Wait(time.Minute)
		answered()
		step("partition")
		n.Heal()
		n.Met(15 * time.Minute)
		answered()
		step("heal")

		n.Kill(testnet.Hub)
		answered()
		n.Kill("d")
		n.Start("d") // without a hub
		n.Ask("d").WantAnswer()
		step("loss of the hub")
		n.Start(testnet.Hub)
		reachable(n, all)
		answered()
		step("return of the hub")

		n.Reload(strings.Replace(testnet.DefaultCatalogue, "default: [local, alpha/small, peer, beta/small]", "default: [beta/small]", 1))
		n.Until(30*time.Second, "the new order is in force everywhere", func() bool {
			for _, a := range n.AskAll() {
				if a.WantAnswer().Option != "beta/small" && !strings.HasPrefix(a.Option, "local/") {
					return false
				}
			}
			return true
		})
		n.Reload(testnet.DefaultCatalogue)
		step("a change of policy")

		n.Revoke("f")
		n.Until(2*time.Minute, "all know that f was revoked", func() bool {
			for _, name := range all {
				if name != "f" && n.Device(name).Sees("f") == "live" {
					return false
				}
			}
			return true
		})
		before := len(n.Upstream.Calls())
		n.Ask("f") // whatever it may still do by itself, nobody does it for it
		for _, c := range n.Upstream.Calls()[before:] {
			if c.Foreign() && strings.HasPrefix(c.ID, "f-") {
				t.Errorf("seed %d: %s ran work of a revoked device", n.Seed(), c.Device)
			}
		}
		answered()
		step("revocation")
	})
}

// reachable waits until these devices have found the hub again.
func reachable(n *testnet.Net, names []string) {
	for _, name := range names {
		n.Until(10*time.Minute, name+" reaches the hub", func() bool { return n.Device(name).Status().Hub.Reachable })
	}
}

// TestRandomDays: whatever happens, in whatever order.
func TestRandomDays(t *testing.T) {
	testnet.Run(t, testnet.Config{Devices: 7, Seeds: days}, func(n *testnet.Net) {
		n.JoinAll()
		n.Wander(60)
	})
}

// TestAChainEnds: a device that never hears of its hub again works until its chain
// expires, and not a second longer. It is switched off in between: a week of two
// machines that look for each other takes a while even in virtual time.
func TestAChainEnds(t *testing.T) {
	testnet.Run(t, testnet.Config{Devices: 1}, func(n *testnet.Net) {
		n.JoinAll()
		n.Kill(testnet.Hub)
		off := func(d time.Duration) {
			n.Stop("a")
			n.Wait(d)
			n.Start("a")
		}
		off(7*24*time.Hour - time.Minute)
		n.Ask("a").WantAnswer()
		n.Check()
		off(time.Minute)
		if a := n.Ask("a"); a.Status != 503 {
			t.Errorf("after the chain's end: %+v", a)
		}
		n.Start(testnet.Hub)
		reachable(n, []string{"a"})
		n.Until(time.Minute, "it has a chain in force", func() bool { return n.Ask("a").Status == 200 })
	})
}

// TestAKeyIsOnNoStream: both devices have a key of the same name, and each works for the
// other with its own. What streams carry is watched in every test of this package.
func TestAKeyIsOnNoStream(t *testing.T) {
	catalogue := strings.Replace(testnet.DefaultCatalogue, "tries: 2}", "tries: 2, via: [local, provider]}", 1)
	catalogue = strings.Replace(catalogue, "default: [local, alpha/small, peer, beta/small]", "default: [peer, local, alpha/small]", 1)
	cfg := testnet.Config{Devices: 2, Catalogue: catalogue, Keys: map[string][]string{"a": {"alpha"}, "b": {"alpha"}}, Models: map[string][]string{"a": {"m"}, "b": {"m"}}}
	testnet.Run(t, cfg, func(n *testnet.Net) {
		n.Upstream.Down("local/a/m", true)
		n.Upstream.Down("local/b/m", true)
		n.JoinAll()
		for _, name := range n.Names() {
			if a := n.Ask(name).WantAnswer(); a.Option != "peer" {
				t.Errorf("not handed on: %+v", a)
			}
		}
		calls := n.Upstream.Calls()
		if end := calls[len(calls)-1]; end.Option != "alpha/small" {
			t.Errorf("want the other's key at work: %+v", end)
		}
		for _, c := range calls {
			if !c.Foreign() {
				t.Errorf("it ran at home: %+v", c)
			}
		}
		if n.Carried(exec.Protocol) == 0 {
			t.Error("nothing was seen on the streams of exec: the test says nothing")
		}
		n.Check()
	})
}

// TestLocalOnlyStaysHere: where the data may not leave the device, a peer that could do it
// is not asked, and a device without a means of its own has none.
func TestLocalOnlyStaysHere(t *testing.T) {
	catalogue := strings.Replace(testnet.DefaultCatalogue, "    default: [local, alpha/small, peer, beta/small]\n    peer: {requires: [\"execute:llm.chat\"], tries: 2}\n    withheld: [gamma/large]\n",
		"    default: [local]\n    source: {data: local-only}\n", 1)
	testnet.Run(t, testnet.Config{Devices: 2, Catalogue: catalogue, Models: map[string][]string{"b": {"m"}}}, func(n *testnet.Net) {
		n.Join("b") // before it there is nothing that could be offered
		n.Join("a")
		n.Met(time.Minute)
		n.Ask("b").WantAnswer()
		if a := n.Ask("a"); a.Status == 200 {
			t.Errorf("a has nothing of its own, and answered: %+v", a)
		}
		if calls := n.Upstream.Calls(); len(calls) != 1 || n.Carried(exec.Protocol) != 0 {
			t.Errorf("calls %v, %d bytes on streams of exec", calls, n.Carried(exec.Protocol))
		}
		n.Check()
	})
}
