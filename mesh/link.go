package mesh

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/peerstore"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/reach"
	"github.com/chordwheel/chordwheel/mesh/spoke"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// Times of the link to the hub.
const (
	dialTimeout = 15 * time.Second
	backoffBase = 2 * time.Second // the pause before attempt n is random, up to base·2ⁿ
	backoffMax  = 5 * time.Minute
	lossPause   = 8 * time.Second // a lost connection is redialled within it: 1,500 devices make 190 visits a second
	settle      = 2 * time.Second // after a hello, until gossip has found its neighbours
	idleAfter   = 2 * time.Minute // a visitor closes its links
)

// link is what a device knows of its way to the hub. It is guarded by
// Device.mu.
type link struct {
	hello   *wire.Hello // said again on each new session; nil: none was given yet
	stay    bool        // the hub wants the connection kept
	greeted bool        // the hub knows the last hello
	session *spoke.Client
	up      bool

	failures   int
	notBefore  time.Time // nobody dials before; set by a dial that failed
	redialAt   time.Time // when the keeper dials
	last       *Unreachable
	used       time.Time
	settled    time.Time
	announceAt time.Time
}

// HubReachable reports whether the last contact with the hub went well: a
// standing connection, or a visit that succeeded. Without one, calls may still
// try.
func (d *Device) HubReachable() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.link.up
}

// Hello says h to the hub, over the open session or a new one. From then on
// the node says it again whenever it opens a session: as it stands, but for the
// invitation, which the membership of the answer replaces. A hello with an
// invitation counts only once it succeeded. Errors are *Unreachable, *spoke.Refusal
// or what broke the session.
func (d *Device) Hello(ctx context.Context, h wire.Hello) (wire.Welcome, error) {
	if err := h.Validate(); err != nil {
		return wire.Welcome{}, fmt.Errorf("hello: %w", err)
	}
	if h.Invitation == nil {
		d.mu.Lock()
		d.link.hello, d.link.greeted = &h, false
		d.mu.Unlock()
		defer d.poke() // where this call fails, the keeper goes on
	}
	if err := d.take(ctx); err != nil {
		return wire.Welcome{}, err
	}
	defer d.give()
	w, err := d.hello(ctx, h)
	if err != nil {
		return wire.Welcome{}, err
	}
	return w, nil
}

// Report sends one report, with the device's contacts as they are now unless r
// has some. It opens a session where there is none. A report may arrive twice when
// a session broke: (BootID, Seq) names it.
func (d *Device) Report(ctx context.Context, r wire.Report) (wire.ReportReply, error) {
	if r.Chords == nil {
		r.Chords = d.Adjacent()
	}
	return call(ctx, d, func(c *spoke.Client) (wire.ReportReply, error) { return c.Report(ctx, r) })
}

// Fetch asks for the chain of a slot. The reply is not verified.
func (d *Device) Fetch(ctx context.Context, f wire.Fetch) (wire.FetchReply, error) {
	return call(ctx, d, func(c *spoke.Client) (wire.FetchReply, error) { return c.Fetch(ctx, f) })
}

// Protest asks for an extension. The reply is not verified.
func (d *Device) Protest(ctx context.Context, p wire.Protest) (wire.ProtestReply, error) {
	return call(ctx, d, func(c *spoke.Client) (wire.ProtestReply, error) { return c.Protest(ctx, p) })
}

// Lease asks for blocks of ceilings. It may arrive twice when a session broke: what
// was granted and did not arrive is granted again.
func (d *Device) Lease(ctx context.Context, l wire.Lease) (wire.LeaseReply, error) {
	return call(ctx, d, func(c *spoke.Client) (wire.LeaseReply, error) { return c.Lease(ctx, l) })
}

// Provider has the hub admit a provider over HTTP. It may arrive twice when a
// session broke: the nonce makes it one.
func (d *Device) Provider(ctx context.Context, p wire.Provider) (wire.ProviderReply, error) {
	return call(ctx, d, func(c *spoke.Client) (wire.ProviderReply, error) { return c.Provider(ctx, p) })
}

