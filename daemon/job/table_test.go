package job

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/chain"
)

func open(t *testing.T, table *Table, r Record) string {
	t.Helper()
	id, err := table.Open(r)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func state(table *Table, id string) string {
	r, _ := table.Get(id)
	s := string(r.State)
	if r.Hedge != "" {
		s += " " + string(r.Hedge)
	}
	return s
}

// TestALife: what each call makes of a job, and what is refused.
func TestALife(t *testing.T) {
	accept := func(table *Table, id string) error { return table.Accept(id, Place{Option: "a/b"}) }
	end := func(s State) func(*Table, string) error {
		return func(table *Table, id string) error { return table.End(id, s, "timeout", nil) }
	}
	settle := func(s State, h Hedge) func(*Table, string) error {
		return func(table *Table, id string) error { return table.Settle(id, s, h) }
	}
	type calls []func(*Table, string) error
	for _, test := range []struct {
		name    string
		calls   calls
		want    string
		refused bool // the last call
	}{
		{"nobody accepted it yet", calls{}, "pending", false},
		{"somebody runs it", calls{accept}, "running", false},
		{"the next one takes it over", calls{accept, accept}, "running", false},
		{"done", calls{accept, end(Done)}, "done", false},
		{"failed unaccepted", calls{end(Failed)}, "failed", false},
		{"done unaccepted", calls{end(Done)}, "pending", true},
		{"ended as superseded by its runner", calls{accept, end(Superseded)}, "running", true},
		{"accepted when done", calls{accept, end(Done), accept}, "done", true},
		{"ended twice", calls{accept, end(Done), end(Failed)}, "done", true},
		{"the winner", calls{accept, end(Done), settle(Done, Winner)}, "done winner", false},
		{"a second answer that came too late", calls{accept, end(Done), settle(Superseded, Loser)}, "superseded loser", false},
		{"a cancelled loser", calls{accept, end(Cancelled), settle(Superseded, Loser)}, "superseded loser", false},
		{"a loser that ignores its cancellation", calls{accept, settle(Superseded, Loser), end(Done)}, "superseded loser", false},
		{"and says so twice", calls{accept, settle(Superseded, Loser), end(Done), end(Done)}, "superseded loser", true},
		{"settled twice alike", calls{accept, end(Done), settle(Done, Winner), settle(Done, Winner)}, "done winner", false},
		{"settled twice otherwise", calls{accept, end(Done), settle(Done, Winner), settle(Superseded, Loser)}, "done winner", true},
		{"a winner that failed", calls{accept, end(Failed), settle(Failed, Winner)}, "failed", true},
		{"done by decree", calls{accept, settle(Done, Winner)}, "running", true},
		{"nobody wants it", calls{settle(Cancelled, "")}, "cancelled", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			table := NewTable(nil)
			id := open(t, table, Record{Role: Provided})
			var err error
			for _, call := range test.calls {
				err = call(table, id)
			}
			if got := state(table, id); got != test.want || errors.Is(err, ErrTransition) != test.refused {
				t.Errorf("%s, %v: want %s, refused %v", got, err, test.want, test.refused)
			}
		})
	}
}

// TestALosersCostStays: a job that was settled while it ran still takes its account.
func TestALosersCostStays(t *testing.T) {
	table := NewTable(nil)
	id := open(t, table, Record{Role: Subtask})
	must(t, table.Accept(id, Place{Option: "a/b"}))
	must(t, table.Settle(id, Superseded, Loser))
	must(t, table.End(id, Cancelled, "canceled", func(r *Record) { r.Cost, r.State, r.ID = 7, Done, "other" }))
	if r, _ := table.Get(id); r.Cost != 7 || r.State != Superseded || r.ID != id || r.Reason != "" {
		t.Errorf("%+v", r)
	}
}

// TestTheTree: parts belong to their request, which is found by any of its names.
func TestTheTree(t *testing.T) {
	table := NewTable(nil)
	old := open(t, table, Record{Role: Root, RequestID: "r"})
	root := open(t, table, Record{Role: Root, RequestID: "r"})
	part := open(t, table, Record{Root: root, Role: Subtask, Task: "s1"})
	for _, id := range []string{root, part, "r"} {
		if tree := table.Tree(id); len(tree) != 2 || tree[0].ID != root || tree[1].ID != part {
			t.Errorf("the tree of %s is %v", id, tree)
		}
	}
	if roots := table.Roots(0); len(roots) != 2 || roots[0].ID != root || roots[1].ID != old {
		t.Errorf("roots %v", roots)
	}
	if table.Tree("") != nil || table.Tree("x") != nil {
		t.Error("a tree of nothing")
	}
	if _, err := table.Open(Record{Root: part}); !errors.Is(err, ErrUnknown) {
		t.Errorf("a part of a part: %v", err)
	}
	must(t, table.End(root, Failed, "x", nil))
	if _, err := table.Open(Record{Root: root}); !errors.Is(err, ErrTransition) {
		t.Errorf("a part of what has ended: %v", err)
	}
}

