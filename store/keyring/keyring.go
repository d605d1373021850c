package keyring

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/store/datadir"
)

// Source says where a key comes from.
type Source string

// The sources, in the order in which they count.
const (
	Environment Source = "environment"
	SystemRing  Source = "system"
	File        Source = "file"
)

// EnvPrefix begins the environment variables that hold keys.
const EnvPrefix = "CHORDWHEEL_KEY_"

// Config of [Open].
type Config struct {
	// Path of keys.json. The file need not exist; its directory must.
	Path string
	// Environ is the process's environment, as os.Environ gives it.
	Environ []string
	// System is the operating system's ring if the owner chose it, else nil.
	System System
	// Log gets one line when the file changes for the worse. Nil: none.
	Log *slog.Logger
}

// Ring gives secrets by name. It follows changes that other processes make to the
// file. Its methods may be called at once from several goroutines.
type Ring struct {
	path   string
	log    *slog.Logger
	env    map[string]chain.Secret // by the variable's name without the prefix
	system bounded

	mu      sync.Mutex
	seen    stamp
	keys    map[string]entry
	problem error
	fetched map[string]fetched // answers of the system's ring
}

// stamp tells one state of a file from the next: by time, size and inode. It
// cannot where two replacements fall into one tick of the file system's clock, so a
// stamp taken right after a change is not trusted.
type stamp struct {
	info fs.FileInfo
	at   time.Time
}

// tick is longer than any such clock's.
const tick = 100 * time.Millisecond

type fetched struct {
	changed uint64
	secret  string
	err     error
	at      time.Time
}

// retrySystem is how long a failed answer of the system's ring holds.
const retrySystem = time.Minute

// Key is what may be told about a key.
type Key struct {
	Name       string `json:"name"`
	Source     Source `json:"source"`
	Generation uint64 `json:"generation"`
}

// Open reads the ring. Loose rights on the file and a newer format are errors
// that say what to do. A damaged file is not: the ring then has the
// environment's keys only, and Problem says why.
func Open(c Config) (*Ring, error) {
	r := &Ring{path: c.Path, log: c.Log, env: make(map[string]chain.Secret), system: bounded{ring: c.System}, fetched: make(map[string]fetched)}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	for _, pair := range c.Environ {
		name, value, _ := strings.Cut(pair, "=")
		suffix, ours := strings.CutPrefix(name, EnvPrefix)
		if !ours || value == "" {
			continue
		}
		if err := checkSecret(value); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if suffix == "" || envName(suffix) != suffix {
			return nil, fmt.Errorf("%s: want %s and upper-case letters, digits and underscores", chain.Clip(name), EnvPrefix)
		}
		r.env[suffix] = chain.Secret(value)
	}
	r.refresh()
	if errors.Is(r.problem, datadir.ErrRights) || errors.Is(r.problem, datadir.ErrFormat) {
		return nil, r.problem
	}
	return r, nil
}

// envName gives the variable's name for a key, without the prefix.
func envName(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z':
			return r - 'a' + 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
			return r
		}
		return '_'
	}, name)
}

// Get gives the secret called name. It looks at the file's time and size, and
// reads it only if they changed. A key that the system's ring holds may
// take patience once per change; after a failure it is absent for a minute.
func (r *Ring) Get(name string) (chain.Secret, bool) {
	if s, ok := r.env[envName(name)]; ok && CheckName(name) == nil {
		return s, true
	}
	r.mu.Lock()
	r.refresh()
	e, ok := r.keys[name]
	f, asked := r.fetched[name]
	r.mu.Unlock()
	switch {
	case !ok:
		return "", false
	case !e.System:
		return chain.Secret(e.Secret), true
	case asked && f.changed == e.Changed && (f.err == nil || time.Since(f.at) < retrySystem):
		return chain.Secret(f.secret), f.err == nil
	}
	return r.fetch(name, e)
}

// fetch asks the system's ring, without the lock: it may take long.
func (r *Ring) fetch(name string, e entry) (chain.Secret, bool) {
	answer := make(chan string, 1)
	err := r.system.run(func(s System) error {
		secret, err := s.Get(name)
		answer <- secret
		return err
	})
	f := fetched{changed: e.Changed, err: err, at: time.Now()}
	if err == nil {
		f.secret = <-answer
		if f.err = checkSecret(f.secret); f.err != nil {
			f.secret = ""
		}
	}
	if f.err != nil {
		r.log.Warn("keys: the system's key ring gave nothing", "name", name, "error", f.err)
	}
	r.mu.Lock()
	r.fetched[name] = f
	r.mu.Unlock()
	return chain.Secret(f.secret), f.err == nil
}

