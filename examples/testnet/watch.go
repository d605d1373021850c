package testnet

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon"
	"github.com/chordwheel/chordwheel/daemon/adapter"
	"github.com/chordwheel/chordwheel/mesh/exec"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/sim"
	"github.com/chordwheel/chordwheel/mesh/spoke"
	"github.com/chordwheel/chordwheel/mesh/wire"
	"github.com/chordwheel/chordwheel/store"
)

// Marks in what must not get about: prompts, answers and keys hold them.
const (
	promptCanary = "PROMPT-CANARY-"
	answerCanary = "ANSWER-CANARY-"
	keyCanary    = "KEY-CANARY-of-"
)

// maxBroken bounds how many breaches are remembered: one says enough.
const maxBroken = 20

// watch sees what happens while it does, and remembers what must not. [Net.Check] adds
// what can be read off the nodes at rest.
type watch struct {
	net *Net

	mu       sync.Mutex
	broken   []string
	options  map[string]map[chain.OptionID][]chain.Option // that a device was ever given, signed
	highest  map[string]map[chain.Slot]chain.Mark
	bytes    map[string]int            // seen on streams, by protocol
	done     map[string]map[string]int // exchanges with the hub in its present life, by device and kind
	lives    int                       // of the hub, that done counts for
	logsRead int
}

func newWatch(n *Net) *watch {
	return &watch{net: n, options: map[string]map[chain.OptionID][]chain.Option{}, highest: map[string]map[chain.Slot]chain.Mark{},
		bytes: map[string]int{}, done: map[string]map[string]int{}}
}

// breach remembers that an invariant does not hold. Its number is that of the list in
// the README.
func (w *watch) breach(number int, format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.broken) < maxBroken {
		w.broken = append(w.broken, fmt.Sprintf("%s: invariant %d: ", time.Now().Format(time.TimeOnly), number)+fmt.Sprintf(format, args...))
	}
}

// tap looks at every byte of every stream: no key is ever on one, content on those of
// exec alone, and the hub opens none of ours.
func (w *watch) tap(s sim.Stream) (read, written func([]byte)) {
	if s.Node == 0 && s.Opened && strings.HasPrefix(s.Protocol, "/chordwheel/") {
		w.breach(3, "the hub opened a stream of %s", s.Protocol)
	}
	if s.Node == 0 && strings.HasPrefix(s.Protocol, "/chordwheel/") && s.Protocol != spoke.Protocol {
		w.breach(9, "the hub is spoken to over %s", s.Protocol)
	}
	forbidden := []string{keyCanary}
	if s.Protocol != exec.Protocol {
		forbidden = append(forbidden, promptCanary, answerCanary)
	}
	look := func() func([]byte) {
		var end []byte // of what was seen before: a mark may come in pieces
		return func(b []byte) {
			seen := append(end, b...)
			for _, mark := range forbidden {
				if bytes.Contains(seen, []byte(mark)) {
					w.breach(6, "%q on a stream of %s", mark, s.Protocol)
				}
			}
			end = append([]byte(nil), seen[max(0, len(seen)-len(answerCanary)):]...)
			w.mu.Lock()
			defer w.mu.Unlock()
			w.bytes[s.Protocol] += len(b)
		}
	}
	return look(), look()
}

// watchedChains remembers what a device accepted, and that it never goes back.
type watchedChains struct {
	*store.ChainCache
	device *Device
}

func (c watchedChains) Accept(trust chain.Trust, slot chain.Slot, head, body []byte, now time.Time) (*chain.Chain, error) {
	accepted, err := c.ChainCache.Accept(trust, slot, head, body, now)
	if accepted != nil {
		c.device.net.watch.holds(c.device, accepted)
	}
	return accepted, err
}

// holds checks a chain that d goes by, from its bytes, and remembers it.
func (w *watch) holds(d *Device, c *chain.Chain) {
	head, body := c.Bytes()
	if _, err := w.net.hub.trust.Verify(c.Slot(), head, body, chain.Mark{}, c.Head().Issued.Time()); err != nil {
		w.breach(2, "%s holds a chain that the hub did not sign: %v", d.Name, err)
	}
	w.reveal(d, c.Options())
	w.mark(d, c.Slot(), c.Mark())
}

func (w *watch) mark(d *Device, slot chain.Slot, m chain.Mark) {
	w.mu.Lock()
	if w.highest[d.Name] == nil {
		w.highest[d.Name] = map[chain.Slot]chain.Mark{}
	}
	was := w.highest[d.Name][slot]
	if m.Seq >= was.Seq {
		w.highest[d.Name][slot] = m
	}
	w.mu.Unlock()
	if m.Seq < was.Seq || m.Seq == was.Seq && was.Body != "" && m.Body != was.Body {
		w.breach(2, "%s holds chain %d of %s and had %d", d.Name, m.Seq, slot, was.Seq)
	}
}

