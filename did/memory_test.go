package did

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"
)

// shelfOf is a web server with one log.
type shelfOf struct {
	log  []byte
	told []time.Duration
}

func (s *shelfOf) Fetch(context.Context, string, int64) ([]byte, error) { return s.log, nil }

func (s *shelfOf) Keep(d time.Duration, _ ...string) { s.told = append(s.told, d) }

// A log that was read once may grow, and may do nothing else: a shorter one and one with
// another entry in it are valid each by itself, and refused.
func TestALogThatIsRolledBack(t *testing.T) {
	w := (&writer{t: t}).add(1, first("", 1)).add(1, `{}`)
	two := w.log()
	w.add(1, `{"ttl":5}`)
	three := w.log()
	one := append(bytes.Clone(w.lines[0]), '\n')
	fork := &writer{t: t, scid: w.scid, last: w.last, lines: [][]byte{w.lines[0]}}
	e, err := parseObject(w.lines[0])
	must(t, err)
	fork.last, _ = e.string("versionId")
	fork.add(1, `{"ttl":6}`).add(1, `{}`).add(1, `{}`)

	s := &shelfOf{}
	m := Remember(s)
	for i, step := range []struct {
		log   []byte
		holds bool
	}{{two, true}, {two, true}, {one, false}, {three, true}, {two, false}, {fork.log(), false}, {three, true}} {
		s.log = step.log
		if _, err := Verify(step.log, nil, w.did(), Want{}, at(100)); err != nil {
			t.Fatalf("step %d: by itself: %v", i, err)
		}
		r, err := Resolve(t.Context(), m, w.did(), Want{}, at(100))
		if step.holds != (err == nil) || err != nil && (!errors.Is(err, ErrRewritten) || errors.Is(err, ErrInvalid) || r.DID != "") {
			t.Errorf("step %d: %+v, %v", i, r, err)
		}
	}
	if got, want := fmt.Sprint(s.told), "[1h0m0s 1h0m0s 10s 5s 10s 10s 5s]"; got != want {
		t.Errorf("told %s, want %s", got, want)
	}
	if _, err := Resolve(t.Context(), Remember(s), w.did(), Want{}, at(100)); err != nil {
		t.Error("another memory:", err)
	}
}

// What a DID was resolved to is doubted once in ten seconds.
func TestDoubt(t *testing.T) {
	s := &shelfOf{}
	m := Remember(s)
	id := "did:webvh:" + hash(nil) + ":example.com"
	for _, step := range []struct {
		did   string
		at    time.Duration
		again bool
		asOf  time.Time
	}{
		{id, 0, true, start}, {id, time.Second, false, start}, {id + ":other", time.Second, true, start.Add(time.Second)}, {id, 10 * time.Second, true, start.Add(10 * time.Second)},
		{"did:key:z6Mk", 0, false, time.Time{}}, {"did:webvh:x", 0, false, time.Time{}},
	} {
		if again, asOf := m.Doubt(step.did, start.Add(step.at)); again != step.again || !asOf.Equal(step.asOf) {
			t.Errorf("%s at %s: %v, %s", step.did, step.at, again, asOf)
		}
	}
	if fmt.Sprint(s.told) != "[0s 0s 0s]" {
		t.Error(s.told)
	}
	for i := range maxMarks {
		m.doubted[fmt.Sprint(i)] = start
	}
	if again, _ := m.Doubt(id+":one-more", start); !again || len(m.doubted) > maxMarks {
		t.Errorf("%d doubts", len(m.doubted))
	}
}

// What is remembered is bounded, and a log that does not hold is not remembered.
func TestAMemoryIsBounded(t *testing.T) {
	m := Remember(&shelfOf{})
	for i := range maxMarks + 10 {
		if err := m.grew([]version{{id: "1-x", after: parameters{scid: fmt.Sprint(i)}}}); err != nil {
			t.Fatal(err)
		}
	}
	if len(m.marks) != maxMarks {
		t.Errorf("%d marks", len(m.marks))
	}
	w := (&writer{t: t}).add(1, first(`,"witness":`+witnessList(1, 11), 1))
	m = Remember(&shelfOf{log: w.log()})
	if _, err := Resolve(t.Context(), m, w.did(), Want{}, at(100)); err == nil || len(m.marks) != 0 {
		t.Errorf("%v, %d marks", err, len(m.marks))
	}
}
