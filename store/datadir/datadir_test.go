package datadir_test

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/chordwheel/chordwheel/store/datadir"
	"github.com/chordwheel/chordwheel/store/storetest"
)

func TestFirstStartMakesAPrivateDirectory(t *testing.T) {
	path := filepath.Join(t.TempDir(), "parent", "data")
	d := open(t, path)
	key, err := d.Identity()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	for name, mode := range storetest.Take(t, path) {
		if want := "-rw-------"; name != "." && !strings.HasPrefix(mode, want) || name == "." && mode != "drwx------" {
			t.Errorf("%s has mode %s", name, mode)
		}
	}
	again := open(t, path)
	if got, _ := again.Identity(); got.PeerID() != key.PeerID() {
		t.Errorf("the second start is %s, the first was %s", got.PeerID(), key.PeerID())
	}
}

func TestADirectoryThatOthersCanOpenIsRefused(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("rights are access lists there")
	}
	cases := map[string]struct {
		spoil func(t *testing.T, dir string)
		want  string // in the message
	}{
		"directory open to all":      {chmod(".", 0o755), "chmod 700 "},
		"directory open to group":    {chmod(".", 0o710), "chmod 700 "},
		"identity readable by all":   {chmod("identity.key", 0o644), "chmod 600 "},
		"identity readable by group": {chmod("identity.key", 0o640), "chmod 600 "},
		"marks writable by others":   {chmod("marks", 0o602), "chmod 600 "},
		"second copy of marks":       {chmod("marks.bak", 0o644), "chmod 600 "},
		"format":                     {chmod("format", 0o644), "chmod 600 "},
		"lock":                       {chmod("lock", 0o666), "chmod 600 "},
		"identity is a link":         {link("identity.key"), "symbolic link"},
		"marks is a link":            {link("marks"), "symbolic link"},
		"lock is a link":             {link("lock"), "symbolic link"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			if err := open(t, dir).Close(); err != nil {
				t.Fatal(err)
			}
			c.spoil(t, dir)
			before := storetest.Take(t, dir)
			_, err := datadir.Open(dir)
			if !errors.Is(err, datadir.ErrRights) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("opened, or wrong message: %v", err)
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %v", err)
			}
			before.Same(t, dir)
		})
	}
}

func chmod(name string, mode fs.FileMode) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		if err := os.Chmod(filepath.Join(dir, name), mode); err != nil {
			t.Fatal(err)
		}
	}
}

