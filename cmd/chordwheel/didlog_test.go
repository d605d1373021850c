package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chordwheel/chordwheel/store/datadir"
)

// withName makes the directory of a node that goes by a did:webvh.
func withName(t *testing.T, flags ...string) (dir string, s shown) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "a")
	node, err := datadir.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Close(); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(good(t, append([]string{"did", "create", "example.com", "--dir", dir, "--json"}, flags...)...)), &s); err != nil {
		t.Fatal(err)
	}
	return dir, s
}

// A log that lies in a file is resolved as one that is fetched is: in its versions, with
// its witnesses; what is wrong with it or with the question is said.
func TestALogInAFileIsResolved(t *testing.T) {
	dir := filepath.Join("..", "..", "did", "testdata", "webvh", "witness-update-python")
	log := filepath.Join(dir, "did.jsonl")
	const id = "did:webvh:QmVPXTZAumzuRFXb7Squ63ah8h7Tdi9SuP58wQ65Y5Baje:example.com"
	var r struct {
		DID, VersionID, TTL string
		Witness             struct{ Threshold string }
	}
	if err := json.Unmarshal([]byte(good(t, "did", "resolve", id+"?versionNumber=1", log, "--json")), &r); err != nil || r.DID != id || !strings.HasPrefix(r.VersionID, "1-") || r.TTL != "3600" || r.Witness.Threshold != "1" {
		t.Errorf("%+v, %v", r, err)
	}
	if text := good(t, "did", "resolve", id, log); !strings.Contains(text, "version 2-") {
		t.Error(text)
	}
	alone := filepath.Join(t.TempDir(), "did.jsonl")
	b, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(alone, b, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"no approvals":       {[]string{id, alone}, 1, "did-witness.json"},
		"a version of none":  {[]string{id + "?versionNumber=3", log}, 1, "no such version"},
		"before it was made": {[]string{id + "?versionTime=1999-01-01T00:00:00Z", log}, 1, "no such version"},
		"another DID":        {[]string{id + ":other", log}, 1, "the log is not that of"},
		"another query":      {[]string{id + "?service=files", log}, exitUsage, "want versionId"},
		"a fragment":         {[]string{id + "#key-1", log}, exitUsage, "without path and fragment"},
		"a file that is not": {[]string{id, alone + "x"}, 1, "no such file"},
		"no DID":             {[]string{"example.com", log}, exitUsage, "invalid DID"},
	} {
		if out, errs, code := command(t, append([]string{"did", "resolve"}, c.args...)...); code != c.code || !strings.Contains(errs, c.says) || out != "" {
			t.Errorf("%s: %d %s %s", name, code, out, errs)
		}
	}
}

