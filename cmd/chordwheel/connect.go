package main

import (
	"context"
	"strings"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon"
	"github.com/chordwheel/chordwheel/mesh"
	"github.com/chordwheel/chordwheel/mesh/spoke"
)

// connector makes the node of a device that has joined.
func connector(key chain.Key, o deviceOptions) func(context.Context, daemon.Joined, daemon.Events) (daemon.Node, error) {
	return func(ctx context.Context, j daemon.Joined, events daemon.Events) (daemon.Node, error) {
		addresses := j.Addresses
		if o.hubs != nil {
			addresses = o.hubs()
		}
		listen := o.config.Listen
		if o.outside != nil && !onThisMachine(addresses) {
			listen = o.outside // to be met where its hub is met
		}
		node, err := mesh.NewDevice(mesh.DeviceConfig{
			Key: key, Trust: j.Trust, HubAddrs: addresses, Listen: listen, Log: o.log, Version: version,
			Peers: o.config.Peers, LAN: o.config.MDNS, Metered: o.config.Metered, Chains: events.Chains, Executor: events.Executor, Load: events.Load, Checkpoint: events.Checkpoint,
			OnContact: events.Contact, OnParted: events.Parted, OnAnnounce: events.Announced, OnClone: events.Cloned,
			OnInvalidation: func(slot chain.Slot, _ uint64, _ []byte) { events.Invalidated(slot) },
			OnRevoked:      events.Revoked,
			OnRefused:      func(no *spoke.Refusal) { events.Refused(no) },
			OnHub:          events.HubUp,
			OnMoved:        events.Moved,
		})
		if err != nil {
			return nil, err
		}
		if err := node.Start(ctx); err != nil {
			return nil, err
		}
		return node, nil
	}
}

// onThisMachine reports whether all of these addresses are loopback ones.
func onThisMachine(addresses []string) bool {
	for _, a := range addresses {
		if !strings.HasPrefix(a, "/ip4/127.") && !strings.HasPrefix(a, "/ip6/::1/") {
			return false
		}
	}
	return true
}
