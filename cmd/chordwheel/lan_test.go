package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chordwheel/chordwheel/mesh/meshtest"
)

// lanCatalogue: a peer first, else the small model of one's own.
const lanCatalogue = `primitives:
  - name: llm.chat
    order: fixed
    default: [peer, local/builtin/primer]
    peer: {requires: ["execute:llm.chat"], tries: 2}
`

// network is a hub and two devices, each on a machine of its own.
type network struct {
	t   *testing.T
	dir string
	lan *meshtest.LAN
}

// on starts a node on a machine.
func (n *network) on(machine int, args ...string) *process {
	n.t.Helper()
	return startCommand(n.t, n.lan.Machines[machine].Command(program(n.t, append(args, "--json")...)))
}

func (n *network) path(name string) string { return filepath.Join(n.dir, name) }

// daemon starts a device with nothing configured.
func (n *network) daemon(machine int, name string) *process {
	n.t.Helper()
	return n.on(machine, n.readme("daemon", "~/device", n.path(name))...)
}

// readme gives the arguments of the line of README that begins with the program and this
// command, with the texts of replace in place of others.
func (n *network) readme(command string, replace ...string) []string {
	n.t.Helper()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		n.t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		line, _, _ = strings.Cut(line, "#")
		if words := strings.Fields(line); len(words) > 1 && words[0] == "bin/chordwheel" && words[1] == command {
			for i, w := range words {
				words[i] = strings.NewReplacer(replace...).Replace(w)
			}
			return words[1:]
		}
	}
	n.t.Fatalf("README has no line of chordwheel %s", command)
	return nil
}

// answered is what came of one question.
type answered struct {
	status         int
	text           string
	peer, attempts string
}