// A name that moved is known under its old address too: what changes later, its end above all,
// shows there as well, unless the old log was taken away or another one lies there by now.
func TestWhatChangesAfterAMoveShowsAtTheOldAddress(t *testing.T) {
	t.Parallel() // it waits for the next second, thrice
	dir, _ := withName(t, "--portable")
	old := filepath.Join(dir, "did", "example.com", ".well-known", "did.jsonl")
	read := func(path string) string {
		t.Helper()
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	run := func(args ...string) (s shown) {
		t.Helper()
		if err := json.Unmarshal([]byte(good(t, append(append([]string{"did"}, args...), "--dir", dir, "--json")...)), &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	moved := run("update", "--place", "moved.example")
	again := run("update", "--place", "again.example")
	for _, path := range []string{old, moved.Log} {
		if read(path) != read(again.Log) || strings.Count(read(path), "\n") != 3 {
			t.Errorf("%s:\n%s", path, read(path))
		}
	}
	if err := os.Remove(moved.Log); err != nil {
		t.Fatal(err)
	}
	other, _ := withName(t)
	stranger := read(filepath.Join(other, "did", "example.com", ".well-known", "did.jsonl"))
	if err := os.WriteFile(old, []byte(stranger), 0o600); err != nil {
		t.Fatal(err)
	}
	if ended := run("deactivate", "--yes"); !ended.Ended {
		t.Errorf("%+v", ended)
	}
	if _, err := os.Stat(moved.Log); err == nil || read(old) != stranger {
		t.Errorf("%v; the stranger's log is\n%s", err, read(old))
	}
}

// A log that is handed over replaces only what it grew from: an older copy would take back what
// was changed since, and the keys for the next entry with it.
func TestALogIsNotRolledBack(t *testing.T) {
	t.Parallel()
	dir, made := withName(t)
	first, err := os.ReadFile(made.Log)
	if err != nil {
		t.Fatal(err)
	}
	copied := filepath.Join(t.TempDir(), "copy.jsonl")
	if err := os.WriteFile(copied, first, 0o600); err != nil {
		t.Fatal(err)
	}
	good(t, "did", "use", made.DID, copied, "--dir", dir) // the same again
	good(t, "did", "rotate", "--dir", dir)
	longer, err := os.ReadFile(made.Log)
	if err != nil {
		t.Fatal(err)
	}
	if out, errs, code := command(t, "did", "use", made.DID, copied, "--dir", dir); code != 1 || !strings.Contains(errs, made.Log) {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if after, err := os.ReadFile(made.Log); err != nil || string(after) != string(longer) {
		t.Errorf("%s, %v", after, err)
	}
	if err := os.WriteFile(made.Log, first, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(copied, longer, 0o600); err != nil {
		t.Fatal(err)
	}
	good(t, "did", "use", made.DID, copied, "--dir", dir)
	if after, err := os.ReadFile(made.Log); err != nil || string(after) != string(longer) {
		t.Errorf("a newer copy: %s, %v", after, err)
	}
}

// A new name overwrites no log that is in force: that name could never be changed, or read, again.
func TestANewNameOverwritesNoOther(t *testing.T) {
	t.Parallel()
	dir, made := withName(t)
	before, err := os.ReadFile(made.Log)
	if err != nil {
		t.Fatal(err)
	}
	other, _ := withName(t)
	var of shown
	if err := json.Unmarshal([]byte(good(t, "did", "show", "--dir", other, "--json")), &of); err != nil {
		t.Fatal(err)
	}
	if out, errs, code := command(t, "did", "create", "example.com", "--key", of.Key, "--dir", dir); code != 1 || !strings.Contains(errs, made.DID[:40]) || !strings.Contains(errs, "another address") {
		t.Errorf("%d %s %s", code, out, errs)
	}
	if after, err := os.ReadFile(made.Log); err != nil || string(after) != string(before) {
		t.Errorf("%s, %v", after, err)
	}
	good(t, "did", "deactivate", "--yes", "--dir", dir)
	good(t, "did", "create", "example.com", "--key", of.Key, "--dir", dir)
}

// Of two commands at once that extend one log none overwrites the keys that the other's
// entry commits to: the log can be extended afterwards.
func TestTwoChangesOfALogAtOnce(t *testing.T) {
	dir, _ := withName(t)
	var group sync.WaitGroup
	for range 3 {
		group.Go(func() {
			if out, errs, code := command(t, "did", "rotate", "--dir", dir); code != 0 {
				t.Errorf("%d %s %s", code, out, errs)
			}
		})
	}
	group.Wait()
	var s shown
	if err := json.Unmarshal([]byte(good(t, "did", "rotate", "--dir", dir, "--json")), &s); err != nil || !strings.HasPrefix(s.Version, "5-") {
		t.Errorf("%+v, %v", s, err)
	}
}

// However often a change wrote its keys and then failed, the key that the log's last
// entry commits to stays.
func TestTheKeyThatCanSignStays(t *testing.T) {
	dir, made := withName(t)
	k, err := readUpdateKeys(made.Keys)
	if err != nil {
		t.Fatal(err)
	}
	committed, signer := string(k.Seeds[1]), 1
	for range 2 * keptSeeds {
		if _, err := k.add(); err != nil {
			t.Fatal(err)
		}
		k.trim(signer)
		signer = slices.IndexFunc(k.Seeds, func(seed []byte) bool { return string(seed) == committed })
	}
	if err := k.write(made.Keys); err != nil {
		t.Fatal(err)
	}
	cut := filepath.Join(dir, "."+filepath.Base(made.Keys)+"123") // as a write leaves it that a crash cut off
	if err := os.WriteFile(cut, []byte("seeds"), 0o600); err != nil {
		t.Fatal(err)
	}
	good(t, "did", "rotate", "--dir", dir)
	if _, err := os.Stat(cut); !os.IsNotExist(err) {
		t.Errorf("what a crash left stays: %v", err)
	}
	if k, err = readUpdateKeys(made.Keys); err != nil || len(k.Seeds) > 2*keptSeeds+2 {
		t.Errorf("%d seeds, %v", len(k.Seeds), err)
	}
	good(t, "did", "rotate", "--dir", dir)
	if k, err = readUpdateKeys(made.Keys); err != nil || len(k.Seeds) != keptSeeds {
		t.Errorf("%d seeds, want %d: %v", len(k.Seeds), keptSeeds, err)
	}
}
