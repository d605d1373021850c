package keyring_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/store/datadir"
	"github.com/chordwheel/chordwheel/store/keyring"
	"github.com/chordwheel/chordwheel/store/storetest"
)

const secret = "sk-canary-91f2"

func TestMain(m *testing.M) {
	storetest.Main(m, map[string]storetest.Verb{"set": set, "put": putMany})
}

// set sets "k" to NEW, dying at a step: N FILE.
func set(args []string) int {
	n, _ := strconv.Atoi(args[0])
	r, err := keyring.Open(keyring.Config{Path: args[1]})
	if err != nil {
		return 1
	}
	storetest.DieAt(n)
	if err := r.Set("k", "new"); err != nil {
		return 1
	}
	return 0
}

// putMany sets ten keys named after PREFIX: PREFIX FILE.
func putMany(args []string) int {
	r, err := keyring.Open(keyring.Config{Path: args[1]})
	if err != nil {
		return 1
	}
	for i := range 10 {
		if err := r.Set(fmt.Sprintf("%s-%d", args[0], i), secret); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	return 0
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func file(t testing.TB) string { return filepath.Join(t.TempDir(), datadir.KeysFile) }

func open(t testing.TB, c keyring.Config) *keyring.Ring {
	t.Helper()
	r, err := keyring.Open(c)
	must(t, err)
	return r
}

func TestTheEnvironmentComesFirst(t *testing.T) {
	path := file(t)
	r := open(t, keyring.Config{Path: path})
	must(t, r.Set("groq", "of the file"))
	must(t, r.Set("acme", "of the file"))
	r = open(t, keyring.Config{Path: path, Environ: []string{
		"HOME=/x", "CHORDWHEEL_KEY_GROQ=of the environment", "CHORDWHEEL_KEY_MY_KEY_2=two", "CHORDWHEEL_KEY_EMPTY=", "CHORDWHEEL_KEYS=x",
	}})
	for name, want := range map[string]string{
		"groq": "of the environment", "GROQ": "of the environment", "acme": "of the file", "my-key.2": "two", "my_key_2": "two", "empty": "", "absent": "",
	} {
		got, ok := r.Get(name)
		if got.Reveal() != want || ok != (want != "") {
			t.Errorf("%s: %q %v", name, got.Reveal(), ok)
		}
	}
	var names []string
	for _, k := range r.Names() {
		names = append(names, k.Name+" "+string(k.Source))
	}
	if want := "acme file, groq environment, my_key_2 environment"; strings.Join(names, ", ") != want {
		t.Errorf("names %s, want %s", names, want)
	}
	for _, err := range []error{r.Set("groq", "x"), r.Remove("groq"), r.Set("my.key.2", "x")} {
		if err == nil || !strings.Contains(err.Error(), "CHORDWHEEL_KEY_") {
			t.Errorf("a key of the environment was changed: %v", err)
		}
	}
	for _, bad := range []string{"CHORDWHEEL_KEY_A=x\ny", "CHORDWHEEL_KEY_a=x", "CHORDWHEEL_KEY_=x", "CHORDWHEEL_KEY_A-B=x"} {
		if _, err := keyring.Open(keyring.Config{Path: path, Environ: []string{bad}}); err == nil || !strings.Contains(err.Error(), "CHORDWHEEL_KEY_") {
			t.Errorf("%q: err = %v", bad, err)
		}
	}
}

func TestSetGetRemove(t *testing.T) {
	path := file(t)
	r := open(t, keyring.Config{Path: path})
	if r.Generation("k") != 0 || len(r.Names()) != 0 {
		t.Error("there is a key before one was set")
	}
	var last uint64
	for _, value := range []chain.Secret{"one", "two", "two"} { // also the same value again
		must(t, r.Set("k", value))
		if got, ok := r.Get("k"); !ok || got != value {
			t.Errorf("%q %v", got.Reveal(), ok)
		}
		if g := r.Generation("k"); g <= last {
			t.Errorf("generation %d after %d", g, last)
		} else {
			last = g
		}
	}
	must(t, r.Set("other", "x"))
	if r.Generation("k") != last {
		t.Error("another key's change counts")
	}
	must(t, r.Remove("k"))
	if _, ok := r.Get("k"); ok || r.Generation("k") != 0 {
		t.Error("a removed key is there")
	}
	must(t, r.Set("k", "three"))
	if g := r.Generation("k"); g <= last {
		t.Errorf("set again after a removal: generation %d after %d", g, last)
	}
	if err := r.Remove("absent"); !errors.Is(err, keyring.ErrAbsent) {
		t.Errorf("err = %v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// A command changes the file; the daemon's ring sees it at the next call.
func TestChangesOfOthersAreSeen(t *testing.T) {
	path := file(t)
	daemon, command := open(t, keyring.Config{Path: path}), open(t, keyring.Config{Path: path})
	for i := range 50 { // faster than a file system's clock may tick
		want := chain.Secret(fmt.Sprintf("v%02d", i))
		must(t, command.Set("k", want))
		if got, ok := daemon.Get("k"); !ok || got != want {
			t.Fatalf("%d: %q", i, got.Reveal())
		}
	}
	before := daemon.Generation("k")
	must(t, command.Set("k", "v49"))
	if daemon.Generation("k") == before {
		t.Error("setting the same value is not seen")
	}
	must(t, command.Remove("k"))
	if _, ok := daemon.Get("k"); ok {
		t.Error("a removal is not seen")
	}
	must(t, os.Remove(path))
	if len(daemon.Names()) != 0 {
		t.Error("the file's removal is not seen")
	}
}

// Processes that change the file at once lose nothing of each other.
func TestWritersAtOnce(t *testing.T) {
	path := file(t)
	const writers = 6
	done := make(chan error, writers)
	for i := range writers {
		cmd := storetest.Child(t, "put", fmt.Sprintf("w%d", i), path)
		must(t, cmd.Start())
		go func() { done <- cmd.Wait() }()
	}
	for range writers {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if n := len(open(t, keyring.Config{Path: path}).Names()); n != 10*writers {
		t.Errorf("%d keys of %d", n, 10*writers)
	}
}

func TestDyingWhileAKeyIsSet(t *testing.T) {
	var path string
	storetest.AtEveryStep(t, "set", func() []string {
		path = file(t)
		must(t, open(t, keyring.Config{Path: path}).Set("k", "old"))
		return []string{path}
	}, func(_ int, ended bool) {
		r := open(t, keyring.Config{Path: path})
		got, ok := r.Get("k")
		if v := got.Reveal(); !ok || v != "old" && v != "new" || ended && v != "new" {
			t.Errorf("%q %v", v, ok)
		}
		must(t, r.Set("k", "next")) // and what was left, with a secret in it, is gone
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(path), ".*")); len(left) > 0 {
			t.Errorf("left: %v", left)
		}
	})
}

func TestBadNamesAndSecrets(t *testing.T) {
	path := file(t)
	r := open(t, keyring.Config{Path: path})
	for _, name := range []string{"", ".", "..", "../x", "a/b", `a\b`, "a b", "-a", "_a", "é", "a\x00", "a\n", strings.Repeat("x", 65)} {
		if r.Set(name, secret) == nil || r.Remove(name) == nil {
			t.Errorf("the name %.10q was taken", name)
		}
		if _, ok := r.Get(name); ok {
			t.Errorf("the name %.10q has a key", name)
		}
	}
	for _, value := range []string{"", secret + "\n", secret + "\r\nX: y", secret + "\x00", "sé" + secret, strings.Repeat("x", keyring.MaxSecretBytes+1)} {
		err := r.Set("k", chain.Secret(value))
		if err == nil || strings.Contains(err.Error(), "canary") {
			t.Errorf("a secret of %d bytes: %v", len(value), err)
		}
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a refusal wrote the file")
	}
}

func TestTheRingIsBounded(t *testing.T) {
	path := file(t)
	var entries []string
	for i := range keyring.MaxKeys {
		entries = append(entries, fmt.Sprintf(`"k%d":{"changed":1,"secret":"x"}`, i))
	}
	must(t, os.WriteFile(path, keyring.Encode(1, `"keys":{`+strings.Join(entries, ",")+"}"), 0o600))
	r := open(t, keyring.Config{Path: path})
	if err := r.Set("another", "x"); err == nil || !strings.Contains(err.Error(), "remove one") {
		t.Errorf("err = %v", err)
	}
	must(t, r.Set("k7", "y"))
	must(t, r.Remove("k8"))
	must(t, r.Set("another", "x"))
}

func TestTheFilesRights(t *testing.T) {
	path := file(t)
	must(t, open(t, keyring.Config{Path: path}).Set("k", secret))
	running := open(t, keyring.Config{Path: path})
	must(t, os.Chmod(path, 0o644))
	if _, err := keyring.Open(keyring.Config{Path: path}); !errors.Is(err, datadir.ErrRights) || !strings.Contains(err.Error(), "chmod 600 "+path) {
		t.Errorf("err = %v", err)
	}
	if got, ok := running.Get("k"); !ok || got != secret || !errors.Is(running.Problem(), datadir.ErrRights) {
		t.Errorf("a running ring: %v, problem %v", ok, running.Problem())
	}
	must(t, os.Chmod(path, 0o600))
	if err := running.Problem(); err != nil {
		t.Errorf("mended, but %v", err)
	}
	must(t, os.Rename(path, path+"-elsewhere"))
	must(t, os.Symlink(path+"-elsewhere", path))
	if _, err := keyring.Open(keyring.Config{Path: path}); !errors.Is(err, datadir.ErrRights) {
		t.Errorf("a link: %v", err)
	}
}

// Every byte of the file is changed in turn, and the file is cut at every
// length: a ring opens, gives the right secrets or none, and does not write
// over what it cannot read. Nothing of a secret is told.
func TestEveryByteChanged(t *testing.T) {
	path := file(t)
	r := open(t, keyring.Config{Path: path})
	must(t, r.Set("k", secret))
	must(t, r.Set("other", secret+"2"))
	whole, err := os.ReadFile(path)
	must(t, err)
	var log bytes.Buffer
	check := func(b []byte) {
		t.Helper()
		must(t, os.WriteFile(path, b, 0o600))
		r, err := keyring.Open(keyring.Config{Path: path, Environ: []string{"CHORDWHEEL_KEY_E=e"}, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		if got, ok := r.Get("k"); ok && got != secret {
			t.Fatalf("%q: %q", b, got.Reveal())
		}
		if got, ok := r.Get("e"); !ok || got != "e" {
			t.Fatalf("%q: the environment's key is gone", b)
		}
		if err := r.Set("new", "x"); !errors.Is(err, datadir.ErrDamaged) || strings.Contains(err.Error(), "canary") || !strings.Contains(err.Error(), path) {
			t.Fatalf("%q: set: %v", b, err)
		}
		if after, _ := os.ReadFile(path); !bytes.Equal(after, b) {
			t.Fatalf("%q was written over", b)
		}
	}
	for i := range whole {
		spoilt := bytes.Clone(whole)
		spoilt[i] ^= 1 << (i % 8)
		check(spoilt)
		check(whole[:i])
	}
	if strings.Contains(log.String(), "canary") {
		t.Error("a secret is in the log")
	}
	// A running ring keeps what it had, and takes up what is good again.
	must(t, os.WriteFile(path, whole, 0o600))
	running := open(t, keyring.Config{Path: path})
	must(t, os.WriteFile(path, whole[:9], 0o600))
	if got, ok := running.Get("k"); !ok || got != secret || running.Problem() == nil {
		t.Errorf("%v, problem %v", ok, running.Problem())
	}
	must(t, os.Remove(path))
	before := running.Generation("k")
	must(t, running.Set("k", "again"))
	if running.Generation("k") <= before {
		t.Error("a new file gives an old generation")
	}
	if got, _ := running.Get("k"); got != "again" || running.Problem() != nil {
		t.Errorf("%q, problem %v", got.Reveal(), running.Problem())
	}
}

func TestANewerFileIsLeftAlone(t *testing.T) {
	path := file(t)
	b := keyring.Encode(2, `"keys":{"k":{"changed":1,"vault":"x"}}`)
	must(t, os.WriteFile(path, b, 0o600))
	if _, err := keyring.Open(keyring.Config{Path: path}); !errors.Is(err, datadir.ErrFormat) {
		t.Errorf("err = %v", err)
	}
	must(t, os.Remove(path))
	r := open(t, keyring.Config{Path: path})
	must(t, os.WriteFile(path, b, 0o600))
	if err := r.Set("k", "x"); !errors.Is(err, datadir.ErrFormat) {
		t.Errorf("err = %v", err)
	}
	if after, _ := os.ReadFile(path); !bytes.Equal(after, b) {
		t.Error("it was written over")
	}
}

// ring is a system's key ring for tests.
type ring struct {
	keys  map[string]string
	calls atomic.Int64
	err   error
	hang  chan struct{} // not nil: calls wait for it
}

func (r *ring) wait() error {
	r.calls.Add(1)
	if r.hang != nil {
		<-r.hang
	}
	return r.err
}

func (r *ring) Get(name string) (string, error) {
	if err := r.wait(); err != nil {
		return "", err
	}
	return r.keys[name], nil
}

func (r *ring) Set(name, value string) error {
	if err := r.wait(); err != nil {
		return err
	}
	r.keys[name] = value
	return nil
}

func (r *ring) Delete(name string) error {
	delete(r.keys, name)
	return r.wait()
}

func TestTheSystemsRing(t *testing.T) {
	path := file(t)
	system := &ring{keys: make(map[string]string)}
	must(t, open(t, keyring.Config{Path: path}).Set("plain", "of the file"))
	chosen := open(t, keyring.Config{Path: path, System: system})
	if got, ok := chosen.Get("plain"); !ok || got != "of the file" || system.calls.Load() != 0 {
		t.Errorf("%q; the system was asked %d times for a key of the file", got.Reveal(), system.calls.Load())
	}
	must(t, chosen.Set("k", secret))
	if b, _ := os.ReadFile(path); bytes.Contains(b, []byte(secret)) || system.keys["k"] != secret {
		t.Error("the secret is in the file, or not in the system's ring")
	}
	daemon := open(t, keyring.Config{Path: path, System: system})
	asked := system.calls.Load()
	for range 5 {
		if got, ok := daemon.Get("k"); !ok || got != secret {
			t.Errorf("%q %v", got.Reveal(), ok)
		}
	}
	if system.calls.Load() != asked+1 {
		t.Errorf("asked %d times", system.calls.Load()-asked)
	}
	must(t, chosen.Set("k", "new"))
	if got, _ := daemon.Get("k"); got != "new" {
		t.Errorf("a change is not seen: %q", got.Reveal())
	}
	// Without the owner's choice the system is never asked.
	without := open(t, keyring.Config{Path: path})
	if _, ok := without.Get("k"); ok {
		t.Error("the system's key without the system")
	}
	if err := without.Remove("k"); !errors.Is(err, keyring.ErrSystem) {
		t.Errorf("err = %v", err)
	}
	must(t, chosen.Remove("k"))
	if len(system.keys) != 0 {
		t.Error("it is still in the system's ring")
	}
}

// A ring that never answers costs each call 3 s at most, the file's keys
// nothing, and is asked again after a minute.
func TestASystemsRingThatHangs(t *testing.T) {
	path := file(t)
	system := &ring{keys: make(map[string]string)}
	must(t, open(t, keyring.Config{Path: path, System: system}).Set("k", secret))
	must(t, open(t, keyring.Config{Path: path}).Set("plain", "of the file"))
	synctest.Test(t, func(t *testing.T) {
		system.hang = make(chan struct{})
		var log bytes.Buffer
		r := open(t, keyring.Config{Path: path, System: system, Log: slog.New(slog.NewTextHandler(&log, nil))})
		took := func(want time.Duration, what func()) {
			t.Helper()
			begin := time.Now()
			what()
			if got := time.Since(begin); got != want {
				t.Errorf("took %s, want %s", got, want)
			}
		}
		get := func() {
			if _, ok := r.Get("k"); ok {
				t.Error("there is a key")
			}
		}
		took(3*time.Second, get)
		took(0, get) // the failure holds for a while
		took(0, func() {
			if got, ok := r.Get("plain"); !ok || got != "of the file" {
				t.Error("the file's key is gone")
			}
		})
		took(3*time.Second, func() {
			if err := r.Set("other", secret); !errors.Is(err, keyring.ErrSystem) || strings.Contains(err.Error(), "canary") {
				t.Errorf("err = %v", err)
			}
		})
		if calls := system.calls.Load(); calls != 2 { // Set above, and one Get
			t.Errorf("%d calls hang", calls)
		}
		close(system.hang)
		synctest.Wait()
		time.Sleep(time.Minute)
		took(0, func() {
			if got, ok := r.Get("k"); !ok || got != secret {
				t.Error("it is not asked again")
			}
		})
		if strings.Contains(log.String(), "canary") {
			t.Errorf("log: %s", &log)
		}
	})
}

func TestASystemsRingThatFails(t *testing.T) {
	path := file(t)
	system := &ring{keys: make(map[string]string), err: errors.New("canary: " + secret)}
	r := open(t, keyring.Config{Path: path, System: system})
	err := r.Set("k", secret)
	if !errors.Is(err, keyring.ErrSystem) || strings.Contains(err.Error(), "canary") {
		t.Errorf("err = %v", err)
	}
	if len(r.Names()) != 0 {
		t.Error("a key is listed that was not stored")
	}
}

func TestNothingPrintsASecret(t *testing.T) {
	path := file(t)
	r := open(t, keyring.Config{Path: path, Environ: []string{"CHORDWHEEL_KEY_E=" + secret}})
	must(t, r.Set("k", secret))
	got, _ := r.Get("k")
	if s := fmt.Sprintf("%v %+v %s %q %v", got, got, got, got, r.Names()); strings.Contains(s, "canary") {
		t.Error(s)
	}
}

func BenchmarkGet(b *testing.B) {
	path := file(b)
	r := open(b, keyring.Config{Path: path, Environ: []string{"CHORDWHEEL_KEY_E=x"}})
	must(b, r.Set("k", secret))
	for _, name := range []string{"k", "e"} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, ok := r.Get(name); !ok {
					b.Fatal("no key")
				}
			}
		})
	}
}
