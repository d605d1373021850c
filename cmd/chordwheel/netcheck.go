package main

import (
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chordwheel/chordwheel/daemon/control"
)

func (a *app) netcheck() *cobra.Command {
	return &cobra.Command{
		Use:   "netcheck",
		Short: "Look at this device's networks: who can reach whom, and what is in the way",
		Long: `Look at the networks of the running device: where it listens and what it tells
others of that, whether each address of the hub answers now, multicast and who was heard
by it, which transports carry something, how far its clock is from the hub's. Each
problem comes with the next step. It changes nothing.`,
		Example: "  chordwheel netcheck\n  chordwheel netcheck --dir ~/mesh/b --json",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			n, err := a.device(c.Context())
			if err != nil {
				return err
			}
			var v control.Network
			if err := n.call(c.Context(), http.MethodPost, "/api/v1/netcheck", nil, &v); err != nil {
				return err
			}
			return a.print(v, func(w io.Writer) { a.writeNetwork(w, v, time.Now()) })
		},
	}
}

func (a *app) writeNetwork(w io.Writer, n control.Network, now time.Time) {
	field := func(name string, values ...string) {
		for _, v := range values {
			fmt.Fprintf(w, "  %-11s %s\n", name, v)
			name = ""
		}
	}
	none := func(list []string, otherwise string) []string {
		if len(list) == 0 {
			return []string{a.paint(yellow, otherwise)}
		}
		return list
	}
	field("listens", none(n.Listen, "nowhere")...)
	field("tells", none(n.Told, "nothing that others could dial")...)
	for i, h := range n.Hub {
		state := a.paint(green, "answers")
		if h.Reason != "" {
			state = a.paint(yellow, h.Reason)
		}
		field([]string{"hub", ""}[min(i, 1)], h.Address+"  "+state)
	}
	field("connected", transports(n.Transports))
	if n.Clock != nil {
		field("clock", fmt.Sprintf("%+.2f s against the hub's", *n.Clock))
	}
	multicast := a.paint(green, "on")
	if !n.Multicast.On {
		multicast = "off: " + n.Multicast.Why
	}
	field("multicast", multicast)
	for _, h := range n.Multicast.Heard {
		field("", "heard "+nameOr(h.Name, h.PeerID)+" "+ago(h.At, now))
	}
	for _, i := range n.Interfaces {
		if i.Up && len(i.Addresses) > 0 {
			notes := ""
			if !i.Multicast {
				notes = "  no multicast"
			}
			field("interface", i.Name+"  "+strings.Join(i.Addresses, ", ")+notes)
		}
	}
	fmt.Fprintln(w)
	if len(n.Problems) == 0 {
		fmt.Fprintln(w, a.paint(green, "nothing is in the way"))
	}
	for _, p := range n.Problems {
		fmt.Fprintf(w, "%s\n  → %s\n", a.paint(yellow, "! "+p.What), p.Next)
	}
}

func transports(count map[string]int) string {
	var parts []string
	for _, t := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, fmt.Sprintf("%d over %s", count[t], t))
	}
	if len(parts) == 0 {
		return "to nobody"
	}
	return strings.Join(parts, ", ")
}

// interfaces lists those of this machine. One that cannot be read is left out.
func interfaces() []control.Interface {
	found, _ := net.Interfaces()
	list := []control.Interface{}
	for _, i := range found {
		v := control.Interface{Name: i.Name, Up: i.Flags&net.FlagUp != 0, Multicast: i.Flags&net.FlagMulticast != 0, Loopback: i.Flags&net.FlagLoopback != 0, Addresses: []string{}}
		addresses, _ := i.Addrs()
		for _, address := range addresses {
			v.Addresses = append(v.Addresses, address.String())
		}
		list = append(list, v)
	}
	return list
}