// Generation tells one setting of a key from the next: it grows with every
// Set, also to the same value and by another process. 0 means that there is no
// such key. A key that rests after a refusal is worth another try once its
// generation has grown.
func (r *Ring) Generation(name string) uint64 {
	if _, ok := r.env[envName(name)]; ok && CheckName(name) == nil {
		return 1
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refresh()
	return r.keys[name].Changed
}

// Names lists the keys there are, sorted, one line a name. A key of the
// environment is listed under its variable's name in lower case, unless the file
// has a name that the variable also serves.
func (r *Ring) Names() []Key {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refresh()
	var all []Key
	served := make(map[string]bool)
	for name, e := range r.keys {
		k := Key{name, File, e.Changed}
		if e.System {
			k.Source = SystemRing
		}
		if _, ok := r.env[envName(name)]; ok {
			k, served[envName(name)] = Key{name, Environment, 1}, true
		}
		all = append(all, k)
	}
	for suffix := range r.env {
		if !served[suffix] {
			all = append(all, Key{strings.ToLower(suffix), Environment, 1})
		}
	}
	slices.SortFunc(all, func(a, b Key) int { return strings.Compare(a.Name, b.Name) })
	return all
}

// Set stores a secret under name, in the system's ring if the owner chose it,
// else in the file. A name that the environment sets is refused: the
// environment would win. It may be called while a daemon runs on the directory.
func (r *Ring) Set(name string, secret chain.Secret) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if err := checkSecret(secret.Reveal()); err != nil {
		return fmt.Errorf("key %s: %w", name, err)
	}
	if _, ok := r.env[envName(name)]; ok {
		return fmt.Errorf("key %s: the environment sets it (%s%s): change it there", name, EnvPrefix, envName(name))
	}
	err := change(r.path, func(c *contents) error {
		if _, known := c.Keys[name]; !known && len(c.Keys) >= MaxKeys {
			return fmt.Errorf("key %s: there are %d keys already: remove one", name, MaxKeys)
		}
		e := entry{Changed: c.Serial, Secret: secret.Reveal()}
		if r.system.ring != nil {
			value := secret.Reveal()
			if err := r.system.run(func(s System) error { return s.Set(name, value) }); err != nil {
				return fmt.Errorf("key %s: %w", name, err)
			}
			e = entry{Changed: c.Serial, System: true}
		}
		c.Keys[name] = e
		return nil
	})
	return err
}

// ErrAbsent is returned by Remove for a name that has no key.
var ErrAbsent = errors.New("there is no such key; chordwheel keys list shows those there are")

// Remove forgets the key called name.
func (r *Ring) Remove(name string) error {
	if err := CheckName(name); err != nil {
		return err
	}
	if _, ok := r.env[envName(name)]; ok {
		return fmt.Errorf("key %s: the environment sets it (%s%s): remove it there", name, EnvPrefix, envName(name))
	}
	return change(r.path, func(c *contents) error {
		e, ok := c.Keys[name]
		if !ok {
			return fmt.Errorf("key %s: %w", name, ErrAbsent)
		}
		if e.System {
			if err := r.system.run(func(s System) error { return s.Delete(name) }); err != nil {
				return fmt.Errorf("key %s: %w", name, err)
			}
		}
		delete(c.Keys, name)
		return nil
	})
}

// Problem says why the file's keys are not the latest, or not there at all.
// Nil: all is well.
func (r *Ring) Problem() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refresh()
	return r.problem
}

// refresh reads the file if it changed. What was good before stays in force
// while the file is not: one line in the log a change. The caller holds mu.
func (r *Ring) refresh() {
	info, err := os.Lstat(r.path)
	if err != nil {
		info = nil
	}
	if r.seen.same(info) && r.keys != nil {
		return
	}
	r.seen = stamp{info, time.Now()}
	c, err := read(r.path)
	news := err != nil && (r.problem == nil || r.problem.Error() != err.Error())
	r.problem = err
	if err != nil {
		if news {
			r.log.Warn("keys: the file is not used", "error", err)
		}
		if r.keys == nil {
			r.keys = map[string]entry{}
		}
		return
	}
	r.keys = c.Keys
	if r.keys == nil {
		r.keys = map[string]entry{}
	}
	for name := range r.fetched {
		if _, ok := r.keys[name]; !ok {
			delete(r.fetched, name)
		}
	}
}

func (s stamp) same(info fs.FileInfo) bool {
	if s.info == nil || info == nil {
		return s.info == nil && info == nil
	}
	if s.at.Sub(info.ModTime()) < tick {
		return false
	}
	return s.info.ModTime().Equal(info.ModTime()) && s.info.Size() == info.Size() && s.info.Mode() == info.Mode() && os.SameFile(s.info, info)
}
