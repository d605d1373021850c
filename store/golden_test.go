package store_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/store"
	"github.com/chordwheel/chordwheel/store/datadir"
	"github.com/chordwheel/chordwheel/store/keyring"
	"github.com/chordwheel/chordwheel/store/storetest"
)

const golden = "testdata/v1"

// expected is what the golden directory must give, for ever.
type expected struct {
	PeerID   chain.PeerID      `json:"peer_id"`
	DeviceID chain.DeviceID    `json:"device_id"`
	Marks    map[string]uint64 `json:"marks"`
	Chains   map[string]uint64 `json:"chains"`
	Note     note              `json:"note"`
	Joined   string            `json:"joined"`
	Key      string            `json:"key"`
}

var (
	goldenOther = chain.Slot{Scope: "workspace:other", Primitive: "embed.text"}
	goldenGone  = chain.Slot{Scope: "session:gone", Primitive: chain.LLMChat}
)

// makeGolden writes the golden directory. It is run once per format, with
// -update, and never again for one that was released.
func makeGolden(t *testing.T) {
	work := filepath.Join(t.TempDir(), "data")
	d := start(t, work, store.Options{}, now)
	id, err := d.dir.DeviceID(filepath.Join(t.TempDir(), "device-id"))
	must(t, err)
	key, err := d.dir.Identity()
	must(t, err)
	must(t, offer(d, chaintest.Slot, 7))
	must(t, offer(d, goldenOther, 3))
	must(t, offer(d, goldenGone, 9))
	must(t, d.chains.Drop(goldenGone))
	must(t, d.store.Bucket("notes").Put("first", note{"text", 3}))
	must(t, d.dir.WriteChecked("joined.cbor", []byte("what joining gave")))
	ring, err := keyring.Open(keyring.Config{Path: d.dir.Path(datadir.KeysFile)})
	must(t, err)
	must(t, ring.Set("groq", "not-a-key"))
	stop(t, d)
	must(t, os.RemoveAll(golden))
	storetest.Copy(t, work, golden)
	must(t, os.Remove(filepath.Join(golden, "lock")))
	must(t, os.Remove(filepath.Join(golden, "keys.lock")))
	b, err := json.MarshalIndent(expected{
		PeerID: key.PeerID(), DeviceID: id, Note: note{"text", 3}, Joined: "what joining gave", Key: "not-a-key",
		Marks:  map[string]uint64{chaintest.Slot.String(): 7, goldenOther.String(): 3, goldenGone.String(): 9},
		Chains: map[string]uint64{chaintest.Slot.String(): 7, goldenOther.String(): 3},
	}, "", "  ")
	must(t, err)
	must(t, os.WriteFile(golden+".json", append(b, '\n'), 0o644))
}

// A data directory of format 1 opens for ever, after a stop in order and after
// a kill, and can be worked with.
func TestTheGoldenDirectoryOpens(t *testing.T) {
	if *update {
		makeGolden(t)
	}
	var want expected
	b, err := os.ReadFile(golden + ".json")
	must(t, err)
	must(t, json.Unmarshal(b, &want))
	for _, killed := range []bool{false, true} {
		path := filepath.Join(t.TempDir(), "data")
		storetest.Copy(t, golden, path)
		if killed {
			must(t, os.WriteFile(filepath.Join(path, "chordwheel.db.open"), nil, 0o600))
		}
		d := start(t, path, storetest.Options(), now)
		if key, err := d.dir.Identity(); err != nil || key.PeerID() != want.PeerID {
			t.Errorf("identity %s, %v", key.PeerID(), err)
		}
		if id, err := d.dir.DeviceID(filepath.Join(t.TempDir(), "device-id")); err != nil || id != want.DeviceID {
			t.Errorf("device ID %s, %v", id, err)
		}
		for slot, mark := range d.marks.All() {
			if mark.Seq != want.Marks[slot.String()] {
				t.Errorf("mark of %s: %d", slot, mark.Seq)
			}
		}
		for _, c := range d.chains.All() {
			if n := number(d, c.Slot()); n != want.Chains[c.Slot().String()] {
				t.Errorf("chain of %s: %d", c.Slot(), n)
			}
		}
		if len(d.marks.All()) != len(want.Marks) || len(d.chains.All()) != len(want.Chains) || len(d.refused) > 0 {
			t.Errorf("marks %v, %d chains, refused %v", d.marks.All(), len(d.chains.All()), d.refused)
		}
		var got note
		if ok, err := d.store.Bucket("notes").Get("first", &got); !ok || err != nil || got != want.Note {
			t.Errorf("record %v, %v, %v", got, ok, err)
		}
		if joined, err := d.dir.ReadChecked("joined.cbor"); err != nil || string(joined) != want.Joined {
			t.Errorf("checked file %q, %v", joined, err)
		}
		ring, err := keyring.Open(keyring.Config{Path: d.dir.Path(datadir.KeysFile)})
		must(t, err)
		if key, ok := ring.Get("groq"); !ok || key.Reveal() != want.Key {
			t.Errorf("key %q, %v", key.Reveal(), ok)
		}
		if s := d.store.Status(); s != (store.Status{Available: true}) {
			t.Errorf("status %+v", s)
		}
		must(t, offer(d, chaintest.Slot, 8))
		stop(t, d)
	}
}
