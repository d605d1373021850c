package pipeline

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// shape is a plan in short: each part with its kind, tier and needs, then how
// they are put together.
func shape(p plan) string {
	var b strings.Builder
	for _, t := range p.parts {
		fmt.Fprintf(&b, "%s:%s:T%d", t.name, t.kind, t.tier)
		for _, j := range t.after {
			b.WriteString("<" + p.parts[j].name)
		}
		b.WriteString(" ")
	}
	if p.rule {
		return b.String() + "rule"
	}
	return b.String() + "supervisor"
}

func TestPlansInSupervisorsText(t *testing.T) {
	one := `{"subtasks":[{"id":"a","type":"code","prompt":"do it","tier":1,"depends_on":[]}],"synthesis":"rule"}`
	const oneShape = "s1:code:T1 rule"
	many := func(n int) string {
		var parts []string
		for i := range n {
			parts = append(parts, `{"id":`+strconv.Itoa(i)+`,"prompt":"p"}`)
		}
		return `{"subtasks":[` + strings.Join(parts, ",") + `]}`
	}
	deps := func(a, b string) string {
		return `{"subtasks":[{"id":"a","prompt":"p","depends_on":[` + a + `]},{"id":"b","prompt":"p","depends_on":[` + b + `]}]}`
	}
	for name, c := range map[string]struct {
		text string
		want string // a shape, "none" or "bad"
	}{
		"bare":                    {one, oneShape},
		"in a fence":              {"```json\n" + one + "\n```", oneShape},
		"in prose":                {"Sure! Here {is} the [plan]:\n" + one + "\nGood luck } with it.", oneShape},
		"after thinking":          {"<think>maybe {\"subtasks\": or not</think>" + one, oneShape},
		"inside of an object":     {`{"plan":` + one + `}`, oneShape},
		"a mere list":             {`[{"id":"x","type":"Research","prompt":"p","tier":"T1"}]`, "s1:research:T1 supervisor"},
		"brackets in strings":     {`{"subtasks":[{"id":"}{","prompt":"a \" ] } b"}]}`, "s1:general:T2 supervisor"},
		"numbers as ids":          {`{"subtasks":[{"id":1,"prompt":"p"},{"id":2,"prompt":"q","tier":3,"depends_on":[1]}]}`, "s1:general:T2 s2:general:T3<s1 supervisor"},
		"needs named twice":       {deps(``, `"a","a"`), "s1:general:T2 s2:general:T2<s1 supervisor"},
		"needs null":              {`{"subtasks":[{"id":"a","prompt":"p","depends_on":null,"tier":null}],"synthesis":null}`, "s1:general:T2 supervisor"},
		"strange tier and type":   {`{"subtasks":[{"id":"a","prompt":"p","tier":9,"type":"rm -rf"}],"synthesis":"hm"}`, "s1:general:T2 supervisor"},
		"three":                   {many(3), "s1:general:T2 s2:general:T2 s3:general:T2 supervisor"},
		"one without id":          {`{"subtasks":[{"prompt":"p"}]}`, "s1:general:T2 supervisor"},
		"prose":                   {"The answer is 42.", "none"},
		"empty":                   {"", "none"},
		"other JSON":              {`{"answer":"42"}`, "none"},
		"null subtasks":           {`{"subtasks":null}`, "bad"},
		"broken JSON":             {`{"subtasks":[{"id":"a"`, "none"},
		"too long to look at":     {strings.Repeat(" ", maxPlan) + one, "none"},
		"too many brackets":       {strings.Repeat("[", maxObjects) + one, "none"},
		"no subtasks":             {`{"subtasks":[]}`, "bad"},
		"four":                    {many(4), "bad"},
		"a thousand":              {many(1000), "bad"},
		"not a list":              {`{"subtasks":{"a":1}}`, "bad"},
		"two of one id":           {`{"subtasks":[{"id":"a","prompt":"p"},{"id":" a","prompt":"p"}]}`, "bad"},
		"no ids":                  {`{"subtasks":[{"prompt":"p"},{"prompt":"q"}]}`, "bad"},
		"an endless id":           {`{"subtasks":[{"id":"` + strings.Repeat("x", maxID+1) + `","prompt":"p"}]}`, "bad"},
		"no prompt":               {`{"subtasks":[{"id":"a","prompt":" \n"}]}`, "bad"},
		"an endless prompt":       {`{"subtasks":[{"id":"a","prompt":"` + strings.Repeat("x", maxPrompt+1) + `"}]}`, "bad"},
		"needs what is not there": {deps(`"z"`, ``), "bad"},
		"needs itself":            {deps(`"a"`, ``), "bad"},
		"a circle":                {deps(`"b"`, `"a"`), "bad"},
		"needs too much":          {deps(`"b","b","b","b"`, ``), "bad"},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := parsePlan(c.text)
			got := shape(p)
			switch {
			case errors.Is(err, errNoPlan):
				got = "none"
			case errors.Is(err, errBadPlan):
				got = "bad"
			case err != nil:
				t.Fatal(err)
			}
			if got != c.want {
				t.Errorf("%s (%v), want %s", got, err, c.want)
			}
		})
	}
}

