package job

import (
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// What the table says no with.
var (
	// ErrUnknown says that there is no such job, or none any more.
	ErrUnknown = errors.New("no such job")
	// ErrTransition says that a job's state does not allow what was asked.
	ErrTransition = errors.New("the job's state does not allow it")
	// ErrFull says that a bound of the table is reached: end some jobs first.
	ErrFull = errors.New("too many jobs")
)

// Bounds of a table.
const (
	MaxRoots      = 256   // ended requests that are remembered, the newest
	MaxUnfinished = 4_096 // jobs that have not ended
	MaxTree       = 512   // jobs of one request
)

// Place is who took a job.
type Place struct {
	Option   chain.OptionID
	Peer     chain.PeerID // of a slot
	Device   string       // that peer's name, "" for this device
	Provider string       // over HTTP: its ID
}

// Counts is what status and metrics show of a table.
type Counts struct {
	Pending, Running                    int    // now
	Done, Failed, Superseded, Cancelled uint64 // since the start, as they were settled
	Refused                             uint64 // calls that a state did not allow
	Damaged                             uint64 // kept records that could not be read
	Unkept                              uint64 // batches that could not be written
}

// Table holds the jobs of a device: all that have not ended, and those of the
// newest [MaxRoots] ended requests. Its methods may be called from many goroutines
// at once and wait for no disk. [NewTable] makes one.
type Table struct {
	keeper Keeper
	now    func() time.Time

	mu     sync.Mutex
	jobs   map[string]*entry
	roots  []*tree // in the order in which they began
	counts Counts
	dirty  map[string]bool // to be written; an ID that is gone is deleted
	news   chan struct{}
}

type entry struct {
	Record
	tree     *tree
	settled  bool // its place among its copies is known
	accounts bool // what it spent is known
}

// tree is a request with its parts in the order in which they began.
type tree struct {
	id   string
	jobs []*entry
	open int // that have not ended
}

// NewTable makes an empty table. A nil keeper keeps nothing.
func NewTable(keeper Keeper) *Table {
	return &Table{keeper: keeper, now: time.Now, jobs: map[string]*entry{}, dirty: map[string]bool{}, news: make(chan struct{}, 1)}
}

// Open adds a job that nobody accepted yet and gives its ID. Of r it takes what is
// known beforehand; ID, state and times are the table's. An empty Root makes it a
// root. The root of a part must not have ended.
func (t *Table) Open(r Record) (id string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts.Pending+t.counts.Running >= MaxUnfinished {
		return "", fmt.Errorf("%w: %d have not ended", ErrFull, MaxUnfinished)
	}
	e := &entry{Record: r.bounded()}
	e.ID, e.State, e.Hedge, e.Created, e.Accepted, e.Ended = rand.Text(), Pending, "", t.now().UTC(), time.Time{}, time.Time{}
	if r.Root == "" {
		e.Root, e.tree = e.ID, &tree{id: e.ID}
		t.roots = append(t.roots, e.tree)
	} else {
		root := t.jobs[r.Root]
		switch {
		case root == nil || root.tree.id != r.Root:
			return "", fmt.Errorf("open a part: %w", ErrUnknown)
		case root.State.Ended():
			return "", fmt.Errorf("open a part of a request that has ended: %w", t.refuse())
		case len(root.tree.jobs) >= MaxTree:
			return "", fmt.Errorf("%w: %d of one request", ErrFull, MaxTree)
		}
		e.tree = root.tree
	}
	e.tree.jobs = append(e.tree.jobs, e)
	e.tree.open++
	t.jobs[e.ID] = e
	t.counts.Pending++
	t.changed(e.ID)
	return e.ID, nil
}

// Accept says who took the job, also when the next one takes it over. A job that
// has ended is taken by nobody: [ErrTransition].
func (t *Table) Accept(id string, by Place) error {
	return t.with(id, func(e *entry) error {
		if e.State.Ended() {
			return t.refuse()
		}
		if e.State == Pending {
			e.State, e.Accepted = Running, t.now().UTC()
			t.counts.Pending--
			t.counts.Running++
		}
		e.Option, e.Peer, e.Device, e.Provider = by.Option, by.Peer, by.Device, by.Provider
		return nil
	})
}

// Update has change note what became known of a job, ended or not: scores, tokens,
// hashes. What a job is, its state and its times stay as they are.
func (t *Table) Update(id string, change func(*Record)) error {
	return t.with(id, func(e *entry) error {
		e.note(change)
		return nil
	})
}

// End says that the job came to its end: done, failed or cancelled, with a reason
// for the latter two. change, where set, notes what it spent and who did it, as in
// [Table.Update]. A job that was settled while it ran keeps its state and takes the
// account, once: what a loser spent stays on record. Otherwise a job ends once:
// [ErrTransition].
func (t *Table) End(id string, state State, reason string, change func(*Record)) error {
	return t.with(id, func(e *entry) error {
		switch {
		case e.State.Ended() && e.accounts, state != Done && state != Failed && state != Cancelled:
			return t.refuse()
		case state == Done && e.State == Pending: // nobody accepted it: nobody can have done it
			return t.refuse()
		}
		e.accounts = true
		if !e.State.Ended() {
			t.finish(e, state)
			if state != Done {
				e.Reason = reason
			}
		}
		e.note(change)
		return nil
	})
}

// Settle says what became of a job among its copies. A done job may be the winner,
// or be superseded or cancelled; one that failed or was cancelled may be superseded
// or stay as it is; one that has not ended ends with it, superseded or cancelled. It
// is said once: an equal repeat is nothing, another is [ErrTransition].
func (t *Table) Settle(id string, state State, hedge Hedge) error {
	return t.with(id, func(e *entry) error {
		if e.settled {
			if e.State == state && e.Hedge == hedge {
				return nil
			}
			return t.refuse()
		}
		if !settles(e.State, state) || hedge == Winner && state != Done || hedge != "" && hedge != Winner && hedge != Loser {
			return t.refuse()
		}
		if e.State.Ended() {
			t.ended(e.State, -1)
			t.ended(state, 1)
			e.State = state
		} else {
			t.finish(e, state)
		}
		if state == Done || state == Superseded {
			e.Reason = ""
		}
		e.settled, e.Hedge = true, hedge
		return nil
	})
}

// settles reports whether a job in state from may be settled as to.
func settles(from, to State) bool {
	switch from {
	case Pending, Running:
		return to == Superseded || to == Cancelled
	case Done:
		return to == Done || to == Superseded || to == Cancelled
	case Failed:
		return to == Failed || to == Superseded || to == Cancelled
	case Cancelled:
		return to == Cancelled || to == Superseded
	}
	return false
}

// with runs f on the job of that ID, and has it written if it changed.
func (t *Table) with(id string, f func(*entry) error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.jobs[id]
	if e == nil {
		return ErrUnknown
	}
	if err := f(e); err != nil {
		return fmt.Errorf("%s: %w", e.State, err)
	}
	t.changed(id)
	return nil
}

func (t *Table) refuse() error {
	t.counts.Refused++
	return ErrTransition
}

// note applies change to what may be changed at any time.
func (e *entry) note(change func(*Record)) {
	if change == nil {
		return
	}
	was, now := e.Record, e.Record
	change(&now)
	now = now.bounded()
	now.ID, now.Root, now.CopyOf, now.RequestID, now.Role = was.ID, was.Root, was.CopyOf, was.RequestID, was.Role
	now.State, now.Hedge, now.Created, now.Accepted, now.Ended = was.State, was.Hedge, was.Created, was.Accepted, was.Ended
	e.Record = now
}

// finish ends a job that has not. The caller holds mu.
func (t *Table) finish(e *entry, state State) {
	if e.State == Pending {
		t.counts.Pending--
	} else {
		t.counts.Running--
	}
	t.ended(state, 1)
	e.State, e.Ended = state, t.now().UTC()
	if e.tree.open--; e.tree.open == 0 {
		t.trim()
	}
}

// ended counts n more jobs that ended in state.
func (t *Table) ended(state State, n int) {
	c := map[State]*uint64{Done: &t.counts.Done, Failed: &t.counts.Failed, Superseded: &t.counts.Superseded, Cancelled: &t.counts.Cancelled}[state]
	*c += uint64(n) // -1 takes one back
}

// trim forgets the oldest requests of which every part has ended.
func (t *Table) trim() {
	over := -MaxRoots
	for _, r := range t.roots {
		if r.open == 0 {
			over++
		}
	}
	if over <= 0 {
		return
	}
	t.roots = slices.DeleteFunc(t.roots, func(r *tree) bool {
		if over <= 0 || r.open > 0 {
			return false
		}
		over--
		for _, e := range r.jobs {
			delete(t.jobs, e.ID)
			t.changed(e.ID)
		}
		return true
	})
}

// Get gives the job of that ID.
func (t *Table) Get(id string) (Record, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.jobs[id]; e != nil {
		return e.Record, true
	}
	return Record{}, false
}

// Roots gives the requests, the newest first, at most n of them; n < 1 gives all.
func (t *Table) Roots(n int) []Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n < 1 || n > len(t.roots) {
		n = len(t.roots)
	}
	out := make([]Record, n)
	for i := range out {
		out[i] = t.roots[len(t.roots)-1-i].jobs[0].Record
	}
	return out
}

// Tree gives a request and its parts in the order in which they began, the root
// first. id is that of the root, of any of its parts, or the newest request of that
// request ID. It gives none if there is no such job.
func (t *Table) Tree(id string) []Record {
	t.mu.Lock()
	defer t.mu.Unlock()
	var found *tree
	if e := t.jobs[id]; e != nil {
		found = e.tree
	}
	for _, r := range slices.Backward(t.roots) {
		if found == nil && id != "" && r.jobs[0].RequestID == id {
			found = r
		}
	}
	if found == nil {
		return nil
	}
	out := make([]Record, len(found.jobs))
	for i, e := range found.jobs {
		out[i] = e.Record
	}
	return out
}

// Counts gives the table's figures now.
func (t *Table) Counts() Counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts
}
