// Package meshtest makes networks of the operating system for tests: namespaces on a
// bridge of their own, in which real programs meet over real interfaces. It knows nothing
// of the mesh. For anything that need not be real there is package sim.
package meshtest

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
)

// LAN is a bridge with machines on it, in 10.77.0.0/24. It ends with its test.
type LAN struct {
	t        testing.TB
	middle   string // the bridge's own namespace: nothing of the machine's network is touched
	Machines []*Machine
}

// Machine is a namespace with one interface on the bridge.
type Machine struct {
	lan     *LAN
	name    string
	port    string // the bridge's end of its cable
	address string
}

var networks atomic.Int32

// NewLAN makes so many machines on one bridge, the first with the address 10.77.0.1. The
// test is skipped where that cannot be done: on other systems than Linux, by others
// than root, without the ip command.
func NewLAN(t testing.TB, machines int) *LAN {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("only root makes network namespaces")
	}
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("the ip command is missing: install iproute2")
	}
	id := fmt.Sprintf("cw%d-%d", os.Getpid(), networks.Add(1))
	l := &LAN{t: t, middle: id + "m"}
	l.namespace(l.middle)
	l.ip("-n " + l.middle + " link add br0 type bridge mcast_snooping 0")
	l.ip("-n " + l.middle + " link set br0 up")
	for i := range machines {
		m := &Machine{lan: l, name: fmt.Sprintf("%s-%d", id, i), port: fmt.Sprintf("port%d", i)}
		l.namespace(m.name)
		l.ip("-n " + l.middle + " link add " + m.port + " type veth peer name eth0 netns " + m.name)
		l.ip("-n " + l.middle + " link set " + m.port + " master br0 up")
		l.ip("-n " + m.name + " link set lo up")
		m.SetAddress(fmt.Sprintf("10.77.0.%d", i+1))
		l.Machines = append(l.Machines, m)
	}
	return l
}

func (l *LAN) namespace(name string) {
	l.t.Helper()
	l.t.Cleanup(func() { _ = exec.Command("ip", "netns", "del", name).Run() })
	l.ip("netns add " + name)
}

func (l *LAN) ip(command string) {
	l.t.Helper()
	if out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput(); err != nil {
		if strings.Contains(string(out), "not permitted") {
			l.t.Skipf("ip %s: %s", command, out)
		}
		l.t.Fatalf("ip %s: %v: %s", command, err, out)
	}
}

// Address gives the machine's address.
func (m *Machine) Address() string { return m.address }

// SetAddress gives the machine this address in place of the one it had.
func (m *Machine) SetAddress(address string) {
	m.lan.t.Helper()
	m.lan.ip("-n " + m.name + " addr flush dev eth0")
	m.lan.ip("-n " + m.name + " addr add " + address + "/24 dev eth0")
	m.lan.ip("-n " + m.name + " link set eth0 up")
	m.lan.ip("-n " + m.name + " route replace 224.0.0.0/4 dev eth0")
	m.address = address
}

// Plug sets whether the machine's cable is in the bridge. The machine is not told: what
// it sends is lost.
func (m *Machine) Plug(in bool) {
	m.lan.t.Helper()
	if in {
		m.lan.ip("-n " + m.lan.middle + " link set " + m.port + " master br0")
		return
	}
	m.lan.ip("-n " + m.lan.middle + " link set " + m.port + " nomaster")
}

// NoMulticast takes multicast from the machine's interface, for good.
func (m *Machine) NoMulticast() {
	m.lan.t.Helper()
	m.lan.ip("-n " + m.name + " link set eth0 multicast off")
	m.lan.ip("-n " + m.name + " route del 224.0.0.0/4 dev eth0")
}

// Command makes cmd run in the machine.
func (m *Machine) Command(cmd *exec.Cmd) *exec.Cmd {
	inside := exec.Command("ip", append([]string{"netns", "exec", m.name, cmd.Path}, cmd.Args[1:]...)...)
	inside.Env, inside.Dir = cmd.Env, cmd.Dir
	return inside
}
