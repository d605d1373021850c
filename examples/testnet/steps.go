package testnet

import (
	"context"
	"os"
	"slices"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/orchestrator"
)

// Join invites a device that runs, and has it enrol: the hub must be within reach.
func (n *Net) Join(name string) {
	n.t.Helper()
	d := n.Device(name)
	invited, err := n.hub.Invite(context.Background(), orchestrator.Invite{Scope: chain.DefaultScope})
	if err != nil {
		n.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := d.Daemon.Join(ctx, invited.Text); err != nil {
		n.t.Fatalf("%s does not join: %v", name, err)
	}
	d.Joined, d.Revoked = true, false
	n.Until(time.Minute, name+" holds a chain", func() bool { return len(d.chains.All()) > 0 })
}

// JoinAll joins all devices, and waits until each has met all others.
func (n *Net) JoinAll() {
	n.t.Helper()
	for _, d := range n.devices {
		n.Join(d.Name)
	}
	n.Met(5 * time.Minute)
}

// Met waits at most d until every device that runs and is a member is in contact with
// every other such device.
func (n *Net) Met(d time.Duration) {
	n.t.Helper()
	members := slices.DeleteFunc(slices.Clone(n.devices), func(d *Device) bool { return !d.Runs() || !d.Joined })
	for _, a := range members {
		for _, b := range members {
			if a != b {
				n.Until(d, a.Name+" is in contact with "+b.Name, func() bool { return a.Sees(b.Name) == "live" })
			}
		}
	}
}

// Kill ends a device as a crash does: nobody hears a goodbye, and the data directory is
// what it was at that moment. [Hub] names the hub.
func (n *Net) Kill(name string) {
	n.t.Helper()
	if name == Hub {
		n.crash(0, n.hub.dir, n.hub.stop)
		return
	}
	d := n.Device(name)
	n.crash(d.place, d.dir, d.stop)
}

// crash keeps a copy of the directory, cuts the node off so that its orderly end is
// heard by nobody, and puts the copy in the place of what that end wrote.
func (n *Net) crash(place int, dir string, stop func()) {
	n.t.Helper()
	synctest.Wait() // nothing is being written
	kept := dir + ".kept"
	err := os.CopyFS(kept, os.DirFS(dir))
	n.Network.Cut([]int{place}, n.Network.Others(place))
	stop()
	if err == nil {
		err = os.RemoveAll(dir)
	}
	if err == nil {
		err = os.Rename(kept, dir)
	}
	if err == nil {
		err = n.private(dir)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	n.recut()
}

// private gives a copied directory the rights of the original.
func (n *Net) private(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			if err := os.Chmod(dir+"/"+e.Name(), 0o600); err != nil {
				return err
			}
		}
	}
	return os.Chmod(dir, 0o700)
}

// Stop ends a device, or the hub, in order.
func (n *Net) Stop(name string) {
	if name == Hub {
		n.hub.stop()
		return
	}
	n.Device(name).stop()
}

// Start runs a device, or the hub, again over its data directory.
func (n *Net) Start(name string) {
	n.t.Helper()
	if name == Hub {
		n.StartHub()
		return
	}
	n.Device(name).start()
}

// StartHub runs the hub again.
func (n *Net) StartHub() {
	n.t.Helper()
	if err := n.hub.start(); err != nil {
		n.t.Fatalf("the hub: %v", err)
	}
}

// Cut loses every packet between the two groups, [Hub] among their names, until Heal.
func (n *Net) Cut(one, other []string) {
	n.t.Helper()
	n.cuts = append(n.cuts, [2][]int{n.places(one), n.places(other)})
	n.recut()
}

// Isolate cuts a node off from all others.
func (n *Net) Isolate(name string) {
	n.t.Helper()
	others := slices.DeleteFunc(append(n.Names(), Hub), func(other string) bool { return other == name })
	n.Cut([]string{name}, others)
}

// Heal ends every cut.
func (n *Net) Heal() {
	n.cuts = nil
	n.recut()
}

func (n *Net) recut() {
	n.Network.Heal()
	for _, c := range n.cuts {
		n.Network.Cut(c[0], c[1])
	}
}

func (n *Net) places(names []string) []int {
	n.t.Helper()
	var all []int
	for _, name := range names {
		if name == Hub {
			all = append(all, 0)
			continue
		}
		all = append(all, n.Device(name).place)
	}
	return all
}

// Revoke ends a device's membership at the hub, which must run.
func (n *Net) Revoke(name string) {
	n.t.Helper()
	d := n.Device(name)
	if _, err := n.hub.Revoke(context.Background(), string(d.Peer)); err != nil {
		n.t.Fatal(err)
	}
	d.Joined, d.Revoked = false, true
}

// Reload puts another catalogue in force at the hub, as an edit of its file does.
func (n *Net) Reload(catalogue string) {
	n.t.Helper()
	n.hub.catalogue, n.hub.declared = n.parse(catalogue), time.Now()
	if err := n.hub.Reload(context.Background(), n.hub.catalogue); err != nil {
		n.t.Fatal(err)
	}
}

// HubRuns reports whether the hub runs.
func (n *Net) HubRuns() bool { return n.hub.Hub != nil }
