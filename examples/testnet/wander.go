package testnet

import (
	"fmt"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Wander takes so many random steps, drawn from [Net.Random]: devices and the hub crash and
// come back, the network is cut, loses packets and heals, services fail, policy changes,
// now and then a device is revoked. It checks after each step that everything that
// must hold does, and that every device that may ask is answered, as long as the last
// option of the catalogue needs nobody. What it did is logged. In the end all is healed,
// and it checks that the mesh finds together again.
func (n *Net) Wander(steps int) {
	n.t.Helper()
	for i := range steps {
		what := n.step()
		time.Sleep(time.Duration(n.Random.IntN(5000)) * time.Millisecond)
		n.t.Logf("%s step %d: %s", time.Now().Format(time.TimeOnly), i+1, what)
		if d := n.any(func(d *Device) bool { return d.Runs() && d.Joined }); d != nil {
			n.Ask(d.Name).WantAnswer()
		}
		n.Check()
	}
	n.Recover()
}

// Recover undoes all that was done to the world, waits until everybody has found everybody,
// and wants an answer at each device.
func (n *Net) Recover() {
	n.t.Helper()
	n.Heal()
	n.Network.Loss(0)
	for _, id := range []chain.OptionID{"alpha/small", "gamma/large"} {
		n.Upstream.Down(id, false)
	}
	if !n.HubRuns() {
		n.StartHub()
	}
	for _, d := range n.devices {
		if !d.Runs() {
			d.start()
		}
	}
	for _, d := range n.devices {
		if !d.Revoked {
			n.Until(10*time.Minute, d.Name+" reaches the hub", func() bool { return !d.Joined || d.Status().Hub.Reachable })
		}
		if !d.Joined && !d.Revoked {
			n.Join(d.Name)
		}
	}
	n.Met(15 * time.Minute)
	for _, a := range n.AskAll() {
		a.WantAnswer()
	}
	n.Check()
}

// step does one thing that can be done now, and says what.
func (n *Net) step() string {
	for {
		if what := n.try(); what != "" {
			return what
		}
	}
}

func (n *Net) try() string {
	running := func(d *Device) bool { return d.Runs() && d.Joined }
	up := 0
	for _, d := range n.devices {
		if running(d) {
			up++
		}
	}
	switch n.Random.IntN(16) {
	case 0, 1:
		if d := n.any(running); d != nil && up > 2 {
			n.Kill(d.Name)
			return "kill " + d.Name
		}
	case 2:
		if d := n.any(running); d != nil && up > 2 {
			n.Stop(d.Name)
			return "stop " + d.Name
		}
	case 3, 4, 5:
		if d := n.any(func(d *Device) bool { return !d.Runs() }); d != nil {
			d.start()
			return "start " + d.Name
		}
	case 6:
		if n.HubRuns() {
			n.Kill(Hub)
			return "kill the hub"
		}
	case 7, 8:
		if !n.HubRuns() {
			n.StartHub()
			return "start the hub"
		}
	case 9:
		if len(n.cuts) == 0 {
			one, other := n.halves()
			n.Cut(one, other)
			return fmt.Sprintf("cut %s from %s", strings.Join(one, ""), strings.Join(other, " "))
		}
	case 10, 11:
		if len(n.cuts) > 0 {
			n.Heal()
			return "heal"
		}
	case 12:
		id, down := []chain.OptionID{"alpha/small", "gamma/large"}[n.Random.IntN(2)], n.Random.IntN(2) == 0
		n.Upstream.Down(id, down)
		return fmt.Sprintf("%s is down: %t", id, down)
	case 13:
		share := float64(n.Random.IntN(4)) / 100
		n.Network.Loss(share)
		return fmt.Sprintf("lose %.0f%%", share*100)
	case 14:
		return n.policy(up)
	case 15:
		d := time.Second << n.Random.IntN(8)
		time.Sleep(d)
		return "wait " + d.String()
	}
	return ""
}

// policy changes what the hub decides.
func (n *Net) policy(up int) string {
	if !n.HubRuns() {
		return ""
	}
	if d := n.any(func(d *Device) bool { return d.Joined }); up > len(n.devices)/2 && n.Random.IntN(4) == 0 {
		n.Revoke(d.Name)
		return "revoke " + d.Name
	}
	price := 1 + n.Random.IntN(20)
	n.Reload(strings.Replace(DefaultCatalogue, "input_per_mtok: 9,", fmt.Sprintf("input_per_mtok: %d,", price), 1))
	return fmt.Sprintf("beta costs %d", price)
}

// halves parts all nodes in two.
func (n *Net) halves() (one, other []string) {
	for _, name := range append(n.Names(), Hub) {
		if n.Random.IntN(2) == 0 {
			one = append(one, name)
		} else {
			other = append(other, name)
		}
	}
	return one, other
}

// any gives one of the devices that are so, nil if none is.
func (n *Net) any(is func(*Device) bool) *Device {
	var all []*Device
	for _, d := range n.devices {
		if is(d) {
			all = append(all, d)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[n.Random.IntN(len(all))]
}
