package did

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
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

// bucket is a database with one bucket in it, which can fail.
type bucket struct {
	records map[string][]byte
	writes  int
	broken  error
}

func (b *bucket) PutAll(records map[string]any) error {
	for key, v := range records {
		if b.broken != nil {
			return b.broken
		}
		raw, err := chain.Marshal(v)
		if err != nil {
			return err
		}
		b.records[key] = raw
	}
	b.writes++
	return nil
}

func (b *bucket) Delete(keys ...string) error {
	for _, key := range keys {
		if b.broken != nil {
			return b.broken
		}
		delete(b.records, key)
	}
	return nil
}

func (b *bucket) Each(f func(key string, decode func(v any) error) error) error {
	for key, raw := range b.records {
		if err := f(key, func(v any) error { return chain.Unmarshal(raw, v) }); err != nil {
			return err
		}
	}
	return b.broken
}

// What was read before a restart counts after it: the log may have grown meanwhile, and a log that
// was cut back or rewritten meanwhile is refused.
func TestALogThatIsRolledBackOverARestart(t *testing.T) {
	w := (&writer{t: t}).add(1, first("", 1)).add(1, `{}`)
	two := w.log()
	w.add(1, `{}`)
	three := w.log()
	one := append(bytes.Clone(w.lines[0]), '\n')
	s, kept := &shelfOf{log: two}, &bucket{records: map[string][]byte{}}
	resolve := func(log []byte) error {
		m, err := Recall(s, kept)
		must(t, err)
		s.log = log
		_, err = Resolve(t.Context(), m, w.did(), Want{}, at(100))
		return err
	}
	for i, step := range []struct {
		log   []byte
		holds bool
	}{{two, true}, {one, false}, {two, true}, {three, true}, {two, false}, {three, true}} {
		if err := resolve(step.log); step.holds != (err == nil) || err != nil && !errors.Is(err, ErrRewritten) {
			t.Errorf("step %d: %v", i, err)
		}
	}
	if kept.writes != 2 { // one when it was met, one when it grew
		t.Errorf("%d writes", kept.writes)
	}

	// What cannot be kept is not known; what cannot be read is one less.
	kept = &bucket{records: map[string][]byte{}, broken: errors.New("the disk is full")}
	m := Remember(s)
	m.kept = kept
	if _, err := Resolve(t.Context(), m, w.did(), Want{}, at(100)); !errors.Is(err, kept.broken) || errors.Is(err, ErrInvalid) || len(m.marks)+len(m.sites) != 0 {
		t.Errorf("%v, %d marks", err, len(m.marks))
	}
	if _, err := Recall(s, kept); !errors.Is(err, kept.broken) {
		t.Error(err)
	}
	kept = &bucket{records: map[string][]byte{w.scid: {0xff}, "no SCID": {0xa0}, hash(nil): {0xa0}}}
	if m, err := Recall(s, kept); err != nil || len(m.marks) != 0 {
		t.Errorf("%v, %v", m, err)
	}
}

// A log is remembered where it goes by the name that was asked for: who serves another's log under
// a name of his own takes no room.
func TestALogOfAnotherIsNotRemembered(t *testing.T) {
	w := (&writer{t: t}).add(1, first("", 1))
	s := &shelfOf{log: w.log()}
	m := Remember(s)
	if _, err := Resolve(t.Context(), m, "did:webvh:"+w.scid+":other.example", Want{}, at(100)); !errors.Is(err, ErrInvalid) || len(m.marks) != 0 {
		t.Errorf("%v, %d marks", err, len(m.marks))
	}
	if _, err := Resolve(t.Context(), m, w.did(), Want{}, at(100)); err != nil || m.marks[w.scid].Site != "example.com" {
		t.Errorf("%v, %+v", err, m.marks)
	}
}

// flood has a Memory read n logs, of hosts that host names.
func flood(t *testing.T, m *Memory, n int, host func(i int) string, now time.Time) {
	t.Helper()
	for i := range n {
		must(t, m.grew(webvh{rest: host(i)}, []version{{id: "1-x", after: parameters{scid: host(i) + fmt.Sprint(i)}}}, now))
	}
}

// A stranger with names without number pushes out nobody but himself.
func TestAMemoryIsBounded(t *testing.T) {
	kept := &bucket{records: map[string][]byte{}}
	m, err := Recall(&shelfOf{}, kept)
	must(t, err)
	if m.most != maxMarks {
		t.Errorf("room for %d", m.most)
	}
	m.most = 200
	of := func(host string) func(int) string {
		return func(i int) string { return fmt.Sprintf("h%d.%s%%3A8443:dids", i, host) }
	}
	held := func(host string, want int) {
		t.Helper()
		sum := 0
		for _, n := range m.sites {
			sum += n
		}
		if m.sites[host] != want || sum != len(m.marks) || len(m.marks) > m.most || len(kept.records) != len(m.marks) {
			t.Errorf("%d marks of %s, want %d; %d in all, %d kept", m.sites[host], host, want, len(m.marks), len(kept.records))
		}
	}
	flood(t, m, 10, of("honest.example"), at(1))
	flood(t, m, 500, of("Evil.example"), at(2))
	held("evil.example", 190)
	held("honest.example", 10)
	flood(t, m, 5, of("new.example"), at(3)) // there is room for others
	held("new.example", 5)
	held("evil.example", 185)
	if _, there := m.marks["h5.Evil.example%3A8443:dids5"]; !there {
		t.Error("the first of the flood went, not the last")
	}
	flood(t, m, 500, func(i int) string { return fmt.Sprintf("evil%d.example", i%15) }, at(4)) // many domains
	held("new.example", 5)
	held("honest.example", 10)

	// What nobody asked for makes room, whose it may be.
	late := at(4).Add(markLife + readStep)
	flood(t, m, 1, of("honest.example"), late)
	flood(t, m, m.most-1, of("heir.example"), late)
	held("honest.example", 1)
	held("heir.example", m.most-1)

	w := (&writer{t: t}).add(1, first(`,"witness":`+witnessList(1, 11), 1))
	m = Remember(&shelfOf{log: w.log()})
	if _, err := Resolve(t.Context(), m, w.did(), Want{}, at(100)); err == nil || len(m.marks) != 0 {
		t.Errorf("a log that does not hold: %v, %d marks", err, len(m.marks))
	}
}
