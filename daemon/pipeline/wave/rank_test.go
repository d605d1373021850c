package wave

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/job"
)

func worth(o Offer, quality float64) Offer      { o.Quality = quality; return o }
func on(o Offer, device string) Offer           { o.Device = device; return o }
func of(kind string, t Task) Task               { t.Kind = kind; return t }
func as(role job.Role, final bool, t Task) Task { t.Role, t.Final = role, final; return t }

// TestAssign gives away the tasks of a wave, none of which ends before all have begun.
func TestAssign(t *testing.T) {
	three := []Task{worker("s1"), worker("s2"), worker("s3")}
	for _, c := range []struct {
		name   string
		set    func(*Settings)
		offers []Offer
		tasks  []Task
		known  []Count
		want   string
	}{
		{name: "one provider each, in the chain's order where nobody says more",
			offers: []Offer{at("a", "m"), at("b", "m"), at("c", "m"), at("d", "m")}, tasks: three, want: "a/m b/m c/m"},
		{name: "options of one provider share its queue",
			offers: []Offer{at("a", "m"), at("a", "n"), at("b", "m")}, tasks: three, want: "a/m b/m a/m"},
		{name: "another device before another provider on the same one",
			offers: []Offer{on(at("a", "m"), ""), on(at("b", "m"), ""), on(at("c", "m"), "peer")}, tasks: three, want: "a/m c/m b/m"},
		{name: "the better one first",
			offers: []Offer{worth(at("a", "m"), 0.4), worth(at("b", "m"), 0.8), worth(at("c", "m"), 0.6)}, tasks: three, want: "b/m c/m a/m"},
		{name: "and again if the rest is not half as good",
			offers: []Offer{worth(at("a", "m"), 0.9), worth(at("b", "m"), 0.3)}, tasks: three, want: "a/m a/m b/m"},
		{name: "nobody said a quality: taken as the middle",
			offers: []Offer{worth(at("a", "m"), 0.4), at("b", "m"), worth(at("c", "m"), 0.6)}, tasks: three, want: "c/m b/m a/m"},
		{name: "who rests comes last, and still before nobody",
			offers: []Offer{resting(at("a", "m")), worth(at("b", "m"), 0.1)}, tasks: three, want: "b/m b/m b/m"},
		{name: "only such: all the same", offers: []Offer{resting(at("a", "m"))}, tasks: three[:1], want: "a/m"},
		{name: "nobody: the chain decides", tasks: three[:1], want: "chain"},
		{name: "whoever writes the answer is ranked by quality alone, as busy as may be",
			offers: []Offer{worth(at("a", "coder"), 0.7), worth(at("b", "m"), 0.71)}, want: "b/m b/m",
			tasks: []Task{as(job.Synthesise, true, worker("x")), as(job.Rewrite, true, of("code", worker("y")))}},
		{name: "the classifier asks the fastest",
			offers: []Offer{worth(with(at("a", "m"), 9*time.Second), 1), worth(with(at("b", "m"), time.Second), 0.1)}, want: "b/m",
			tasks: []Task{as(job.Classify, false, worker("classify"))}},
		{name: "a code model for code, if it is nearly as good",
			offers: []Offer{worth(at("a", "llama"), 0.75), worth(at("b", "qwen2.5-coder:7b"), 0.7)}, tasks: []Task{of("Code review", worker("s1"))}, want: "b/qwen2.5-coder:7b"},
		{name: "not for prose",
			offers: []Offer{worth(at("a", "llama"), 0.75), worth(at("b", "qwen2.5-coder:7b"), 0.7)}, tasks: []Task{of("prose", worker("s1"))}, want: "a/llama"},
		{name: "alpha 0: the fastest, as measured", set: func(s *Settings) { s.Alpha = 0 },
			offers: []Offer{worth(at("a", "m"), 1), at("b", "m")}, tasks: three[:1], want: "b/m",
			known: []Count{{Option: "a/m", Done: 1, Tokens: 100, Busy: time.Second}, {Option: "b/m", Done: 1, Tokens: 900, Busy: time.Second}}},
		{name: "alpha 1: never", set: func(s *Settings) { s.Alpha = 1 },
			offers: []Offer{worth(at("a", "m"), 1), at("b", "m")}, tasks: three[:1], want: "a/m",
			known: []Count{{Option: "a/m", Done: 1, Tokens: 100, Busy: time.Second}, {Option: "b/m", Done: 1, Tokens: 900, Busy: time.Second}}},
		{name: "the floor: a tenth of the speed is as good as a hundredth", set: func(s *Settings) { s.Alpha, s.Floor = 0.5, 0.1 },
			offers: []Offer{worth(at("a", "m"), 0.6), worth(at("b", "m"), 0.5), worth(at("c", "m"), 0.05)}, tasks: three[:1], want: "a/m",
			known: []Count{{Option: "a/m", Tokens: 10, Busy: time.Second}, {Option: "b/m", Tokens: 100, Busy: time.Second}, {Option: "c/m", Tokens: 1000, Busy: time.Second}}},
		{name: "who loses hedges is slower than its tokens say", set: func(s *Settings) { s.Alpha = 0 },
			offers: []Offer{at("a", "m"), at("b", "m")}, tasks: three[:1], want: "b/m",
			known: []Count{{Option: "a/m", Tokens: 100, Busy: time.Second, Wins: 1, Losses: 3}, {Option: "b/m", Tokens: 60, Busy: time.Second}}},
		{name: "who was never measured counts as the fastest", set: func(s *Settings) { s.Alpha = 0 },
			offers: []Offer{at("a", "m"), with(at("b", "m"), 0), at("c", "m")}, tasks: three[:1], want: "b/m",
			known: []Count{{Option: "a/m", Tokens: 100, Busy: time.Second}, {Option: "c/m", Tokens: 300, Busy: time.Second}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := settings()
				if c.set != nil {
					c.set(&s)
				}
				tasks := slices.Clone(c.tasks)
				r := play(offers{"llm.t2": c.offers}, func(Copy) serving { return serving{takes: time.Second} })
				p := NewPool()
				for i := range c.known {
					c.known[i].Since = time.Now()
				}
				p.Restore(c.known, s.Window)
				New(s, r, p).Do(t.Context(), tasks)
				var got []string
				for _, task := range tasks {
					at := slices.IndexFunc(r.jobs, func(j *begun) bool { return j.copy.Task.Name == task.Name })
					o := r.jobs[at].copy.Offer
					got = append(got, string(o.Option))
				}
				same(t, "assigned", strings.Join(got, " "), c.want)
				_ = p.Close(t.Context())
			})
		})
	}
}

