package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/delta"
	"github.com/chordwheel/chordwheel/chain/nesting"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/edge"
)

// deltasFile is the name under which a device keeps what it measured: counts,
// values and names of options.
const deltasFile = "deltas.json"

// keepDeltasEvery is how often it is written; a crash loses as much.
const keepDeltasEvery = 5 * time.Minute

// deltas is what this device knows better than its hub.
type deltas struct {
	mu    sync.Mutex
	book  *delta.Book
	ready map[chain.Slot]reordered
}

// reordered is a chain's options in an own order, made once for many requests.
type reordered struct {
	of      *chain.Chain
	order   *int // the first of the places: another order has another
	options []chain.Option
}

func newDeltas() deltas { return deltas{book: delta.New(), ready: map[chain.Slot]reordered{}} }

// loadDeltas takes over what was measured before the restart. What cannot be read
// is measured again.
func (d *Daemon) loadDeltas() {
	b, err := d.cfg.State.ReadChecked(deltasFile)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var k delta.Kept
	if err == nil {
		err = json.Unmarshal(b, &k)
	}
	if err != nil {
		d.cfg.Log.Warn("what this device measured before cannot be read", "error", err)
		return
	}
	d.deltas.book.Restore(k, time.Now())
}

// keepDeltas writes what was measured since the last time.
func (d *Daemon) keepDeltas() error {
	d.deltas.mu.Lock()
	k, changed := d.deltas.book.Keep(time.Now())
	d.deltas.mu.Unlock()
	if !changed {
		return nil
	}
	b, err := json.Marshal(k)
	if err == nil {
		err = d.cfg.State.WriteChecked(deltasFile, b)
	}
	if err != nil {
		return fmt.Errorf("keep what this device measured: %w", err)
	}
	return nil
}

// view is c as package delta looks at it.
func (d *Daemon) view(c *chain.Chain) delta.View {
	return delta.View{Slot: c.Slot(), Body: c.Head().Body, Options: c.Options(), Rules: c.Rules(),
		Usable: func(o *chain.Option) bool { return d.runs(o) && d.hasKey(o) }}
}

// ordered gives the options of c as this device runs them, in its own order.
func (d *Daemon) ordered(c *chain.Chain, talk delta.Conversation) []chain.Option {
	v := d.view(c)
	d.deltas.mu.Lock()
	defer d.deltas.mu.Unlock()
	places := d.deltas.book.Order(&v, talk, time.Now())
	if slices.IsSorted(places) {
		return d.effective(v.Options)
	}
	if have := d.deltas.ready[v.Slot]; have.of == c && have.order == &places[0] {
		return have.options
	}
	options := make([]chain.Option, len(places))
	for i, at := range places {
		options[i] = v.Options[at]
	}
	options = d.effective(options)
	d.deltas.ready[v.Slot] = reordered{c, &places[0], options}
	return options
}

// observed takes in an attempt of this device's own.
func (d *Daemon) observed(c *chain.Chain, m walk.Measurement) {
	if m.Neutral || m.Class != chain.OK && !m.Class.Blames() {
		return
	}
	s := delta.Sample{OK: m.Class == chain.OK, Took: m.Total, At: m.At}
	if i := slices.IndexFunc(c.Options(), func(o chain.Option) bool { return o.ID == m.Option }); i >= 0 {
		cost := &c.Options()[i].Cost
		s.Suspect, s.Hub = cost.Suspect(), cost.Latency.Duration()
	}
	d.deltas.mu.Lock()
	defer d.deltas.mu.Unlock()
	d.deltas.book.Observe(delta.Key{Primitive: c.Slot().Primitive, Option: m.Option}, s)
}

// evaluate looks the own order over after a request.
func (d *Daemon) evaluate(c *chain.Chain, talk delta.Conversation, r walk.Result) {
	if r.Attempts == 0 {
		return
	}
	v, now := d.view(c), time.Now()
	d.deltas.mu.Lock()
	defer d.deltas.mu.Unlock()
	if r.End == walk.Answered {
		d.deltas.book.Warm(v.Slot, talk, r.Option, now)
	}
	d.deltas.book.Evaluate(&v, now)
}

// explained says how this device's order of c came about.
func (d *Daemon) explained(c *chain.Chain) []delta.Row {
	v := d.view(c)
	d.deltas.mu.Lock()
	defer d.deltas.mu.Unlock()
	return d.deltas.book.Explain(&v, time.Now())
}

// conversation gives the conversation that a request belongs to: the one it names,
// else the one that begins with the same messages.
func conversation(w *edge.Work) delta.Conversation {
	if w.Session != "" {
		return delta.ConversationOf([]byte("session\n" + w.Session))
	}
	return delta.ConversationOf(beginning(w.Body))
}

// maxBeginning bounds how much of a request is looked at for its first messages.
const maxBeginning = 4 << 10

// beginning gives the bytes of a chat request's messages up to its first of a user,
// or as much of them as is looked at; nil if there are none. They are the same in
// every turn of a conversation. It reads no further than it must: it is on the way
// of each request.
func beginning(body []byte) []byte {
	at := bytes.Index(body[:min(len(body), maxBeginning)], []byte(`"messages"`))
	if at < 0 {
		return nil
	}
	part := body[at:]
	part = part[:min(len(part), maxBeginning)]
	open := bytes.IndexByte(part, '[')
	if open < 0 {
		return nil
	}
	part = part[open:]
	first := 0 // where the current message begins
	for i, open := range nesting.Brackets(part) {
		switch opens := part[i] == '{' || part[i] == '['; {
		case opens && open == 2:
			first = i
		case opens:
		case open == 0 || open == 1 && bytes.Contains(part[first:i], []byte(`"user"`)):
			return part[:i]
		}
	}
	return part
}
