package edge

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain/receipt"
)

// Desk is what inlet and outlet need: the two ends of a chat that somebody else
// carries to its agent. Select, Receipts and Secret are required; what is nil of the
// others asks for nothing.
type Desk struct {
	Select   Selector
	Snapshot Snapshot // nil: there is no registry that could be stale
	Gate     Gate     // nil: everything passes
	Receipts Receipts
	Secret   []byte // authenticates transaction ids; 32 bytes that nobody else has, the same after a restart
}

// Selector chooses who would serve a chat. It runs nothing. Its methods answer from
// memory and may be called from many goroutines.
type Selector interface {
	// Select chooses for w as [Worker.Do] would. An error wraps a [*Refusal].
	Select(w *Work) (Selected, error)
	// Agent finds the agent behind a name that Select gave, for an outlet whose
	// inlet is not remembered; "" if there is none.
	Agent(model string) (did, capability string)
}

// Selected is the agent of one chat.
type Selected struct {
	Agent      string // its DID; "" where nobody is bound yet
	Model      string // the name to call it by
	Capability string
	Method     string // selection_method
}

// Snapshot tells whether the registry's snapshot may be used.
type Snapshot interface {
	// Fresh is nil while there is one that is fresh enough, else says no_snapshot or
	// snapshot_stale as a [*Refusal].
	Fresh(now time.Time) error
	// Truncated reports whether the registry lists more agents than it has.
	Truncated(now time.Time) bool
}

// Gate lets work pass, or not.
type Gate interface {
	// Pass gets a token for an agent, if one is to be had, and judges it.
	Pass(ctx context.Context, agent, capability string) Decision
}

// Decision is a gate's verdict and what becomes of it.
type Decision struct {
	Word    string // allow or deny, whatever the mode
	TokenID string // "" without a token whose signature holds
	Err     error  // why the work may not go on, best as a [*Refusal]; nil: it may
}

// Receipts keeps receipts.
type Receipts interface {
	// Keep signs r, whose SeekerDID it sets, and returns when it is durable. One with
	// a transaction that is known is no error and changes nothing. An error means
	// that nothing is promised.
	Keep(ctx context.Context, r receipt.Receipt) error
}

// Bounds of what is remembered of inlets.
const (
	maxInlets  = 1 << 14
	outletWait = time.Hour // an outlet later than this is taken, its inlet counted as unreported all the same
)

// inlets remembers which chats were let in and not reported yet, to count those
// that never are.
type inlets struct {
	mu         sync.Mutex
	open       map[string]*openInlet
	order      []inlet // by age
	unreported uint64
}

type openInlet struct {
	Selected
	carried bool // its chat came through this edge, which accounts for it
}

type inlet struct {
	id string
	at time.Time
}

func (i *inlets) begin(id string, s Selected, now time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.open == nil {
		i.open = make(map[string]*openInlet)
	}
	i.open[id], i.order = &openInlet{Selected: s}, append(i.order, inlet{id, now})
	i.age(now)
}

// age forgets inlets that waited for too long, or that are too many.
func (i *inlets) age(now time.Time) {
	n := 0
	for ; n < len(i.order); n++ {
		old := i.order[n]
		if now.Sub(old.at) < outletWait && len(i.open) <= maxInlets {
			if _, ok := i.open[old.id]; ok {
				break
			}
		}
		if o, ok := i.open[old.id]; ok {
			delete(i.open, old.id)
			if !o.carried {
				i.unreported++
			}
		}
	}
	i.order = i.order[n:]
	if len(i.order) > 2*maxInlets { // most were reported
		i.order = slices.DeleteFunc(i.order, func(n inlet) bool { _, ok := i.open[n.id]; return !ok })
	}
}

// known gives who was chosen for the inlet id, while it is remembered.
func (i *inlets) known(id string) (Selected, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if o, ok := i.open[id]; ok {
		return o.Selected, true
	}
	return Selected{}, false
}

// carry says that a chat with the transaction id came through this edge. One chat of an
// inlet has its transaction: a second one would have no receipt.
func (i *inlets) carry(id string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	o, ok := i.open[id]
	if !ok || o.carried {
		return false
	}
	o.carried = true
	return true
}

// end says that the outlet of id came.
func (i *inlets) end(id string) {
	i.mu.Lock()
	defer i.mu.Unlock()
	delete(i.open, id)
}

// Inlets counts the chats that were let in and wait for their outlet, and those
// whose outlet never came.
func (e *Edge) Inlets(now time.Time) (open int, unreported uint64) {
	i := &e.inlets
	i.mu.Lock()
	defer i.mu.Unlock()
	i.age(now)
	return len(i.open), i.unreported
}

func (d *Desk) check() error {
	if d.Select == nil || d.Receipts == nil || len(d.Secret) < 32 {
		return errors.New("edge: BUG: a desk without selector, receipts or secret")
	}
	return nil
}