// ask asks the device in name's directory, over its control socket.
func (n *network) ask(ctx context.Context, name string) (answered, error) {
	device, err := reach(ctx, "device", []string{n.path(name)})
	if err != nil {
		return answered{}, err
	}
	response, err := device.open(ctx, http.MethodPost, "/v1/chat/completions", map[string]any{"model": "auto", "messages": []map[string]string{{"role": "user", "content": "what is 12 * 7?"}}})
	if err != nil {
		return answered{}, err
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	return answered{response.StatusCode, plainOutput(b), response.Header.Get("X-Chordwheel-Peer"), response.Header.Get("X-Chordwheel-Attempts")}, err
}

// filled waits until the device has somebody who could take its work.
func (n *network) filled(name string) {
	n.t.Helper()
	until(n.t, name+" could hand work on", func() bool {
		out, _, code := command(n.t, "chain", "show", "--dir", n.path(name), "--json")
		return code == 0 && strings.Contains(out, `"eligible":true`)
	})
}

// handsOver wants work of each device to run on the other.
func (n *network) handsOver() {
	n.t.Helper()
	for one, other := range map[string]string{"a": "b/", "b": "a/"} {
		n.filled(one)
		got, err := n.ask(n.t.Context(), one)
		if err != nil || got.status != http.StatusOK || !strings.Contains(got.text, "84") || !strings.HasPrefix(got.peer, other) {
			n.t.Errorf("%s: %+v, %v; want an answer by %s", one, got, err, other)
		}
	}
}

// The lines of README, on machines of their own. Two in one network find each other by multicast and hand work over with nothing
// configured but that they joined; the hub is not there to tell them of each other, and
// their addresses are new. Then the cable of one is pulled under load. Then without
// multicast, with the address of one named.
func TestTwoMachinesInOneNetwork(t *testing.T) {
	if testing.Short() {
		t.Skip("it waits for real multicast and real silence")
	}
	t.Parallel() // it waits more than it works
	n := &network{t: t, dir: t.TempDir(), lan: meshtest.NewLAN(t, 3)}
	n.prepare()
	n.move(11)
	a, b := n.daemon(0, "a"), n.daemon(1, "b")
	n.handsOver()

	n.pullUnderLoad()
	a.stop()
	b.stop()

	for _, m := range n.lan.Machines {
		m.NoMulticast()
	}
	n.move(21)
	n.config("a", fmt.Sprintf("peers: [/ip4/%s/tcp/7412/p2p/%s]\n", n.lan.Machines[1].Address(), b.ready.Device.PeerID))
	n.daemon(0, "a")
	n.daemon(1, "b")
	n.handsOver()
}

// config gives a device its name and what else is to be said.
func (n *network) config(name, more string) {
	n.t.Helper()
	if err := os.MkdirAll(n.path(name), 0o700); err != nil {
		n.t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(n.path(name), "config.yaml"), []byte("name: "+name+"\nlog: debug\n"+more), 0o600); err != nil {
		n.t.Fatal(err)
	}
}

// prepare has both devices join and get their chains, one after the other, so that
// neither meets the other. Then the hub is gone.
func (n *network) prepare() {
	n.t.Helper()
	file := n.path("catalogue.yaml")
	if err := os.WriteFile(file, []byte(lanCatalogue), 0o600); err != nil {
		n.t.Fatal(err)
	}
	hub := n.on(2, n.readme("orchestrator", "~/hub", n.path("hub"), "catalogue.yaml", file)...)
	for i, name := range []string{"a", "b"} {
		n.config(name, "")
		invitation := strings.TrimSpace(good(n.t, n.readme("invite", "~/hub", n.path("hub"))...))
		join := n.lan.Machines[i].Command(program(n.t, n.readme("join", "~/device", n.path(name), "'chordwheel1:…'", invitation)...))
		if out, err := join.CombinedOutput(); err != nil {
			n.t.Fatalf("join: %v: %s", err, out)
		}
		d := n.daemon(i, name)
		until(n.t, name+" holds a chain", func() bool { return len(order(n.t, n.path(name))) > 0 })
		d.stop()
	}
	hub.kill()
}

// move gives both devices' machines new addresses.
func (n *network) move(last int) {
	n.t.Helper()
	for i, m := range n.lan.Machines[:2] {
		m.SetAddress(fmt.Sprintf("10.77.0.%d", last+i))
	}
}

// pullUnderLoad: no request that had not begun to answer is lost, each of the
// workers loses at most one attempt to the dead link, and b is used again when it is back.
func (n *network) pullUnderLoad() {
	n.t.Helper()
	const workers = 4
	var mu sync.Mutex
	var total, byPeer, late int
	pulled := false
	count := func() (int, int, int) { mu.Lock(); defer mu.Unlock(); return total, byPeer, late }
	ctx, stop := context.WithCancel(n.t.Context())
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for ctx.Err() == nil {
				got, err := n.ask(context.WithoutCancel(ctx), "a")
				mu.Lock()
				if err != nil || got.status != http.StatusOK || !strings.Contains(got.text, "84") {
					n.t.Errorf("a request was lost: %+v, %v", got, err)
					stop()
				}
				total++
				if got.peer != "" {
					byPeer++
				}
				if pulled && got.attempts != "1" {
					late++
				}
				mu.Unlock()
			}
		})
	}
	defer group.Wait()
	defer stop()
	until(n.t, "all are at work", func() bool { all, peer, _ := count(); return all > 5*workers && peer > 0 })
	mu.Lock()
	pulled = true
	mu.Unlock()
	n.lan.Machines[1].Plug(false)
	until(n.t, "the dead link was noticed", func() bool { _, _, late := count(); return late > 0 })
	all, _, _ := count()
	until(n.t, "work goes on without it", func() bool { now, _, _ := count(); return now > all+20*workers })
	if _, _, late := count(); late > workers {
		n.t.Errorf("%d attempts at a dead link by %d workers", late, workers)
	}
	_, before, _ := count()
	n.lan.Machines[1].Plug(true)
	until(n.t, "b is used again", func() bool { _, peer, _ := count(); return peer > before })
}
