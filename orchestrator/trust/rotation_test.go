package trust

import (
	"bytes"
	"errors"
	"io/fs"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// files keeps files in memory.
type files struct {
	held map[string][]byte
	fail error
}

func (f *files) ReadChecked(name string) ([]byte, error) {
	if b, ok := f.held[name]; ok {
		return b, nil
	}
	return nil, fs.ErrNotExist
}

func (f *files) WriteChecked(name string, b []byte) error {
	if f.fail == nil {
		f.held[name] = bytes.Clone(b)
	}
	return f.fail
}

func kids(r *Rotation, now time.Time) (out []string) {
	for _, k := range r.Ring().published(now) {
		out = append(out, k.KID)
	}
	return out
}

func derived(t *testing.T, identity chain.Key, n uint32) string {
	t.Helper()
	key, err := DeriveKey(identity, n)
	if err != nil {
		t.Fatal(err)
	}
	return Thumbprint(public(key))
}

func TestARotationOutlivesARestart(t *testing.T) {
	identity, _ := device(t)
	disk, now := &files{held: map[string][]byte{}}, time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	open := func(at time.Time) *Rotation {
		t.Helper()
		r, err := OpenRotation(disk, identity, at)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	one, two, three := derived(t, identity, 1), derived(t, identity, 2), derived(t, identity, 3)
	check := func(what string, got []string, want ...string) {
		t.Helper()
		if len(got) != len(want) {
			t.Fatalf("%s: %v, want %v", what, got, want)
		}
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("%s: %v, want %v", what, got, want)
			}
		}
	}
	r := open(now)
	check("the first key", kids(r, now), one)
	if r.Due(now.Add(RotateAfter-time.Second)) || !r.Due(now.Add(RotateAfter)) {
		t.Error("a rotation is due after RotateAfter, no sooner")
	}
	now = now.Add(RotateAfter)
	if err := r.Rotate(now); err != nil || r.Due(now) {
		t.Fatal(err, r.Due(now))
	}
	check("rotated", kids(r, now), two, one)
	check("rotated, after a restart", kids(open(now.Add(time.Minute)), now.Add(Overlap-time.Second)), two, one)
	check("an hour later", kids(open(now.Add(time.Minute)), now.Add(Overlap)), two)
	disk.fail = errors.New("disk full")
	if err := r.Rotate(now.Add(time.Hour)); err == nil {
		t.Error("a rotation that is not on disk succeeds")
	}
	check("not rotated", kids(r, now.Add(time.Hour)), two)
	disk.fail = nil
	if err := r.Rotate(now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	check("rotated again", kids(open(now.Add(time.Hour)), now.Add(time.Hour)), three, two)
}

func TestACountThatCannotBe(t *testing.T) {
	identity, _ := device(t)
	for _, text := range []string{"", "{}", `{"key":0}`, `{"key":-1}`, "7"} {
		if _, err := OpenRotation(&files{held: map[string][]byte{CountFile: []byte(text)}}, identity, time.Now()); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
