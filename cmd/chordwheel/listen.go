package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"syscall"
)

// How far `up` looks for a free port, and in which steps. The steps keep the
// last digit, which tells the listeners of a node apart: those that are chosen
// now and opened later are not taken by others of the same process. Those of the
// mesh are wider than the distance of all devices.
const (
	portsTried = 50
	portStep   = 10
	meshStep   = 1000
)

// listenTCP opens a listener. A taken port is an error, or, where next says so,
// the next free one is used and that is said.
func listenTCP(what, address string, next bool, say io.Writer) (net.Listener, error) {
	l, err := net.Listen("tcp", address)
	if err == nil || !errors.Is(err, syscall.EADDRINUSE) {
		if err != nil {
			return nil, fmt.Errorf("%s: listen on %s: %w", what, address, err)
		}
		return l, nil
	}
	host, port, _ := net.SplitHostPort(address)
	if !next {
		return nil, fmt.Errorf("%s: %s is in use by another program; stop that, or choose another address with --%s", what, address, what)
	}
	first, _ := strconv.Atoi(port)
	for p := first + portStep; p < first+portsTried*portStep; p += portStep {
		candidate := net.JoinHostPort(host, strconv.Itoa(p))
		if l, err = net.Listen("tcp", candidate); err == nil {
			fmt.Fprintf(say, "%s: %s is in use, so this one is on %s\n", what, address, candidate)
			return l, nil
		}
	}
	return nil, fmt.Errorf("%s: %s and the next %d ports that it could have are in use", what, address, portsTried-1)
}

// meshPort finds a port free for TCP and UDP, from the wanted one upwards. It is
// for `up` only: between the look and the use somebody else may take it, which is
// then an error.
func meshPort(host string, wanted int, say io.Writer) int {
	for p := wanted; p < wanted+portsTried*meshStep && p < 1<<16; p += meshStep {
		t, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(p)))
		if err != nil {
			continue
		}
		t.Close()
		u, err := net.ListenPacket("udp", net.JoinHostPort(host, strconv.Itoa(p)))
		if err != nil {
			continue
		}
		u.Close()
		if p != wanted {
			fmt.Fprintf(say, "mesh: port %d is in use, so this one is on %d\n", wanted, p)
		}
		return p
	}
	return wanted
}