func (w *watch) reveal(d *Device, options []chain.Option) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.options[d.Name] == nil {
		w.options[d.Name] = map[chain.OptionID][]chain.Option{}
	}
	for _, o := range options {
		w.options[d.Name][o.ID] = append(w.options[d.Name][o.ID], o)
	}
}

// called checks a call of a service at the moment it is made.
func (w *watch) called(d *Device, c adapter.Call) {
	o := c.Attempt.Option
	w.mu.Lock()
	given := false
	for _, g := range w.options[d.Name][o.ID] {
		// Where a local option runs is the device's own business; it must be its own.
		given = given || g.Kind == o.Kind && g.Model == o.Model && (g.Endpoint == o.Endpoint || slices.Contains(d.models, o.ID))
	}
	w.mu.Unlock()
	if !given {
		w.breach(1, "%s tried %s, which no signed chain of its own gives it", d.Name, o.ID)
	}
	if c.Secret != "" && c.Secret != d.ring[c.Attempt.Key] {
		w.breach(6, "%s used a key that is not its own for %s", d.Name, o.ID)
	}
	asker, _, _ := strings.Cut(c.Request.ID, "-")
	if asker == d.Name {
		return
	}
	from := w.net.Device(asker)
	if o.Kind != chain.Local && !w.viaProvider(d) {
		w.breach(5, "%s ran %s for %s: its slot allows local options only", d.Name, o.ID, asker)
	}
	joined, ok, err := daemon.LoadJoined(d.data)
	if err != nil || !ok || joined.Revoked {
		w.breach(5, "%s runs work of %s without a membership of its own", d.Name, asker)
		return
	}
	theirs, ok, err := daemon.LoadJoined(from.data)
	if err != nil || !ok {
		return // it crashed meanwhile
	}
	m, err := member.Verify(joined.Trust, theirs.Membership, time.Now())
	if err != nil {
		w.breach(5, "%s runs work of %s, whose membership does not hold: %v", d.Name, asker, err)
		return
	}
	// A list that came since the work was admitted does not undo that.
	list, err := member.VerifyRevocations(joined.Trust, joined.Revocations, 0, time.Now())
	if err == nil && list.Ends(&m) && time.Since(list.Issued.Time()) > time.Minute {
		w.breach(5, "%s runs work of %s, and knows that it was revoked", d.Name, asker)
	}
}

// viaProvider reports whether any slot that d was ever given lets its runner use
// providers.
func (w *watch) viaProvider(d *Device) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, options := range w.options[d.Name] {
		for _, o := range options {
			if o.Kind == chain.Peer && slices.Contains(o.Via, chain.Provider) {
				return true
			}
		}
	}
	return false
}

// answered holds a device to the life of its chains, and remembers that it owes a receipt.
func (w *watch) answered(d *Device, a Answer) {
	if a.Status != 200 {
		return
	}
	d.mu.Lock()
	d.finished++
	d.mu.Unlock()
	began := time.Now().Add(-a.Took)
	for _, c := range d.chains.All() {
		if c.Slot().Primitive == chain.LLMChat && c.Expired(began) {
			w.breach(8, "%s answered on a chain that had expired", d.Name)
		}
	}
}

// watchedNode counts what passed between a device and the hub, and what that revealed.
type watchedNode struct {
	daemon.Node
	device *Device
}

func (n *watchedNode) passed(kind string, err error) {
	if err == nil {
		n.device.net.watch.passed(n.device, kind)
	}
}

func (w *watch) passed(d *Device, kind string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lives != w.net.hub.lives {
		w.lives, w.done = w.net.hub.lives, map[string]map[string]int{}
	}
	if w.done[d.Name] == nil {
		w.done[d.Name] = map[string]int{}
	}
	w.done[d.Name][kind]++
}

func (n *watchedNode) Hello(ctx context.Context, q wire.Hello) (wire.Welcome, error) {
	a, err := n.Node.Hello(ctx, q)
	n.passed("hello", err)
	return a, err
}

func (n *watchedNode) Report(ctx context.Context, q wire.Report) (wire.ReportReply, error) {
	a, err := n.Node.Report(ctx, q)
	n.passed("report", err)
	return a, err
}

func (n *watchedNode) Fetch(ctx context.Context, q wire.Fetch) (wire.FetchReply, error) {
	a, err := n.Node.Fetch(ctx, q)
	n.passed("fetch", err)
	return a, err
}

func (n *watchedNode) Protest(ctx context.Context, q wire.Protest) (wire.ProtestReply, error) {
	a, err := n.Node.Protest(ctx, q)
	n.passed("protest", err)
	if err == nil && len(a.Extension) > 0 {
		n.device.net.watch.extended(n.device, a.Extension)
	}
	return a, err
}

// extended remembers what an extension reveals, if the hub signed it for d.
func (w *watch) extended(d *Device, envelope []byte) {
	for _, c := range d.chains.All() {
		if e, err := w.net.hub.trust.OpenExtension(c, d.Peer, envelope, time.Now()); err == nil {
			w.reveal(d, e.Options)
			return
		}
	}
}