// TestAnchor has a provider keep a domain until it fails, which is the request's alone.
func TestAnchor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := false
		r := play(offers{"llm.t2": {worth(at("a", "m"), 0.6), worth(at("b", "m"), 0.55)}}, func(c Copy) serving {
			if fails && c.Offer.Provider == "b" {
				return serving{takes: time.Second, class: chain.Status}
			}
			return serving{takes: time.Second}
		})
		p := NewPool()
		w := New(settings(), r, p)
		asked := func(kinds ...string) string {
			from := len(r.jobs)
			tasks := make([]Task, len(kinds))
			for i, kind := range kinds {
				tasks[i] = of(kind, worker(fmt.Sprint("s", i)))
			}
			w.Do(t.Context(), tasks)
			got := make([]string, len(kinds))
			for _, j := range r.jobs[from:] {
				got[j.copy.Task.Name[1]-'0'] = j.copy.Offer.Provider
			}
			return strings.Join(got, " ")
		}
		same(t, "a wave", asked("essay", "code"), "a b")
		same(t, "its kinds stay where they were", asked("Essay"), "a")
		same(t, "as does what belongs to the same domain", asked("debugging"), "b")
		same(t, "also side by side", asked("code", "essay"), "b a")
		same(t, "a domain does not wait in one queue", asked("code", "code"), "b a")
		fails = true
		same(t, "once more", asked("code"), "b")
		same(t, "after a failure the best one is asked", asked("code"), "a")
		fails = false
		w = New(settings(), r, p)
		same(t, "another request begins anew", asked("code"), "a")
		_ = p.Close(t.Context())
	})
}

// TestSuits tells names of models that are code models, and names that only look so.
func TestSuits(t *testing.T) {
	for model, want := range map[string]bool{
		"qwen2.5-coder:7b": true, "deepseek-coder-v2": true, "codellama:13b": true, "bigcode/starcoder2-15b": true, "Codestral-22B": true, "devstral": true,
		"llama-3.3-70b": false, "encoder-base": false, "": false, "decode": false, "r1": false,
	} {
		same(t, model, suits(model, "code"), want)
	}
	same(t, "r1", suits("deepseek-r1:7b", "reasoning"), true)
	same(t, "o3", suits("o3-mini", "reasoning"), true)
	same(t, "no domain", suits("qwen2.5-coder", ""), false)
	for kind, want := range map[string]string{"": "", "  Code ": "code", "code_review": "code", "poem": "poem", "Math problem": "reasoning"} {
		same(t, kind, grouped(kind), want)
	}
}

// TestRankIsFinite has any declared and measured values give ranks that can be
// compared, and something to take.
func TestRankIsFinite(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := settings()
		s.Alpha, s.Floor = rapid.Float64Range(0, 1).Draw(t, "alpha"), rapid.Float64Range(0, 1).Draw(t, "floor")
		n := rapid.IntRange(1, 6).Draw(t, "offers")
		os, known := make([]Offer, n), make([]seen, n)
		for i := range os {
			os[i] = Offer{Option: chain.OptionID(fmt.Sprint(i)), Quality: rapid.Float64().Draw(t, "quality"),
				Latency: time.Duration(rapid.Int64().Draw(t, "latency")), Resting: rapid.Bool().Draw(t, "rests")}
			known[i] = seen{Count: Count{Tokens: rapid.Int64Min(0).Draw(t, "tokens"), Busy: time.Duration(rapid.Int64Min(0).Draw(t, "busy")),
				Wins: rapid.Int64Range(0, 99).Draw(t, "wins"), Losses: rapid.Int64Range(0, 99).Draw(t, "losses")}, provider: rapid.IntRange(0, 9).Draw(t, "running")}
		}
		task := worker("s1")
		task.Final = rapid.Bool().Draw(t, "final")
		ranks := rank(&s, &task, os, known, "")
		for _, r := range ranks {
			if !(r >= 0) {
				t.Fatalf("a rank of %v", r)
			}
		}
		at := best(os, ranks, func(*Offer) bool { return true })
		if at < 0 || os[at].Resting && slices.ContainsFunc(os, func(o Offer) bool { return !o.Resting }) {
			t.Fatalf("took %d of %v", at, os)
		}
	})
}
