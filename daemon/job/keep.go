package job

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/chordwheel/chordwheel/chain"
)

// Restart is the reason of jobs that had not ended when the device stopped.
const Restart = "restart"

// Keeper is where records survive a restart: a bucket of the store. Values are
// bytes. A call may take as long as the disk does.
type Keeper interface {
	PutAll(records map[string]any) error
	Delete(keys ...string) error
	Each(f func(key string, decode func(v any) error) error) error
}

// Bounds of a kept record, and the pace of writing.
const (
	maxText   = 128      // bytes of one text
	maxTexts  = 16       // texts of one list
	maxRecord = 64 << 10 // bytes of a record
	maxGone   = 16 << 10 // jobs that wait to be deleted
	flushWait = time.Second
)

// bounded gives r as it may be shown and kept: whatever came from elsewhere, a
// peer's name say, is short and valid text.
func (r Record) bounded() Record {
	clip := func(s string) string { return chain.ClipTo(strings.ToValidUTF8(s, "?"), maxText) }
	for _, s := range []*string{&r.Root, &r.CopyOf, &r.RequestID, &r.Transaction, &r.Task, &r.Reason, &r.Device, &r.Provider, &r.Class, &r.RequestHash, &r.ResponseHash} {
		*s = clip(*s)
	}
	r.Option, r.Peer, r.Primitive = chain.OptionID(clip(string(r.Option))), chain.PeerID(clip(string(r.Peer))), chain.Primitive(clip(string(r.Primitive)))
	for _, list := range []*[]string{&r.After, &r.Reasons, &r.Notes} {
		short := (*list)[:min(len(*list), maxTexts)]
		*list = nil
		for _, s := range short {
			*list = append(*list, clip(s))
		}
	}
	return r
}

// errRecord says that a kept record is none.
var errRecord = errors.New("not the record of a job")

// decode reads a kept record. The disk is foreign input: an older or newer version
// wrote it, or an accident did.
func decode(key string, b []byte) (Record, error) {
	var r Record
	if len(b) > maxRecord || !utf8.Valid(b) {
		return r, fmt.Errorf("%w: %d bytes", errRecord, len(b))
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return r, fmt.Errorf("%w: it is no JSON object of that form", errRecord)
	}
	states := []State{Pending, Running, Done, Failed, Superseded, Cancelled}
	roles := []Role{Root, Direct, Classify, Decompose, Subtask, Synthesise, Score, Rewrite, Provided}
	switch {
	case r.ID == "" || r.ID != key || r.Root == "" || len(r.ID) > maxText || len(r.Root) > maxText:
		return r, fmt.Errorf("%w: its ID is not its key", errRecord)
	case !slices.Contains(states, r.State), !slices.Contains(roles, r.Role), r.Hedge != "" && r.Hedge != Winner && r.Hedge != Loser:
		return r, fmt.Errorf("%w: its state, role or hedge role is unknown", errRecord)
	case r.Created.IsZero() || r.State.Ended() == r.Ended.IsZero():
		return r, fmt.Errorf("%w: its times do not fit its state", errRecord)
	}
	return r.bounded(), nil
}

// Load reads what the last run kept, once, before anything else. Jobs that had not
// ended are failed with the reason [Restart] and given back, for their receipts.
func (t *Table) Load() (failed []Record, err error) {
	if t.keeper == nil {
		return nil, nil
	}
	var all []Record
	t.mu.Lock()
	defer t.mu.Unlock()
	err = t.keeper.Each(func(key string, value func(v any) error) error {
		var b []byte
		err := value(&b)
		r, bad := decode(key, b)
		if err != nil || bad != nil {
			t.counts.Damaged++
			t.changed(key) // it goes
			return nil
		}
		all = append(all, r)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read the kept jobs: %w", err)
	}
	slices.SortFunc(all, func(a, b Record) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID))
	})
	for root := range 2 { // parts after their roots, whatever the clock said
		for _, r := range all {
			if (r.Root == r.ID) != (root == 0) {
				continue
			}
			if !r.State.Ended() {
				r.State, r.Reason, r.Ended = Failed, Restart, t.now().UTC()
				failed = append(failed, r)
			}
			t.remember(r)
		}
	}
	t.trim()
	return failed, nil
}

// remember adds an ended job. A part without its root is forgotten.
func (t *Table) remember(r Record) {
	e := &entry{Record: r, settled: true, accounts: true}
	switch root := t.jobs[r.Root]; {
	case r.Root == r.ID:
		e.tree = &tree{id: r.ID}
		t.roots = append(t.roots, e.tree)
	case root != nil && root.tree.id == r.Root && len(root.tree.jobs) < MaxTree:
		e.tree = root.tree
	default:
		t.changed(r.ID)
		return
	}
	e.tree.jobs = append(e.tree.jobs, e)
	t.jobs[r.ID] = e
	if r.Reason == Restart {
		t.changed(r.ID)
	}
}

// changed has the job of that ID written, or deleted, with the next batch. The
// caller holds mu.
func (t *Table) changed(id string) {
	if t.keeper == nil {
		return
	}
	t.dirty[id] = true
	select {
	case t.news <- struct{}{}:
	default:
	}
}

// Run writes what changed, in batches a second apart, until ctx ends, and then the
// rest. A crash loses at most the last second of states; the receipts' own journal
// counts what was open.
func (t *Table) Run(ctx context.Context) {
	for ctx.Err() == nil {
		select {
		case <-ctx.Done():
			continue
		case <-t.news:
		}
		timer := time.NewTimer(flushWait)
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		timer.Stop()
		_ = t.flush() // counted there
	}
	_ = t.flush() // what cannot be written now is lost: it is no receipt
}

// flush writes what changed since the last time. What could not be written is
// tried with the next batch.
func (t *Table) flush() error {
	t.mu.Lock()
	batch := t.dirty
	t.dirty = map[string]bool{}
	records, gone := map[string]any{}, []string{}
	for id := range batch {
		if e := t.jobs[id]; e != nil {
			records[id] = e.Record
		} else {
			gone = append(gone, id)
		}
	}
	t.mu.Unlock()
	for id, r := range records {
		b, err := json.Marshal(r)
		if err != nil || len(b) > maxRecord { // a score that is no number, say
			delete(records, id)
			gone = append(gone, id)
			continue
		}
		records[id] = b
	}
	var err error
	if len(records) > 0 {
		err = t.keeper.PutAll(records)
	}
	if len(gone) > 0 && err == nil {
		err = t.keeper.Delete(gone...)
	}
	if err != nil {
		t.mu.Lock()
		t.counts.Unkept++
		for id := range batch {
			// With a broken disk, what is gone must not pile up here: at worst it
			// comes back at the next start, as a job that ended.
			if t.jobs[id] != nil || len(t.dirty) < maxGone {
				t.changed(id)
			}
		}
		t.mu.Unlock()
		return fmt.Errorf("keep the states of jobs: %w", err)
	}
	return nil
}