// TestBounds: what is remembered does not grow with what was done, and what others
// say of themselves is short.
func TestBounds(t *testing.T) {
	table := NewTable(nil)
	first := open(t, table, Record{Role: Root})
	for range MaxRoots + 10 {
		id := open(t, table, Record{Role: Root})
		part := open(t, table, Record{Root: id, Role: Direct})
		must(t, table.Settle(id, Cancelled, ""))
		must(t, table.End(part, Failed, "timeout", nil))
	}
	if n := len(table.Roots(0)); n != MaxRoots+1 || len(table.jobs) != 2*MaxRoots+1 {
		t.Errorf("%d requests, %d jobs", n, len(table.jobs))
	}
	if _, ok := table.Get(first); !ok {
		t.Error("an unfinished one was forgotten")
	}
	for range MaxTree - 1 {
		open(t, table, Record{Root: first})
	}
	if _, err := table.Open(Record{Root: first}); !errors.Is(err, ErrFull) {
		t.Errorf("one more part: %v", err)
	}
	long := Record{Device: strings.Repeat("x", 1000) + "\xff", Reasons: make([]string, 100)}
	id := open(t, table, long)
	if r, _ := table.Get(id); len(r.Device) > maxText+3 || len(r.Reasons) != maxTexts {
		t.Errorf("%d bytes, %d reasons", len(r.Device), len(r.Reasons))
	}
	for range MaxUnfinished - MaxTree - 1 {
		open(t, table, Record{})
	}
	if _, err := table.Open(Record{}); !errors.Is(err, ErrFull) {
		t.Errorf("one more job: %v", err)
	}
}

// TestAnyOrder: whatever order events come in, an ended job does not begin again, a
// settled one stays so, and the counts say what is there.
func TestAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table := NewTable(nil)
		var ids []string
		was := map[string]Record{}
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			if len(ids) == 0 || rapid.IntRange(0, 5).Draw(t, "open") == 0 {
				r := Record{Role: Direct}
				if len(ids) > 0 && rapid.Bool().Draw(t, "part") {
					r.Root = rapid.SampledFrom(ids).Draw(t, "root")
				}
				if id, err := table.Open(r); err == nil {
					ids = append(ids, id)
				}
				continue
			}
			id := rapid.SampledFrom(ids).Draw(t, "job")
			states := rapid.SampledFrom([]State{Pending, Running, Done, Failed, Superseded, Cancelled, "x"})
			var err error
			var what string
			switch rapid.IntRange(0, 3).Draw(t, "event") {
			case 0:
				what, err = "accept", table.Accept(id, Place{Option: chain.OptionID(fmt.Sprint(len(ids)))})
			case 1:
				what, err = "end", table.End(id, states.Draw(t, "state"), "why", nil)
			case 2:
				what, err = "settle", table.Settle(id, states.Draw(t, "state"), rapid.SampledFrom([]Hedge{"", Winner, Loser, "x"}).Draw(t, "hedge"))
			case 3:
				what, err = "update", table.Update(id, func(r *Record) { r.State, r.Issues = Pending, r.Issues+1 })
			}
			now, before := must2(table.Get(id)), was[id]
			switch {
			case err != nil && before.ID != "" && (now.State != before.State || now.Hedge != before.Hedge):
				t.Fatalf("%s was refused and made %s of %s", what, now.State, before.State)
			case before.State.Ended() && before.ID != "" && !now.State.Ended():
				t.Fatalf("%s made %s of %s", what, now.State, before.State)
			case before.Hedge != "" && (now.Hedge != before.Hedge || now.State != before.State):
				t.Fatalf("%s made %s %s of %s %s", what, now.State, now.Hedge, before.State, before.Hedge)
			case now.Hedge == Winner && now.State != Done, now.State.Ended() == now.Ended.IsZero():
				t.Fatalf("%+v", now)
			}
			was[id] = now
		}
		var want Counts
		for _, id := range ids {
			switch must2(table.Get(id)).State {
			case Pending:
				want.Pending++
			case Running:
				want.Running++
			case Done:
				want.Done++
			case Failed:
				want.Failed++
			case Superseded:
				want.Superseded++
			case Cancelled:
				want.Cancelled++
			}
		}
		got := table.Counts()
		if got.Refused = 0; got != want {
			t.Fatalf("counts %+v, want %+v", got, want)
		}
	})
}

func must2(r Record, ok bool) Record {
	if !ok {
		panic("a job is gone")
	}
	return r
}
