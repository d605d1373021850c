package mesh

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/discovery/mdns"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/reach"
)

// Pauses of the multicast.
const (
	lanDebounce = 2 * time.Second // after an address changed: others change in the same moment
	lanRetry    = time.Minute     // where no interface can do multicast
)

// lan finds the devices of a mesh in this network by multicast, and is found.
// The library reads the addresses once, so that a change of them needs a new
// service.
type lan struct {
	host    host.Host
	name    string
	found   func(peer.AddrInfo)
	log     *slog.Logger
	changed chan struct{} // room for one: an address changed
	make    func(host.Host, string, mdns.Notifee) mdns.Service
	failed  atomic.Pointer[string] // why the service does not run; nil while it does
}

// lanService is the name of the multicast service of a mesh: others' devices do
// not answer to it, and it says nothing about the mesh.
func lanService(m chain.MeshID) string {
	sum := sha256.Sum256([]byte("chordwheel-lan\n" + m))
	return "_cw-" + hex.EncodeToString(sum[:4]) + "._udp"
}

func newLAN(d *Device) *lan {
	return &lan{host: d.host, name: lanService(d.cfg.Trust.Mesh), log: d.cfg.Log, changed: make(chan struct{}, 1),
		found: d.peers.found, make: func(h host.Host, name string, n mdns.Notifee) mdns.Service { return mdns.NewMdnsService(h, name, n) }}
}

// HandlePeerFound implements the library's Notifee.
func (l *lan) HandlePeerFound(info peer.AddrInfo) { l.found(info) }

// moved says that an address of this machine changed.
func (l *lan) moved() {
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// loop keeps the service until run ends. A machine without multicast is no
// error: addresses from the owner and the hub do without.
func (l *lan) loop(run context.Context) {
	warned := false
	for run.Err() == nil {
		service := l.make(l.host, l.name, l)
		err := service.Start()
		var retry <-chan time.Time
		l.failed.Store(nil)
		if err != nil {
			reason := flat(err)
			l.failed.Store(&reason)
			if !warned {
				l.log.Warn("devices of this network are not looked for by multicast; peers in the configuration work without", "error", flat(err))
			}
			warned = true
			retry = time.After(lanRetry)
		} else {
			warned = false
		}
		select {
		case <-run.Done():
		case <-l.changed:
			wait(run, lanDebounce)
			select {
			case <-l.changed:
			default:
			}
		case <-retry:
		}
		_ = service.Close() // it gives no error
	}
}

func wait(run context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-run.Done():
	case <-timer.C:
	}
}

// found takes the word of the LAN: somebody there says so this very moment.
func (p *peers) found(info peer.AddrInfo) {
	if info.ID == p.d.hub {
		return
	}
	p.mu.Lock()
	p.book.Note(info.ID, info.Addrs, reach.LAN, time.Now())
	makeRoom(p.onLAN)
	p.onLAN[info.ID] = time.Now()
	p.mu.Unlock()
	p.poke()
}
