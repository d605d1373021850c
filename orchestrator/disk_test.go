package orchestrator_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/orchestrator"
	"github.com/chordwheel/chordwheel/store"
	"github.com/chordwheel/chordwheel/store/datadir"
)

// TestOnTheDisk: the hub over the real store. A restart changes nothing; with the
// database lost and the small files left, members come back by their signature,
// what was revoked stays out, and devices accept what is published.
func TestOnTheDisk(t *testing.T) {
	path := filepath.Join(t.TempDir(), "hub")
	said := &said{}
	var stop func()
	run := func() *rig {
		t.Helper()
		dir, err := datadir.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		key, err := dir.Identity()
		if err != nil {
			t.Fatal(err)
		}
		db, err := store.Open(dir, store.Options{})
		if err != nil {
			t.Fatal(err)
		}
		id, err := orchestrator.MeshID(dir)
		if err != nil {
			t.Fatal(err)
		}
		h, err := orchestrator.New(orchestrator.Config{Key: key, Mesh: id, Catalogue: parsed(t, declared), Addrs: func() []string { return []string{"/ip4/192.0.2.1/tcp/1"} },
			Storage: orchestrator.Storage{Bucket: func(name string) orchestrator.Bucket { return db.Bucket(name) }, Files: dir}})
		if err != nil {
			t.Fatal(err)
		}
		if err := h.Start(t.Context(), said); err != nil {
			t.Fatal(err)
		}
		stop = func() {
			if h.Close() != nil || db.Close() != nil || dir.Close() != nil {
				t.Error("closing failed")
			}
		}
		copied := newDisk()
		copied.files["mesh-id"] = []byte(id)
		return &rig{Hub: h, t: t, key: key, disk: copied, said: said}
	}
	r := run()
	a, b := r.joined("a", "key:alpha", "key:beta"), r.joined("b", "key:beta")
	a.order(home)
	a.report("alpha/small", chain.Timeout, 10, 5*time.Second)
	wantOrder(t, a.order(home), "beta/small", "alpha/small")
	if _, err := r.Revoke(t.Context(), "b"); err != nil {
		t.Fatal(err)
	}
	was := a.marks[home]
	stop()

	r = run()
	a.rig, b.rig = r, r
	wantOrder(t, a.order(home), "beta/small", "alpha/small")
	if now := a.marks[home]; now.Seq != was.Seq || now.Body != was.Body {
		t.Errorf("mark %+v after %+v", now, was)
	}
	stop()

	entries, err := os.ReadDir(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), datadir.DatabaseFile) {
			if err := os.Remove(filepath.Join(path, e.Name())); err != nil {
				t.Fatal(err)
			}
		}
	}
	r = run()
	a.rig, b.rig = r, r
	if _, err := a.visit(); err != nil {
		t.Fatalf("the member that the database forgot: %v", err)
	}
	wantOrder(t, a.order(home), "alpha/small", "beta/small") // what was learned is lost; the chain is newer than the device's
	_, err = b.visit()
	want(t, "the revoked one", code(err), "revoked")
	stop()
}
