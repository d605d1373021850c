// Package apps owns the applications that may use a device: their keys (as hashes),
// what each may do, and what each used. It is values and a lock: time is an
// argument, and keeping its state on disk is the daemon's business. It must not
// know HTTP, and never sees content. docs/apps.md has the rules.
package apps

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Bounds.
const (
	MaxApps   = 256
	maxModels = 64
	maxRate   = 1_000_000
	maxBudget = 1e6 // dollars a month
)

// Refusals.
var (
	ErrExists  = errors.New("there is an application of that name")
	ErrUnknown = errors.New("there is no application of that name")
	ErrRule    = errors.New("not a rule for an application")
)

// Rule is what an application may do. Its CBOR form is what is kept.
type Rule struct {
	Name    string        `cbor:"name"`
	Scope   chain.ScopeID `cbor:"scope,omitempty"`  // "": the device's first
	Models  []string      `cbor:"models,omitempty"` // patterns over option ids, models and agents, as in path.Match; none: all
	Rate    int           `cbor:"rate,omitempty"`   // requests a minute; 0: any
	Budget  int64         `cbor:"budget,omitempty"` // micro-dollars a calendar month, UTC; 0: any
	Created chain.Instant `cbor:"created"`
}

var goodName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,63}$`)

// Validate reports everything that is wrong with r, wrapping [ErrRule].
func (r *Rule) Validate() error {
	var wrong []string
	if !goodName.MatchString(r.Name) {
		wrong = append(wrong, "name: want 1 to 64 of a-z, 0-9, dot, dash and underscore")
	}
	if r.Scope != "" {
		if _, err := chain.ParseScope(string(r.Scope)); err != nil {
			wrong = append(wrong, "scope: "+err.Error())
		}
	}
	if len(r.Models) > maxModels {
		wrong = append(wrong, fmt.Sprintf("models: at most %d", maxModels))
	}
	for _, m := range r.Models {
		if _, err := path.Match(m, ""); err != nil || m == "" || len(m) > chain.MaxNameBytes {
			wrong = append(wrong, fmt.Sprintf("models: %q is no pattern: write it as in groq/*", chain.Clip(m)))
		}
	}
	if r.Rate < 0 || r.Rate > maxRate {
		wrong = append(wrong, fmt.Sprintf("rate: want 0 to %d requests a minute", maxRate))
	}
	if r.Budget < 0 || r.Budget > maxBudget*1e6 {
		wrong = append(wrong, fmt.Sprintf("budget: want 0 to %.0f dollars a month", maxBudget))
	}
	if len(wrong) > 0 {
		return fmt.Errorf("%w: %s", ErrRule, strings.Join(wrong, "; "))
	}
	return nil
}

// App is one application. Its methods may be called from many goroutines; those of
// a nil App, which is the device's own key, allow everything.
type App struct {
	Rule
	hash [sha256.Size]byte

	mu       sync.Mutex
	tokens   float64   // of the rate
	filled   time.Time // when they were counted last
	month    string
	spent    int64
	reserved int64
}

// Book is the applications of a device, and what each used.
type Book struct {
	mu      sync.RWMutex
	apps    []*App // by name
	usage   usage
	changed bool
}

// New gives a book without applications.
func New() *Book { return &Book{usage: usage{}} }

// Add takes an application in and gives its key, which is nowhere else. Errors wrap
// [ErrRule] or [ErrExists].
func (b *Book) Add(r Rule, now time.Time) (chain.Secret, error) {
	r.Created = chain.InstantOf(now)
	if err := r.Validate(); err != nil {
		return "", err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	at, found := b.search(r.Name)
	switch {
	case found:
		return "", fmt.Errorf("%w: %s", ErrExists, r.Name)
	case len(b.apps) >= MaxApps:
		return "", fmt.Errorf("%w: there are %d applications, remove one first", ErrRule, MaxApps)
	}
	var raw [24]byte
	_, _ = rand.Read(raw[:]) // it never fails
	key := "cw-app-" + base64.RawURLEncoding.EncodeToString(raw[:])
	b.apps = slices.Insert(b.apps, at, &App{Rule: r, hash: sha256.Sum256([]byte(key))})
	b.changed = true
	return chain.Secret(key), nil
}

// Remove forgets an application; its key holds for no further request. What it
// used stays. The error wraps [ErrUnknown].
func (b *Book) Remove(name string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	at, found := b.search(name)
	if !found {
		return fmt.Errorf("%w: %s; chordwheel apps list shows those there are", ErrUnknown, chain.Clip(name))
	}
	b.apps = slices.Delete(b.apps, at, at+1)
	b.changed = true
	return nil
}

func (b *Book) search(name string) (int, bool) {
	return slices.BinarySearchFunc(b.apps, name, func(a *App, name string) int { return strings.Compare(a.Name, name) })
}

// Find gives the application whose key has this SHA-256, nil if there is none. It
// looks at all of them, so that time tells nothing.
func (b *Book) Find(digest [sha256.Size]byte) *App {
	b.mu.RLock()
	defer b.mu.RUnlock()
	var found *App
	for _, a := range b.apps {
		if subtle.ConstantTimeCompare(digest[:], a.hash[:]) == 1 {
			found = a
		}
	}
	return found
}

// Admit counts a request against the rate: false if it comes too early, and how
// long to wait then.
func (a *App) Admit(now time.Time) (wait time.Duration, ok bool) {
	if a == nil || a.Rate == 0 {
		return 0, true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	full, perSecond := float64(a.Rate), float64(a.Rate)/60
	if a.filled.IsZero() {
		a.tokens = full
	} else if passed := now.Sub(a.filled); passed > 0 {
		a.tokens = min(full, a.tokens+passed.Seconds()*perSecond)
	}
	a.filled = now
	if a.tokens < 1 {
		return time.Duration((1 - a.tokens) / perSecond * float64(time.Second)), false
	}
	a.tokens--
	return 0, true
}

// Allows reports whether the application may use what has one of these names.
func (a *App) Allows(names ...string) bool {
	if a == nil || len(a.Models) == 0 {
		return true
	}
	for _, pattern := range a.Models {
		for _, name := range names {
			if name == "" {
				continue
			}
			if pattern == name {
				return true
			}
			if stem, ok := strings.CutSuffix(pattern, "/*"); ok && strings.HasPrefix(name, stem+"/") {
				return true // ids of models have slashes of their own
			}
			if ok, err := path.Match(pattern, name); err == nil && ok {
				return true
			}
		}
	}
	return false
}

// Restricted reports whether the application may use some models only.
func (a *App) Restricted() bool { return a != nil && len(a.Models) > 0 }

// Reserve sets money aside for an attempt: false if the month's budget has not that
// much left. What was set aside goes back with Settle, once.
func (a *App) Reserve(amount int64, now time.Time) bool {
	if a == nil || a.Budget == 0 {
		return true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turn(now)
	if a.spent+a.reserved+amount > a.Budget {
		return false
	}
	a.reserved += amount
	return true
}

// Settle ends a reservation with what the attempt really cost.
func (a *App) Settle(reserved, actual int64, now time.Time) {
	if a == nil || a.Budget == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turn(now)
	a.reserved = max(0, a.reserved-reserved)
	a.spent += max(0, actual)
}

// Left gives what is left of this month's budget, in micro-dollars and at least 0, what of it
// is set aside beside that, and when the next month's begins (UTC). Without a budget it is 0 of both.
func (a *App) Left(now time.Time) (left, reserved int64, anew time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.turn(now)
	month, err := time.Parse("2006-01", a.month)
	if err != nil { // none yet, and a.turn has just set it: cannot be
		month = now.UTC()
	}
	return max(0, a.Budget-a.spent-a.reserved), a.reserved, time.Date(month.Year(), month.Month()+1, 1, 0, 0, 0, 0, time.UTC)
}

// turn begins a new month. A clock that goes back does not bring the old one again.
func (a *App) turn(now time.Time) {
	if month := now.UTC().Format("2006-01"); month > a.month {
		a.month, a.spent = month, 0
	}
}

// View is an application as its owner sees it.
type View struct {
	Rule
	Spent int64 // micro-dollars of this month's budget
}

// List gives all applications by name.
func (b *Book) List(now time.Time) []View {
	b.mu.RLock()
	defer b.mu.RUnlock()
	list := make([]View, 0, len(b.apps))
	for _, a := range b.apps {
		a.mu.Lock()
		a.turn(now)
		list = append(list, View{a.Rule, a.spent})
		a.mu.Unlock()
	}
	return list
}
