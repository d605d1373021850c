package job

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// Class is the coarse class of a provider over HTTP, beside its capabilities.
type Class string

// The classes of providers.
const (
	Browser Class = "browser" // a tab, gone without a word
	Server  Class = "server"  // a machine that stays
	Agent   Class = "agent"   // a program that works on its own account
)

// Capability is what a provider of class c has besides what it declares, so that a
// slot can ask for it.
func (c Class) Capability() chain.Capability { return chain.Capability(classPrefix + string(c)) }

const classPrefix = "worker:"

// What the board says no to providers with.
var (
	ErrProvider = errors.New("no such provider")
	ErrTooMany  = errors.New("too many calls")
	ErrInvalid  = errors.New("not acceptable")
)

// Grant is what an invitation admits to.
type Grant struct {
	Scope    chain.ScopeID
	Patterns []member.Pattern
}

// Registration is what a provider says of itself.
type Registration struct {
	Class        Class
	Capabilities []chain.Capability
}

// Bounds of providers.
const (
	MaxProviders    = 256
	MaxCapabilities = 64                 // of one provider
	providerLife    = 8 * 24 * time.Hour // then it needs an invitation again, as a membership does
	onlineFor       = time.Minute        // after the last call, without an events stream
	reconnects      = 5 * time.Second    // after its stream ended
	lately          = time.Hour
	callsAtOnce     = 60 // of one provider
	callsPerSecond  = 30
	firstRest       = 10 * time.Second // after a failure; doubles
	longestRest     = 10 * time.Minute
)

// provider is one device that works over HTTP.
type provider struct {
	kept
	has      []chain.Capability // declared and granted, and its class
	calls    *rate.Limiter
	heard    time.Time
	streams  []*Stream
	leases   int
	failures int
	rests    time.Time // until then it is offered nothing
	done     uint64
	failed   uint64
}

// kept is what the disk has of a provider: nobody can speak for it with that.
type kept struct {
	ID       string             `json:"id"`
	Key      string             `json:"key_hash"`
	Class    Class              `json:"worker_class"`
	Declared []chain.Capability `json:"capabilities"`
	Scope    chain.ScopeID      `json:"scope"`
	Granted  []member.Pattern   `json:"granted"`
	Since    time.Time          `json:"since"`
}

// Provider is what status shows of one.
type Provider struct {
	ID           string             `json:"id"`
	Class        Class              `json:"worker_class"`
	Scope        chain.ScopeID      `json:"scope"`
	Capabilities []chain.Capability `json:"capabilities"` // declared and granted
	Online       bool               `json:"online"`
	Since        time.Time          `json:"since"`
	Heard        time.Time          `json:"heard,omitzero"`
	Running      int                `json:"running"`
	Done         uint64             `json:"done"`
	Failed       uint64             `json:"failed"`
}

// Counts gives what a provider with g counts as having: what it declares and was
// granted.
func (g Grant) Counts(r Registration) []chain.Capability {
	m := member.Membership{Granted: g.Patterns}
	return m.Counts(r.Capabilities)
}

// Validate says what is wrong with a registration, before an invitation is spent on it.
func (r *Registration) Validate() error {
	switch r.Class {
	case Browser, Server, Agent:
	default:
		return fmt.Errorf("%w: worker_class: want browser, server or agent", ErrInvalid)
	}
	if n := len(r.Capabilities); n == 0 || n > MaxCapabilities {
		return fmt.Errorf("%w: capabilities: want 1 to %d, such as execute:text.keywords", ErrInvalid, MaxCapabilities)
	}
	for _, c := range r.Capabilities {
		if _, device := c.Device(); device || !wire.Declarable(c) || strings.HasPrefix(string(c), classPrefix) {
			return fmt.Errorf("%w: capabilities: %q cannot be declared", ErrInvalid, chain.Clip(c))
		}
	}
	return nil
}

// Register takes a provider in on the strength of what its invitation grants, and
// gives its ID and the key that it has to show from then on. Of the key only a hash
// stays here.
func (b *Board) Register(g Grant, r Registration) (id string, key chain.Secret, err error) {
	if err := r.Validate(); err != nil {
		return "", "", err
	}
	secret := rand.Text()
	p := &provider{kept: kept{ID: strings.ToLower(rand.Text()), Key: hashed(secret), Class: r.Class, Declared: slices.Clone(r.Capabilities), Scope: g.Scope,
		Granted: slices.Clone(g.Patterns), Since: time.Now().UTC()}}
	p.count()
	b.mu.Lock()
	gone := b.forget(p.Since)
	if len(b.providers) >= MaxProviders {
		b.mu.Unlock()
		return "", "", fmt.Errorf("%w: %d providers are registered", ErrFull, MaxProviders)
	}
	p.heard = p.Since
	b.providers[p.ID] = p
	b.mu.Unlock()
	if b.keeper != nil {
		record, err := json.Marshal(p.kept)
		if err == nil && len(gone) > 0 {
			err = b.keeper.Delete(gone...)
		}
		if err == nil {
			err = b.keeper.PutAll(map[string]any{p.ID: record})
		}
		if err != nil {
			b.mu.Lock()
			delete(b.providers, p.ID)
			b.mu.Unlock()
			return "", "", fmt.Errorf("keep the provider: %w", err)
		}
	}
	return p.ID, chain.Secret(p.ID + "." + secret), nil
}

// count works out what p counts as having.
func (p *provider) count() {
	m := member.Membership{Granted: p.Granted}
	p.has = append(m.Counts(p.Declared), p.Class.Capability(), chain.DeviceCapability(chain.DeviceID(p.ID)))
	p.calls = rate.NewLimiter(callsPerSecond, callsAtOnce)
}