func link(name string) func(*testing.T, string) {
	return func(t *testing.T, dir string) {
		elsewhere := filepath.Join(filepath.Dir(dir), "elsewhere")
		if err := os.Rename(filepath.Join(dir, name), elsewhere); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(elsewhere, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestALinkedDirectoryIsRefused(t *testing.T) {
	real := filepath.Join(t.TempDir(), "real")
	if err := open(t, real).Close(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(real, name); err != nil {
		t.Fatal(err)
	}
	if _, err := datadir.Open(name); !errors.Is(err, datadir.ErrRights) {
		t.Errorf("err = %v", err)
	}
}

func TestAnotherUsersDirectoryIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to give a directory away")
	}
	for _, name := range []string{".", "identity.key", "marks"} {
		dir := filepath.Join(t.TempDir(), "data")
		if err := open(t, dir).Close(); err != nil {
			t.Fatal(err)
		}
		if err := os.Chown(filepath.Join(dir, name), 4711, 4711); err != nil {
			t.Fatal(err)
		}
		if _, err := datadir.Open(dir); !errors.Is(err, datadir.ErrRights) || !strings.Contains(err.Error(), "chown") {
			t.Errorf("%s: err = %v", name, err)
		}
	}
}

// A missing key is made at the first start only; any other is refused by name.
func TestAnIdentityIsNeverReplaced(t *testing.T) {
	cases := map[string]struct {
		spoil func(t *testing.T, key string)
		want  error
	}{
		"missing":         {func(t *testing.T, key string) { must(t, os.Remove(key)) }, fs.ErrNotExist},
		"empty":           {func(t *testing.T, key string) { must(t, os.Truncate(key, 0)) }, datadir.ErrDamaged},
		"cut short":       {func(t *testing.T, key string) { must(t, os.Truncate(key, 100)) }, datadir.ErrDamaged},
		"another content": {func(t *testing.T, key string) { must(t, os.WriteFile(key, []byte("hello\n"), 0o600)) }, datadir.ErrDamaged},
		"another file of ours": {func(t *testing.T, key string) {
			b, err := os.ReadFile(filepath.Join(filepath.Dir(key), "marks"))
			must(t, err)
			must(t, os.WriteFile(key, b, 0o600))
		}, datadir.ErrDamaged},
		"a directory": {func(t *testing.T, key string) {
			must(t, os.Remove(key))
			must(t, os.Mkdir(key, 0o700))
		}, datadir.ErrDamaged},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			must(t, open(t, dir).Close())
			key := filepath.Join(dir, datadir.IdentityFile)
			c.spoil(t, key)
			before := storetest.Take(t, dir)
			_, err := datadir.Open(dir)
			if !errors.Is(err, c.want) || !strings.Contains(err.Error(), datadir.IdentityFile) {
				t.Errorf("err = %v", err)
			}
			before.Same(t, dir)
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Whatever state is there says that there was an identity once.
func TestAnIdentityIsNotMadeBesideOldState(t *testing.T) {
	for _, left := range []string{"marks", datadir.DatabaseFile} {
		dir := filepath.Join(t.TempDir(), "data")
		must(t, os.Mkdir(dir, 0o700))
		must(t, os.WriteFile(filepath.Join(dir, left), nil, 0o600))
		if _, err := datadir.Open(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: err = %v", left, err)
		}
		if _, err := os.Stat(filepath.Join(dir, datadir.IdentityFile)); err == nil {
			t.Errorf("%s: a new identity was made", left)
		}
	}
}

func TestTenAtOnceOneLives(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	must(t, open(t, dir).Close())
	const count = 10
	said := make(chan string, count)
	inputs := make([]io.Closer, count)
	commands := make([]*exec.Cmd, count)
	for i := range count {
		cmd := storetest.Child(t, "hold", dir)
		in, err := cmd.StdinPipe()
		must(t, err)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		commands[i], inputs[i] = cmd, in
		go func() {
			line, _ := bufio.NewReader(out).ReadString('\n')
			said <- strings.TrimSpace(line)
		}()
	}
	mine, refused := 0, 0
	for range count {
		switch line := <-said; {
		case line == "mine":
			mine++
		case strings.Contains(line, "in use by another chordwheel"):
			refused++
		default:
			t.Errorf("a child said %q", line)
		}
	}
	if mine != 1 || refused != count-1 {
		t.Errorf("%d got the directory, %d were refused", mine, refused)
	}
	before := storetest.Take(t, dir)
	_, err := datadir.Open(dir)
	if !errors.Is(err, datadir.ErrLocked) || !strings.Contains(err.Error(), "process ") {
		t.Errorf("err = %v", err)
	}
	before.Same(t, dir)
	for _, in := range inputs {
		_ = in.Close()
	}
	for _, cmd := range commands {
		_ = cmd.Wait()
	}
	open(t, dir) // the lock ends with its holder
}

func TestANewerDirectoryIsLeftAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	d := open(t, dir)
	must(t, d.WriteChecked("format", []byte("2\n")))
	must(t, d.Close())
	before := storetest.Take(t, dir)
	if _, err := datadir.Open(dir); !errors.Is(err, datadir.ErrFormat) || !strings.Contains(err.Error(), "--dir") {
		t.Errorf("err = %v", err)
	}
	delete(before, "lock") // holds the number of the last process
	after := storetest.Take(t, dir)
	delete(after, "lock")
	if len(after) != len(before) {
		t.Errorf("files: %v, before %v", after, before)
	}
	for name := range before {
		if before[name] != after[name] {
			t.Errorf("%s was changed", name)
		}
	}
}

// A process that dies at any step of its first start leaves a first start.
func TestDyingAtTheFirstStart(t *testing.T) {
	var dir string
	storetest.AtEveryStep(t, "start", func() []string {
		dir = filepath.Join(t.TempDir(), "data")
		return []string{dir}
	}, func(int, bool) {
		d := open(t, dir)
		key, _ := d.Identity()
		must(t, d.Close())
		d = open(t, dir)
		if again, _ := d.Identity(); again.PeerID() != key.PeerID() {
			t.Error("the identity changed")
		}
		for name := range storetest.Take(t, dir) {
			if strings.HasPrefix(name, ".") && name != "." {
				t.Errorf("%s was left", name)
			}
		}
	})
}

func TestDyingWhileAMarkIsRaised(t *testing.T) {
	var dir string
	storetest.AtEveryStep(t, "raise", func() []string {
		dir = filepath.Join(t.TempDir(), "data")
		d := open(t, dir)
		must(t, marks(t, d).Raise(slot, markOf(1)))
		must(t, d.Close())
		return []string{dir}
	}, func(_ int, ended bool) {
		got := marks(t, open(t, dir)).Get(slot)
		if got != markOf(1) && got != markOf(2) || ended && got != markOf(2) {
			t.Errorf("the mark is %v", got)
		}
	})
}

func TestDyingWhileAFileIsWritten(t *testing.T) {
	var dir string
	storetest.AtEveryStep(t, "write", func() []string {
		dir = filepath.Join(t.TempDir(), "data")
		d := open(t, dir)
		must(t, d.WriteChecked("note", []byte("old")))
		must(t, d.Close())
		return []string{dir}
	}, func(_ int, ended bool) {
		got, err := open(t, dir).ReadChecked("note")
		if s := string(got); err != nil || s != "old" && s != "new" || ended && s != "new" {
			t.Errorf("read %q, %v", got, err)
		}
	})
}

// Every byte of every file is changed in turn, and every file is cut at every
// length: what was written twice is read, what was written once is refused.
func TestEveryByteChanged(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	d := open(t, dir)
	must(t, marks(t, d).Raise(slot, markOf(7)))
	must(t, d.WriteChecked("note", []byte("content")))
	key, _ := d.Identity()
	must(t, d.Close())

	try := func(file, how string) {
		d, err := datadir.Open(dir)
		if file == datadir.IdentityFile {
			if !errors.Is(err, datadir.ErrDamaged) {
				t.Fatalf("%s %s: err = %v", file, how, err)
			}
			return
		}
		if err != nil {
			t.Fatalf("%s %s: %v", file, how, err)
		}
		defer d.Close()
		note, err := d.ReadChecked("note")
		if id, _ := d.Identity(); err != nil || string(note) != "content" || id.PeerID() != key.PeerID() || marks(t, d).Get(slot) != markOf(7) {
			t.Fatalf("%s %s: note %q, %v, mark %v", file, how, note, err, marks(t, d).Get(slot))
		}
	}
	for _, file := range []string{"identity.key", "marks", "marks.bak", "note", "note.bak", "format", "format.bak", "lock"} {
		path := filepath.Join(dir, file)
		whole, err := os.ReadFile(path)
		must(t, err)
		for i := range whole {
			spoilt := append([]byte(nil), whole...)
			spoilt[i] ^= 1 << (i % 8)
			must(t, os.WriteFile(path, spoilt, 0o600))
			try(file, "changed")
			must(t, os.WriteFile(path, whole[:i], 0o600))
			try(file, "cut")
		}
		must(t, os.WriteFile(path, whole, 0o600))
	}
}

func TestMarksThatAreLostInBothCopiesAreNotEmpty(t *testing.T) {
	spoils := map[string]func(path string) error{
		"damaged": func(path string) error { return os.WriteFile(path, []byte("x"), 0o600) },
		"empty":   func(path string) error { return os.Truncate(path, 0) },
		"removed": os.Remove,
	}
	for name, spoil := range spoils {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			d := open(t, dir)
			must(t, marks(t, d).Raise(slot, markOf(7)))
			key, _ := d.Identity()
			must(t, d.Close())
			must(t, spoil(filepath.Join(dir, "marks")))
			must(t, spoil(filepath.Join(dir, "marks.bak")))
			_, err := datadir.Open(dir)
			if err == nil || !strings.Contains(err.Error(), "marks") || !strings.Contains(err.Error(), "remove marks, marks.bak, format and format.bak") {
				t.Fatalf("err = %v", err)
			}
			// What the message says helps.
			for _, file := range []string{"marks", "marks.bak", "format", "format.bak"} {
				_ = os.Remove(filepath.Join(dir, file))
			}
			d = open(t, dir)
			if got, _ := d.Identity(); got.PeerID() != key.PeerID() {
				t.Error("the identity changed")
			}
		})
	}
}

func TestCheckedFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	d := open(t, dir)
	if _, err := d.ReadChecked("note"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that was never written: %v", err)
	}
	for _, name := range []string{"", ".", "..", "../x", "a/b", `a\b`, "A", "nul\x00", ".hidden", strings.Repeat("x", 5000)} {
		if err := d.WriteChecked(name, nil); err == nil {
			t.Errorf("the name %.20q was taken", name)
		}
		if _, err := d.ReadChecked(name); err == nil {
			t.Errorf("the name %.20q was read", name)
		}
	}
	if err := d.WriteChecked("note", make([]byte, datadir.MaxCheckedBytes+1)); err == nil {
		t.Error("a file over the limit was taken")
	}
	for _, content := range []string{"", "a", "line\nline\n", strings.Repeat("x", datadir.MaxCheckedBytes)} {
		must(t, d.WriteChecked("note", []byte(content)))
		got, err := d.ReadChecked("note")
		if err != nil || string(got) != content {
			t.Errorf("wrote %d bytes, read %d, %v", len(content), len(got), err)
		}
	}
	// One copy gone, the next write still counts on from it.
	must(t, os.Remove(filepath.Join(dir, "note")))
	must(t, d.WriteChecked("note", []byte("newer")))
	must(t, d.Close())
	d = open(t, dir)
	if got, err := d.ReadChecked("note"); err != nil || string(got) != "newer" {
		t.Errorf("read %q, %v", got, err)
	}
	// Both damaged: an error, and a write is the owner's way out.
	for _, file := range []string{"note", "note.bak"} {
		must(t, os.WriteFile(filepath.Join(dir, file), []byte("x"), 0o600))
	}
	if _, err := d.ReadChecked("note"); !errors.Is(err, datadir.ErrDamaged) {
		t.Errorf("err = %v", err)
	}
	must(t, d.WriteChecked("note", []byte("again")))
	if got, err := d.ReadChecked("note"); err != nil || string(got) != "again" {
		t.Errorf("read %q, %v", got, err)
	}
}