// call makes one request. A session that turns out to be dead is replaced
// once: its end may not have been noticed yet.
func call[R any](ctx context.Context, d *Device, ask func(*spoke.Client) (R, error)) (R, error) {
	var none R
	for again := false; ; again = true {
		session, fresh, err := d.session(ctx)
		if err != nil {
			return none, err
		}
		r, err := ask(session)
		var refused *spoke.Refusal
		if err == nil || errors.As(err, &refused) && refused.Code != spoke.CodeShutdown {
			d.touch()
			return r, err
		}
		d.lose(session, ctx.Err() == nil && errors.Is(err, spoke.ErrSilent))
		if fresh || again || ctx.Err() != nil {
			return none, err
		}
	}
}

// Leave ends a visit: the session and the connection are closed and the hub
// still counts as reachable. The next call comes back.
func (d *Device) Leave() {
	d.mu.Lock()
	d.link.stay = false
	d.mu.Unlock()
	d.endSession()
	_ = d.host.Network().ClosePeer(d.hub)
}

func (d *Device) endSession() {
	d.mu.Lock()
	session := d.link.session
	d.link.session = nil
	d.mu.Unlock()
	if session != nil {
		session.Close()
	}
}

// take waits for the right to open a session.
func (d *Device) take(ctx context.Context) error {
	select {
	case <-d.opener:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d *Device) give() { d.opener <- struct{}{} }

// session gives the open session, or opens one and says the last hello.
func (d *Device) session(ctx context.Context) (s *spoke.Client, fresh bool, err error) {
	if s := d.current(); s != nil {
		return s, false, nil
	}
	if err := d.take(ctx); err != nil {
		return nil, false, err
	}
	defer d.give()
	if s := d.current(); s != nil {
		return s, false, nil
	}
	d.mu.Lock()
	h := d.link.hello
	d.mu.Unlock()
	if h == nil {
		return nil, false, errors.New("the device has not said hello to its hub yet")
	}
	w, err := d.hello(ctx, *h)
	if err != nil {
		return nil, false, err
	}
	if d.cfg.OnWelcome != nil {
		d.teller.tell(func() { d.cfg.OnWelcome(w) })
	}
	if s = d.current(); s == nil {
		return nil, false, spoke.ErrClosed
	}
	return s, true, nil
}

func (d *Device) current() *spoke.Client {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.link.session != nil && d.host.Network().Connectedness(d.hub) != network.Connected {
		return nil
	}
	return d.link.session
}

// hello says h over the open session, or over a new one. The caller holds the
// opener's token.
func (d *Device) hello(ctx context.Context, h wire.Hello) (wire.Welcome, error) {
	for again := false; ; again = true {
		session := d.current()
		fresh := session == nil
		if fresh {
			var err error
			if session, err = d.open(ctx); err != nil {
				return wire.Welcome{}, err
			}
		}
		h.Addresses = d.reachable()
		w, err := session.Hello(ctx, h)
		if err == nil {
			d.welcomed(session, h, w)
			return w, nil
		}
		var refused *spoke.Refusal
		if errors.As(err, &refused) {
			d.refused(session, refused)
			return wire.Welcome{}, err
		}
		d.lose(session, ctx.Err() == nil && errors.Is(err, spoke.ErrSilent))
		if fresh || again || ctx.Err() != nil {
			if fresh && ctx.Err() == nil {
				d.failed(&Unreachable{Hub: d.cfg.Trust.Orchestrator, Attempts: []Attempt{{Reason: "connected, but no answer to hello: " + why(err)}}})
			}
			return wire.Welcome{}, err
		}
	}
}

// open connects where needed and opens a stream.
func (d *Device) open(ctx context.Context) (*spoke.Client, error) {
	if err := d.connect(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	stream, err := d.host.NewStream(network.WithNoDial(ctx, "spoke"), d.hub, spoke.Protocol)
	if err != nil {
		u := &Unreachable{Hub: d.cfg.Trust.Orchestrator, Attempts: []Attempt{{Reason: "connected, but it gives no session: " + why(err)}}}
		return nil, d.failed(u)
	}
	return spoke.NewClient(stream), nil // nobody else talks on it before its hello was answered
}

// connect dials the configured addresses of the hub, unless a dial failed so
// recently that it would be a storm.
func (d *Device) connect(ctx context.Context) error {
	if d.host.Network().Connectedness(d.hub) == network.Connected {
		return nil
	}
	d.mu.Lock()
	wait, last := time.Until(d.link.notBefore), d.link.last
	d.mu.Unlock()
	if wait > 0 && last != nil {
		again := *last
		again.Retry = wait
		return &again
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	// Only what was configured: not where identify said the hub is, too. And
	// the pauses are ours: the swarm keeps its own per address.
	d.host.Peerstore().ClearAddrs(d.hub)
	d.clearBackoff()
	err := d.host.Connect(ctx, peer.AddrInfo{ID: d.hub, Addrs: d.addrs})
	if err == nil {
		d.host.Peerstore().AddAddrs(d.hub, d.addrs, peerstore.ConnectedAddrTTL)
		return nil
	}
	return d.failed(unreachable(d.cfg.Trust.Orchestrator, d.cfg.HubAddrs, err))
}

func (d *Device) clearBackoff() {
	if s, ok := d.host.Network().(*swarm.Swarm); ok {
		s.Backoff().Clear(d.hub)
	}
}

// failed notes that the hub could not be reached and when to try again.
func (d *Device) failed(u *Unreachable) error {
	d.mu.Lock()
	u.Retry = pause(d.link.failures)
	d.link.failures++
	d.link.last = u
	d.link.notBefore = time.Now().Add(u.Retry)
	d.link.redialAt = d.link.notBefore
	d.mu.Unlock()
	d.setUp(false)
	d.poke()
	return u
}

// pause is random between nothing and base·2ⁿ, so that devices that lost
// their hub at one moment do not return at one moment.
func pause(n int) time.Duration {
	limit := backoffMax
	if n < 12 {
		limit = min(backoffBase<<n, backoffMax)
	}
	return time.Duration(rand.Int64N(int64(limit))) + time.Millisecond
}

// welcomed keeps what the hub's answer changes for the node.
func (d *Device) welcomed(session *spoke.Client, h wire.Hello, w wire.Welcome) {
	if w.Membership != nil {
		h.Membership, h.Invitation = w.Membership, nil
	}
	d.mu.Lock()
	old := d.link.session
	d.link.session = session
	if h.Invitation == nil {
		d.link.hello = &h
	}
	d.link.stay, d.link.greeted = w.Stay, true
	d.link.failures, d.link.notBefore, d.link.last = 0, time.Time{}, nil
	d.link.used = time.Now()
	d.link.settled = d.link.used.Add(settle + rand.N(settle))
	d.link.announceAt = d.link.settled // said earlier, nobody would hear it
	d.mu.Unlock()
	if old != nil && old != session {
		old.Close()
	}
	if len(w.Revocations) > 0 {
		if err := d.gossip.setRevoked(w.Revocations); err != nil && !errors.Is(err, chain.ErrRollback) {
			d.cfg.Log.Warn("the hub's revocation list was not taken over", "error", err)
		}
	}
	d.peers.endRevoked()
	d.peers.introduce(reach.Hub, w.Peers...)
	if len(w.Topics) > 0 {
		if err := d.Join(w.Topics...); err != nil {
			d.cfg.Log.Warn("joining gossip topics", "error", err)
		}
	}
	d.setUp(true)
	if d.host.Network().Connectedness(d.hub) != network.Connected {
		d.disconnected() // it broke before the session was noted, and watch saw nothing to end
	}
	d.poke()
}

// refused notes that the hub is there and says no: it is tried again, soon
// where it lacks room, else slowly.
func (d *Device) refused(session *spoke.Client, r *spoke.Refusal) {
	d.lose(session, false)
	wait := backoffMax/2 + pause(12)/2
	d.mu.Lock()
	defer d.mu.Unlock()
	if r.Code == spoke.CodeBusy || r.Code == spoke.CodeShutdown {
		wait = pause(d.link.failures)
		d.link.failures++
	}
	d.link.redialAt = time.Now().Add(max(r.ComeBack, wait))
}

// lose gives up a session that broke. A hub that does not answer at all is
// hung up on: the connection may be dead without anybody having noticed.
func (d *Device) lose(session *spoke.Client, silent bool) {
	d.mu.Lock()
	if d.link.session == session {
		d.link.session = nil
	}
	d.mu.Unlock()
	session.Close()
	if silent {
		_ = d.host.Network().ClosePeer(d.hub)
	}
}

func (d *Device) touch() {
	d.mu.Lock()
	d.link.used = time.Now()
	d.mu.Unlock()
}

func (d *Device) setUp(up bool) {
	d.mu.Lock()
	changed := d.link.up != up
	d.link.up = up
	d.mu.Unlock()
	if changed && d.cfg.OnHub != nil {
		d.teller.tell(func() { d.cfg.OnHub(up) })
	}
}

func (d *Device) poke() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}