// Whatever a supervisor writes, a plan that is followed can be: few parts, names of
// ours, each after all that it builds on; and nothing of the text is in an error.
func FuzzPlan(f *testing.F) {
	f.Add(`{"subtasks":[{"id":"a","prompt":"p","tier":"T1"},{"id":"b","prompt":"q","depends_on":["a"]}],"synthesis":"rule"}`)
	f.Add("text {\"a\":[1,2]} ```json\n{\"subtasks\":[]}\n```")
	f.Add(`[{"id":1e999,"prompt":"p","depends_on":[1]}]`)
	f.Add(`{"subtasks":[{"id":"a","prompt":"p","depends_on":["b"]},{"id":"b","prompt":"p","depends_on":["a"]}]}`)
	f.Add(strings.Repeat("{", 300))
	f.Add(`{"subtasks":[{"id":null,"prompt":"p","depends_on":[null]}]}`)
	f.Fuzz(func(t *testing.T, text string) {
		p, err := parsePlan(text)
		if err != nil {
			if !errors.Is(err, errNoPlan) && !errors.Is(err, errBadPlan) || len(err.Error()) > 100 {
				t.Fatalf("error %q", err)
			}
			return
		}
		if len(p.parts) == 0 || len(p.parts) > maxSubtasks {
			t.Fatalf("%d parts", len(p.parts))
		}
		done := map[int]bool{}
		for _, level := range p.levels {
			for _, i := range level {
				part := p.parts[i]
				if part.name != "s"+strconv.Itoa(i+1) || part.tier < 1 || part.tier > 3 || kinds[part.kind] != part.kind && part.kind != "general" || blank(part.prompt) || len(part.prompt) > maxPrompt {
					t.Errorf("part %+v", part)
				}
				for _, j := range part.after {
					if !done[j] {
						t.Errorf("part %d runs before %d", i, j)
					}
				}
			}
			for _, i := range level {
				if done[i] {
					t.Errorf("part %d runs twice", i)
				}
				done[i] = true
			}
		}
		if len(done) != len(p.parts) {
			t.Errorf("%d of %d parts run", len(done), len(p.parts))
		}
	})
}

// Any graph: it is followed if, and only if, somebody could follow it.
func TestPlansOfAnyShape(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(0, 5).Draw(rt, "subtasks")
		ids, needs := make([]int, n), make([][]int, n)
		good := n > 0 && n <= maxSubtasks
		var parts []string
		for i := range n {
			ids[i] = rapid.SampledFrom([]int{i, i, i, i, 0}).Draw(rt, "id")
			needs[i] = rapid.SliceOfN(rapid.IntRange(0, 5), 0, 3).Draw(rt, "needs")
			parts = append(parts, fmt.Sprintf(`{"id":%d,"prompt":"p","depends_on":%s}`, ids[i], strings.ReplaceAll(fmt.Sprint(needs[i]), " ", ",")))
		}
		reach := map[[2]int]bool{} // what needs what, also through others
		for i := range n {
			for _, j := range needs[i] {
				good = good && j < n
				reach[[2]int{i, j}] = true
			}
			for j := range i {
				good = good && ids[i] != ids[j]
			}
		}
		for k := range n {
			for i := range n {
				for j := range n {
					if reach[[2]int{i, k}] && reach[[2]int{k, j}] {
						reach[[2]int{i, j}] = true
					}
				}
			}
		}
		for i := range n {
			good = good && !reach[[2]int{i, i}]
		}
		p, err := parsePlan(`{"subtasks":[` + strings.Join(parts, ",") + `]}`)
		if (err == nil) != good {
			rt.Fatalf("%v: %s, %v, want followed %v", parts, shape(p), err, good)
		}
	})
}
