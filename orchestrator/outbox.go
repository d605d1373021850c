package orchestrator

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// outbox carries what the loop has to say to the publisher. What waits is
// bounded by the number of slots: of several editions of one only the newest
// is said.
type outbox struct {
	log    *slog.Logger
	cancel context.CancelFunc
	wake   chan struct{} // capacity 1: there is something
	group  sync.WaitGroup

	publisher Publisher // set once by start

	mu      sync.Mutex
	pending map[chain.Slot]invalidation
	order   []chain.Slot
	list    []byte
	drop    []chain.PeerID
	keys    []wire.TopicKey
	rejoin  bool
}

type invalidation struct {
	seq  uint64
	body chain.CID
}

// publishTimeout bounds one message; gossip that takes longer is of no use.
const publishTimeout = 5 * time.Second

func newOutbox(log *slog.Logger) *outbox {
	return &outbox{log: log, wake: make(chan struct{}, 1), pending: map[chain.Slot]invalidation{}}
}

func (o *outbox) start(p Publisher) {
	ctx, cancel := context.WithCancel(context.Background())
	o.cancel, o.publisher = cancel, p
	o.group.Add(1)
	go func() {
		defer o.group.Done()
		for {
			select {
			case <-ctx.Done():
				return
			case <-o.wake:
				o.flush(ctx, p)
			}
		}
	}()
	o.poke()
}

func (o *outbox) close() {
	o.cancel()
	o.group.Wait()
}

func (o *outbox) poke() {
	select {
	case o.wake <- struct{}{}:
	default:
	}
}

func (o *outbox) invalidate(slot chain.Slot, seq uint64, body chain.CID) {
	o.mu.Lock()
	if _, waits := o.pending[slot]; !waits {
		o.order = append(o.order, slot)
	}
	o.pending[slot] = invalidation{seq, body}
	o.mu.Unlock()
	o.poke()
}

// revoked publishes a list, and then closes the connections of peers.
func (o *outbox) revoked(list []byte, peers ...chain.PeerID) {
	o.mu.Lock()
	o.list = list
	o.drop = append(o.drop, peers...)
	o.mu.Unlock()
	o.poke()
}

func (o *outbox) join(keys []wire.TopicKey) {
	o.mu.Lock()
	o.keys, o.rejoin = keys, true
	o.mu.Unlock()
	o.poke()
}

// flush says all that waits, topics first: an invalidation needs its scope's.
func (o *outbox) flush(ctx context.Context, p Publisher) {
	o.mu.Lock()
	keys, rejoin, list, drop, order, pending := o.keys, o.rejoin, o.list, o.drop, o.order, o.pending
	o.rejoin, o.list, o.drop, o.order, o.pending = false, nil, nil, nil, map[chain.Slot]invalidation{}
	o.mu.Unlock()
	if rejoin {
		o.said("join topics", p.Join(keys...))
	}
	if list != nil {
		o.within(ctx, func(ctx context.Context) { o.said("publish revocations", p.Revoked(ctx, list)) })
	}
	if d, ok := p.(interface{ Drop(chain.PeerID) error }); ok {
		for _, peer := range drop {
			o.said("close a revoked peer's connections", d.Drop(peer))
		}
	}
	for _, slot := range order {
		i := pending[slot]
		o.within(ctx, func(ctx context.Context) { o.said("invalidate "+slot.String(), p.Invalidate(ctx, slot, i.seq, i.body)) })
	}
}

func (o *outbox) within(ctx context.Context, f func(context.Context)) {
	if ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, publishTimeout)
	defer cancel()
	f(ctx)
}

// said notes a failure; nothing is lost by it, for devices fetch at their next visit.
func (o *outbox) said(what string, err error) {
	if err != nil && !errors.Is(err, chain.ErrRollback) { // that number was said before
		o.log.Warn("gossip failed; devices learn of it at their next visit", "what", what, "error", err)
	}
}
