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
func withName(t *testing.T) (dir string, s shown) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "a")
	node, err := datadir.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Close(); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(good(t, "did", "create", "example.com", "--dir", dir, "--json")), &s); err != nil {
		t.Fatal(err)
	}
	return dir, s
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
