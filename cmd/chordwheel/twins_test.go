package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chordwheel/chordwheel/daemon/control"
)

// lan is a hub and devices of it on loopback, each a process of its own.
type lan struct {
	t   *testing.T
	dir string
}

func newLAN(t *testing.T) *lan {
	t.Helper()
	l := &lan{t, t.TempDir()}
	start(t, "orchestrator", "--dir", l.hub(), "--web", "127.0.0.1:0", "--listen", "/ip4/127.0.0.1/tcp/0")
	return l
}

func (l *lan) hub() string             { return filepath.Join(l.dir, "hub") }
func (l *lan) data(name string) string { return filepath.Join(l.dir, name) }

// join enrols the device called name, which does not run.
func (l *lan) join(name string) (stderr string, code int) {
	l.t.Helper()
	if err := os.MkdirAll(l.data(name), 0o700); err != nil {
		l.t.Fatal(err)
	}
	config := filepath.Join(l.data(name), "config.yaml")
	if _, err := os.Stat(config); err != nil {
		if err := os.WriteFile(config, []byte("name: "+name+"\ndevice_id_file: "+filepath.Join(l.data(name), "id")+"\n"), 0o600); err != nil {
			l.t.Fatal(err)
		}
	}
	_, stderr, code = command(l.t, "join", "--dir", l.data(name), strings.TrimSpace(good(l.t, "invite", "--dir", l.hub())))
	return stderr, code
}

func (l *lan) start(name string) *process {
	l.t.Helper()
	return start(l.t, "daemon", "--dir", l.data(name), "--edge", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--listen", "/ip4/127.0.0.1/tcp/0")
}

// device joins and starts one.
func (l *lan) device(name string) *process {
	l.t.Helper()
	if stderr, code := l.join(name); code != 0 {
		l.t.Fatalf("%s does not join: %s", name, stderr)
	}
	return l.start(name)
}

func (l *lan) problems(name string) string {
	l.t.Helper()
	var s control.Status
	if err := json.Unmarshal([]byte(good(l.t, "status", "--dir", l.data(name), "--json")), &s); err != nil {
		l.t.Fatal(err)
	}
	return strings.Join(s.Problems, "\n")
}

// has reports whether the hub's own status, and its operations log, say what.
func (l *lan) has(status, operation string) bool {
	l.t.Helper()
	log := good(l.t, "operations", "--dir", l.hub(), "--limit", "500")
	return strings.Contains(good(l.t, "status", "--dir", l.hub()), status) && strings.Contains(log, operation)
}

// A copied data directory, the same device ID at two devices: seen by the hub, by
// the devices and by third ones, and said to people with what to do.
func TestTwinsAreNamed(t *testing.T) {
	t.Parallel() // it waits more than it works
	l := newLAN(t)
	l.device("third")

	if stderr, code := l.join("one"); code != 0 {
		t.Fatal(stderr)
	}
	if err := os.CopyFS(l.data("copy"), os.DirFS(l.data("one"))); err != nil {
		t.Fatal(err)
	}
	private(t, l.data("copy"))
	l.start("one")
	until(t, "the first visit of one", func() bool { return l.has("one", "one") })
	l.start("copy")
	until(t, "the first visit of the copy", func() bool { return strings.Contains(good(t, "status", "--dir", l.data("copy")), "last visit") })
	for _, name := range []string{"one", "copy"} { // each has reason to come again
		stdin(t, "secret", "keys", "set", "k"+name, "--dir", l.data(name))
		until(t, name+" says that it has a twin", func() bool {
			return strings.Contains(l.problems(name), "its data directory was copied; stop one, empty its directory and join it anew")
		})
	}
	until(t, "the hub says so", func() bool { return l.has("two programs run with the identity of one device", "an older run is back") })

	// Another device with the ID of the third is refused until its owner says so.
	id, err := os.ReadFile(filepath.Join(l.data("third"), "id"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(l.data("other"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(l.data("other"), "id"), id, 0o600); err != nil {
		t.Fatal(err)
	}
	stderr, code := l.join("other")
	if code != exitRefused || !strings.Contains(stderr, "device ID") {
		t.Errorf("the second device with one ID: %d %s", code, stderr)
	}
	if !l.has("waits with the device ID of", "conflict") {
		t.Error("the hub does not tell of the second device with one ID")
	}
}

// An identity that was cut short is no identity: the device does not start, and
// says which file, and what to do; so does status.
func TestACutIdentityIsNamed(t *testing.T) {
	l := newLAN(t)
	if stderr, code := l.join("one"); code != 0 {
		t.Fatal(stderr)
	}
	file := filepath.Join(l.data("one"), "identity.key")
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{0, 1, len(b) / 2, len(b) - 1} {
		if err := os.WriteFile(file, b[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		for _, args := range [][]string{{"daemon", "--edge", "127.0.0.1:0", "--admin", "127.0.0.1:0"}, {"status"}} {
			_, stderr, code := command(t, append(args, "--dir", l.data("one"))...)
			if code == 0 || !strings.Contains(stderr, file) || !strings.Contains(stderr, "put it back from a backup, or start over in an empty directory") {
				t.Errorf("%s with %d of %d bytes: %d %s", args[0], n, len(b), code, stderr)
			}
		}
		if now, _ := os.ReadFile(file); len(now) != n {
			t.Errorf("the file was changed: %d bytes, was %d", len(now), n)
		}
	}
}

// private gives a copied directory the rights that it must have.
func private(t *testing.T, dir string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return os.Chmod(path, 0o700)
		}
		return os.Chmod(path, 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// stdin runs a command that reads text and must succeed.
func stdin(t *testing.T, text string, args ...string) {
	t.Helper()
	c := program(t, args...)
	c.Stdin = strings.NewReader(text)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v %s", args, err, out)
	}
}

// A peer that was killed is not reached, with the code for that; when it is back
// it is reached again, and named as before.
func TestPingTellsWhoIsGone(t *testing.T) {
	t.Parallel() // it waits more than it works
	l := newLAN(t)
	l.device("one")
	two := l.device("two")
	ping := func() (out, stderr string, code int) { return command(t, "ping", "two", "--dir", l.data("one")) }
	until(t, "one reaches two", func() bool { _, _, code := ping(); return code == 0 })
	two.kill()
	until(t, "one sees that two is gone", func() bool {
		return strings.Contains(good(t, "peers", "--dir", l.data("one")), "out of contact")
	})
	if out, stderr, code := ping(); code != exitUnreachable || !strings.Contains(stderr, "two is not reached") || !strings.Contains(stderr, "chordwheel netcheck") {
		t.Errorf("%d %q %q", code, out, stderr)
	}
	l.start("two")
	until(t, "two is back", func() bool { _, _, code := ping(); return code == 0 })
}