func hashed(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

// Authenticate gives the provider that a key is of, which counts as hearing of it.
// Errors are [ErrProvider], also for one whose time is over, and [ErrTooMany].
func (b *Board) Authenticate(key chain.Secret) (id string, err error) {
	id, secret, _ := strings.Cut(key.Reveal(), ".")
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.providers[id]
	want := hashed("")
	if p != nil {
		want = p.Key
	}
	if subtle.ConstantTimeCompare([]byte(hashed(secret)), []byte(want)) != 1 || p == nil || p.over(now) {
		b.counts.Strangers++
		return "", ErrProvider
	}
	p.heard = now
	if !p.calls.AllowN(now, 1) {
		b.counts.Limited++
		return "", ErrTooMany
	}
	return p.ID, nil
}

func (p *provider) over(now time.Time) bool { return now.Sub(p.Since) >= providerLife }

// online reports whether p is there: its events stream is open, or it called a
// moment ago.
func (p *provider) online(now time.Time) bool {
	return !p.over(now) && (len(p.streams) > 0 || now.Sub(p.heard) < onlineFor)
}

// can reports whether p is there and able to run w.
func (p *provider) can(w *Work, now time.Time) bool {
	if p.Scope != w.Scope || !p.online(now) || now.Before(p.rests) {
		return false
	}
	if !slices.Contains(p.has, chain.ExecuteCapability(w.Primitive)) {
		return false
	}
	return !slices.ContainsFunc(w.Requires, func(c chain.Capability) bool { return !slices.Contains(p.has, c) })
}

// blame lets p rest after a failure, longer each time.
func (p *provider) blame(now time.Time) {
	p.failed++
	rest := firstRest
	for range min(p.failures, 10) {
		rest *= 2
	}
	p.failures++
	p.rests = now.Add(min(rest, longestRest))
}

// forget drops the providers whose time is over, and names them. The caller holds mu.
func (b *Board) forget(now time.Time) (gone []string) {
	for id, p := range b.providers {
		if p.over(now) && p.leases == 0 && len(p.streams) == 0 {
			delete(b.providers, id)
			gone = append(gone, id)
		}
	}
	return gone
}

// Load reads the providers that registered before the last stop, once, before
// anything else. What cannot be read is left out and counted.
func (b *Board) Load() error {
	if b.keeper == nil {
		return nil
	}
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	var gone []string
	err := b.keeper.Each(func(key string, value func(any) error) error {
		var record []byte
		err := value(&record)
		k, bad := decodeProvider(key, record)
		p := &provider{kept: k}
		if err != nil || bad != nil || p.over(now) || len(b.providers) >= MaxProviders {
			gone = append(gone, key)
			return nil
		}
		p.count()
		b.providers[p.ID] = p
		return nil
	})
	if err == nil && len(gone) > 0 {
		err = b.keeper.Delete(gone...)
	}
	if err != nil {
		return fmt.Errorf("read the kept providers: %w", err)
	}
	return nil
}

// decodeProvider reads the kept record of a provider.
func decodeProvider(key string, record []byte) (k kept, err error) {
	if len(record) > maxRecord || json.Unmarshal(record, &k) != nil {
		return k, errRecord
	}
	r := Registration{Class: k.Class, Capabilities: k.Declared}
	_, scope := chain.ParseScope(string(k.Scope))
	if k.ID != key || len(k.Key) != 2*sha256.Size || r.Validate() != nil || scope != nil || len(k.Granted) > 64 || k.Since.IsZero() {
		return k, errRecord
	}
	return k, nil
}

// Declared gives what the device can have done by its providers: the primitives that
// they run and their classes. One that was there lately counts, or each short absence
// would be news.
func (b *Board) Declared() []chain.Capability {
	now, set := time.Now(), map[chain.Capability]bool{}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.providers {
		if p.over(now) || !p.online(now) && now.Sub(p.heard) > lately {
			continue
		}
		for _, c := range p.has {
			if _, runs := c.Executes(); runs || strings.HasPrefix(string(c), classPrefix) {
				set[c] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(set))
}

// Drop ends a provider before its time: its key is of no use from now on, its streams
// end, and what it was at goes to the next one. The error is [ErrProvider], or says that
// a restart would bring it back.
func (b *Board) Drop(id string) error {
	now := time.Now()
	b.mu.Lock()
	p := b.providers[id]
	if p == nil {
		b.mu.Unlock()
		return ErrProvider
	}
	delete(b.providers, id)
	for _, o := range b.offers {
		if o.taker == p && o.result == nil {
			b.lose(o, now)
			o.wake()
		}
	}
	for len(p.streams) > 0 {
		b.cut(p.streams[0])
	}
	close(b.wanted) // whoever waits for work there hears that it is over
	b.wanted = make(chan struct{})
	b.mu.Unlock()
	if b.keeper == nil {
		return nil
	}
	if err := b.keeper.Delete(id); err != nil {
		return fmt.Errorf("the provider is ended, but a restart brings it back: %w", err)
	}
	return nil
}

// Providers lists who registered, the oldest first.
func (b *Board) Providers() []Provider {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	list := make([]Provider, 0, len(b.providers))
	for _, p := range b.providers {
		list = append(list, Provider{ID: p.ID, Class: p.Class, Scope: p.Scope, Capabilities: slices.Clone(p.has), Online: p.online(now), Since: p.Since, Heard: p.heard.UTC(),
			Running: p.leases, Done: p.done, Failed: p.failed})
	}
	slices.SortFunc(list, func(x, y Provider) int { return x.Since.Compare(y.Since) })
	return list
}
