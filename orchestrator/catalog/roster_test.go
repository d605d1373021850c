package catalog

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/chordwheel/chordwheel/chain"
)

const patterns = `
providers:
  - {name: alpha, adapter: builtin, models: [{name: small, primitives: [llm.chat]}]}
primitives: [{name: llm.chat, default: [alpha/small]}]
workspaces: [{id: home}, {id: free, deny: [peer]}, {id: paying, pin: [alpha/small]}, {id: bounded, ceilings: [{options: "alpha/*", calls_per_day: 1}]}]
`

func patternsOf(t testing.TB) Catalog {
	t.Helper()
	c, err := Parse("c.yaml", []byte(patterns))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestEnlist: a workspace of the list has the overrides of the one it is like.
func TestEnlist(t *testing.T) {
	c, err := patternsOf(t).Enlist("c.yaml.workspaces", strings.NewReader("# two kinds\n\na free\nb\tpaying\r\n c   free \n"))
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{"a": "free", "b": "paying", "c": "free", "home": "home", "d": "d"} {
		w, known := c.Workspace(chain.ScopeID("workspace:" + id))
		if w.ID != want || known != (id != "d") {
			t.Errorf("%s is like %s (%v), want %s", id, w.ID, known, want)
		}
	}
	if c.Enlisted() != 3 {
		t.Errorf("%d are enlisted", c.Enlisted())
	}
	if empty, err := patternsOf(t).Enlist("x", strings.NewReader("")); err != nil || empty.Enlisted() != 0 || empty.Place("workspace:a") >= 0 {
		t.Errorf("an empty list: %v", err)
	}
}

// TestEnlistFaults: each names its line.
func TestEnlistFaults(t *testing.T) {
	for list, want := range map[string]string{
		"a":                  "f:1:1: \"a\": want the id of a workspace and of the one that it is like",
		"a free\n\na paying": "f:3:1: workspace \"a\" stands twice",
		"home free":          "f:1:1: workspace \"home\" stands in the catalogue too",
		"a none":             "f:1:1: workspace \"none\" is not in the catalogue",
		"a bounded":          "f:1:1: workspace \"bounded\" has ceilings of its own, which others cannot have too",
	} {
		_, err := patternsOf(t).Enlist("f", strings.NewReader(list))
		var invalid *Invalid
		if !errors.As(err, &invalid) || invalid.Error() != want {
			t.Errorf("%q: %v, want %s", list, err, want)
		}
	}
	if _, err := patternsOf(t).Enlist("f", strings.NewReader(strings.Repeat("x", 1<<20)+" free")); err == nil {
		t.Error("a line without end was accepted")
	}
	_, err := patternsOf(t).Enlist("f", strings.NewReader(strings.Repeat("a\n", 1000)))
	var invalid *Invalid
	if !errors.As(err, &invalid) || len(invalid.Problems) > maxRosterFault {
		t.Errorf("too many faults are told: %v", err)
	}
}

func FuzzEnlist(f *testing.F) {
	f.Add("a free\nb paying\n# c\n")
	c := patternsOf(f)
	f.Fuzz(func(t *testing.T, list string) {
		got, err := c.Enlist("f", strings.NewReader(list))
		if err == nil && got.Enlisted() > strings.Count(list, "\n")+1 {
			t.Errorf("%d of %q", got.Enlisted(), list)
		}
	})
}

// BenchmarkIdleWorkspace is a million workspaces of a thousand kinds: what each takes in
// memory, and what it takes to find one. The floor in a table with a chain of four primitives
// each is 48.5 bytes; here a chain takes memory only while the workspace has members.
func BenchmarkIdleWorkspace(b *testing.B) {
	const n, kinds = 1_000_000, 1000
	var text, list strings.Builder
	text.WriteString(strings.Split(patterns, "workspaces:")[0] + "workspaces:\n")
	for i := range kinds {
		fmt.Fprintf(&text, "  - {id: kind%d, weights: {second: %d}}\n", i, i+1)
	}
	for i := range n {
		fmt.Fprintf(&list, "%016x-%d kind%d\n", i*7919, i, i%kinds)
	}
	c, err := Parse("c.yaml", []byte(text.String()))
	if err != nil {
		b.Fatal(err)
	}
	heap := func() float64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	b.Run("load", func(b *testing.B) {
		lines := list.String()
		for b.Loop() {
			before := heap()
			got, err := c.Enlist("list", strings.NewReader(lines))
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric((heap()-before)/n, "B/workspace")
			runtime.KeepAlive(got)
		}
	})
	got, err := c.Enlist("list", strings.NewReader(list.String()))
	if err != nil {
		b.Fatal(err)
	}
	b.Run("find", func(b *testing.B) {
		scope := chain.ScopeID(fmt.Sprintf("workspace:%016x-%d", 777*7919, 777))
		for b.Loop() {
			if got.Place(scope) != 777 {
				b.Fatal("not found")
			}
		}
	})
}