// TestDamageNamesItsRemedy: where both copies of a file are lost, the error says
// what to do, and doing it helps.
func TestDamageNamesItsRemedy(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	idFile := filepath.Join(t.TempDir(), "device-id")
	use := func() error {
		d, err := datadir.Open(dir)
		if err != nil {
			return err
		}
		_, err = d.DeviceID(idFile)
		return errors.Join(err, d.Close())
	}
	must(t, use())
	for _, name := range []string{"format", "device"} {
		copies := []string{filepath.Join(dir, name), filepath.Join(dir, name+".bak")}
		for _, path := range copies {
			must(t, os.WriteFile(path, nil, 0o600))
		}
		err := use()
		if !errors.Is(err, datadir.ErrDamaged) || !strings.Contains(err.Error(), "remove "+copies[0]+" and "+copies[1]) {
			t.Errorf("%s: %v: want what to remove", name, err)
		}
		for _, path := range copies {
			must(t, os.Remove(path))
		}
		if err := use(); err != nil {
			t.Errorf("%s: the remedy does not help: %v", name, err)
		}
	}
}

func TestDeviceID(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config", "chordwheel", "device-id")
	id, err := datadir.DeviceID(path)
	must(t, err)
	if again, err := datadir.DeviceID(path); err != nil || again != id {
		t.Errorf("%q, then %q, %v", id, again, err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	for _, bad := range []string{"", "\n", "x", string(id)[1:], "{" + string(id) + "}", "00000000-0000-0000-0000-000000000000", string(id) + string(id)} {
		must(t, os.WriteFile(path, []byte(bad), 0o600))
		if _, err := datadir.DeviceID(path); !errors.Is(err, datadir.ErrDamaged) || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: err = %v", bad, err)
		}
		if b, _ := os.ReadFile(path); string(b) != bad {
			t.Errorf("%q was replaced by %q", bad, b)
		}
	}
	must(t, os.WriteFile(path, []byte(strings.ToUpper(string(id))+"\r\n"), 0o600)) // by another tool
	if again, err := datadir.DeviceID(path); err != nil || again != id {
		t.Errorf("%q, then %q, %v", id, again, err)
	}
	must(t, os.Chmod(path, 0o644))
	if _, err := datadir.DeviceID(path); !errors.Is(err, datadir.ErrRights) || !strings.Contains(err.Error(), "chmod 600 ") {
		t.Errorf("err = %v", err)
	}
}

func TestDyingWhileADeviceIDIsMade(t *testing.T) {
	var path string
	storetest.AtEveryStep(t, "device", func() []string {
		path = filepath.Join(t.TempDir(), "device-id")
		return []string{path}
	}, func(int, bool) {
		id, err := datadir.DeviceID(path)
		must(t, err)
		if again, err := datadir.DeviceID(path); err != nil || again != id {
			t.Errorf("%q, then %q, %v", id, again, err)
		}
	})
}

func TestADirectoryRemembersItsDevice(t *testing.T) {
	dir, shared := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "device-id")
	d := open(t, dir)
	id, err := d.DeviceID(shared)
	must(t, err)
	must(t, os.Remove(shared))
	if got, err := d.DeviceID(shared); err != nil || got != id {
		t.Errorf("a lost file: %q, %v, not %q", got, err, id)
	}
	if got, err := datadir.DeviceID(shared); err != nil || got != id {
		t.Errorf("a lost file was made again as %q, %v", got, err)
	}
	// Every change of one character is seen, also one to another UUID.
	whole, err := os.ReadFile(shared)
	must(t, err)
	for i := range whole[:36] {
		spoilt := append([]byte(nil), whole...)
		if spoilt[i]++; spoilt[i] == '9'+1 {
			spoilt[i] = 'a'
		}
		must(t, os.WriteFile(shared, spoilt, 0o600))
		if got, err := d.DeviceID(shared); err == nil {
			t.Fatalf("%s was taken for %s", got, id)
		}
	}
	must(t, os.WriteFile(shared, []byte("7f3cdd2a-5f0e-4c55-8b6c-0d2f3a4b5c6d\n"), 0o600))
	if _, err := d.DeviceID(shared); !errors.Is(err, datadir.ErrDevice) || !strings.Contains(err.Error(), "remove") {
		t.Errorf("err = %v", err)
	}
}
