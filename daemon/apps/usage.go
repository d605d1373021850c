package apps

import (
	"cmp"
	"crypto/sha256"
	"errors"
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// maxRows bounds what is remembered of use; beyond it the oldest day goes.
const maxRows = 8192

// Row is what one application used of one model on one day.
type Row struct {
	Day      string `cbor:"d" json:"day"`   // UTC, 2026-11-30
	App      string `cbor:"a" json:"app"`   // "" for the device's own key
	Model    string `cbor:"m" json:"model"` // the option; "" where none answered
	Requests int64  `cbor:"r" json:"requests"`
	Failed   int64  `cbor:"f,omitempty" json:"failed"`
	Input    int64  `cbor:"i,omitempty" json:"input_tokens"`
	Output   int64  `cbor:"o,omitempty" json:"output_tokens"`
	Money    int64  `cbor:"c,omitempty" json:"micro_dollars"`
}

type rowKey struct{ day, app, model string }

type usage map[rowKey]*Row

// Count adds to the row of an application and a model on the day of now. Counts in
// r are added, its names are ignored.
func (b *Book) Count(app *App, model string, r Row, now time.Time) {
	name := ""
	if app != nil {
		name = app.Name
	}
	k := rowKey{now.UTC().Format(time.DateOnly), name, model}
	b.mu.Lock()
	defer b.mu.Unlock()
	have := b.usage[k]
	if have == nil {
		if len(b.usage) >= maxRows {
			b.usage.dropOldest()
		}
		have = &Row{Day: k.day, App: k.app, Model: k.model}
		b.usage[k] = have
	}
	have.Requests += r.Requests
	have.Failed += r.Failed
	have.Input += r.Input
	have.Output += r.Output
	have.Money += r.Money
	b.changed = true
}

func (u usage) dropOldest() {
	oldest := ""
	for k := range u {
		if oldest == "" || k.day < oldest {
			oldest = k.day
		}
	}
	for k := range u {
		if k.day == oldest {
			delete(u, k)
		}
	}
}

// Usage gives the rows from a day on, the newest day first, then by application and
// model.
func (b *Book) Usage(since time.Time) []Row {
	from := since.UTC().Format(time.DateOnly)
	b.mu.RLock()
	defer b.mu.RUnlock()
	rows := []Row{}
	for k, r := range b.usage {
		if k.day >= from {
			rows = append(rows, *r)
		}
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(-cmp.Compare(a.Day, b.Day), cmp.Compare(a.App, b.App), cmp.Compare(a.Model, b.Model))
	})
	return rows
}

// keptApp is an application on disk: its key is a hash there.
type keptApp struct {
	Rule  Rule   `cbor:"rule"`
	Hash  []byte `cbor:"hash"`
	Month string `cbor:"month,omitempty"`
	Spent int64  `cbor:"spent,omitempty"`
}

type kept struct {
	Apps  []keptApp `cbor:"apps"`
	Usage []Row     `cbor:"usage"`
}

// Kept gives the bytes to keep, and false if nothing changed since it was last
// asked. After a failed write call [Book.Dirty].
func (b *Book) Kept() ([]byte, bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.changed {
		return nil, false, nil
	}
	b.changed = false
	var k kept
	for _, a := range b.apps {
		a.mu.Lock()
		k.Apps = append(k.Apps, keptApp{a.Rule, a.hash[:], a.month, a.spent + a.reserved})
		a.mu.Unlock()
	}
	for _, r := range b.usage {
		k.Usage = append(k.Usage, *r)
	}
	slices.SortFunc(k.Usage, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Day, b.Day), cmp.Compare(a.App, b.App), cmp.Compare(a.Model, b.Model))
	})
	bytes, err := chain.Marshal(k)
	return bytes, true, err
}

// Dirty says that what Kept gave did not reach the disk.
func (b *Book) Dirty() {
	b.mu.Lock()
	b.changed = true
	b.mu.Unlock()
}

// Restore takes over what was kept. What was reserved then counts as spent: whether
// it was, nobody knows.
func Restore(bytes []byte) (*Book, error) {
	var k kept
	if err := chain.Unmarshal(bytes, &k); err != nil {
		return nil, err
	}
	if len(k.Apps) > MaxApps || len(k.Usage) > maxRows {
		return nil, errors.New("more applications or rows of use than there may be")
	}
	b := New()
	for _, a := range k.Apps {
		if err := a.Rule.Validate(); err != nil {
			return nil, err
		}
		at, found := b.search(a.Rule.Name)
		if found || len(a.Hash) != sha256.Size || a.Spent < 0 {
			return nil, errors.New("an application is there twice, or without a key")
		}
		b.apps = slices.Insert(b.apps, at, &App{Rule: a.Rule, hash: [sha256.Size]byte(a.Hash), month: a.Month, spent: a.Spent})
	}
	for _, r := range k.Usage {
		b.usage[rowKey{r.Day, r.App, r.Model}] = &r
	}
	return b, nil
}
