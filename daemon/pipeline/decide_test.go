package pipeline_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/daemon/pipeline"
	"github.com/chordwheel/chordwheel/daemon/pipeline/wave"
)

// chat is a body with one question, and more fields.
func chat(question, more string) []byte {
	return []byte(`{"model":"auto","messages":[{"role":"user","content":"` + question + `"}]` + more + `}`)
}

const (
	easy   = "What is the capital of Peru?"
	hard   = "Compare three ways to store energy and recommend one in a detailed report."
	deeds  = "Run the tests and send me the result by email."
	doubt  = "Tell me about Rome."
	steady = `,"temperature":0.2`
)

func decide(t *testing.T, m *models, change func(*pipeline.Settings), body []byte) pipeline.Decision {
	t.Helper()
	p, err := pipeline.New(settings(change))
	if err != nil {
		t.Fatal(err)
	}
	return p.Decide(t.Context(), m, pipeline.Request{Body: body})
}

func TestMinComplexity(t *testing.T) {
	for _, c := range []struct {
		question string
		want     string
		from     int // the highest min_complexity with stages; -1: none
	}{
		{easy, "simple: lookup,short", 0}, {hard, "complex", 1}, {deeds, "agentic", 2},
	} {
		for most := range 3 {
			d := decide(t, script(t, nil), func(s *pipeline.Settings) { s.MinComplexity = most }, chat(c.question, steady))
			if !strings.HasPrefix(d.String(), c.want) || d.Staged != (most <= c.from) {
				t.Errorf("min_complexity %d: %q is %s, staged %v", most, c.question, d, d.Staged)
			}
		}
	}
	if d := decide(t, script(t, nil), func(s *pipeline.Settings) { s.Enabled = false }, chat(deeds, "")); d.Staged || d.String() != "simple: off" {
		t.Errorf("switched off: %s, staged %v", d, d.Staged)
	}
}

func TestDoubtsArePutToAT1(t *testing.T) {
	for _, c := range []struct {
		name string
		says line
		want string
	}{
		{"a word", says("complex"), "complex: vague,short,classifier:complex"},
		{"a sentence", says("I think it is **Agentic**."), "agentic: vague,short,classifier:agentic"},
		{"the same word twice", says("simple. Simple!"), "simple: vague,short,classifier:simple"},
		{"two words", says("simple or complex"), "simple: vague,short,classifier:unread"},
		{"no word", says("Rome is a city."), "simple: vague,short,classifier:unread"},
		{"a novel", says(strings.Repeat("complex ", 10000)), "simple: vague,short,classifier:unread"},
		{"an empty answer", says(""), "simple: vague,short,classifier:unread"},
		{"no T1", fails(), "simple: vague,short,classifier:failed"},
		{"a T1 that hangs", hangs(), "simple: vague,short,classifier:failed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began := time.Now()
				m := script(t, map[string]line{"llm.t1": c.says})
				d := decide(t, m, rewrites(0), chat(doubt, ""))
				if d.String() != c.want {
					t.Errorf("%s, want %s", d, c.want)
				}
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("the caller waited %s", took)
				}
				if !strings.Contains(m.body("classify"), doubt) {
					t.Error("the T1 does not see the request")
				}
			})
		})
	}
	m := script(t, map[string]line{"llm.t1": says("complex")})
	d := decide(t, m, func(s *pipeline.Settings) { s.ClassifierEnabled = false }, chat(doubt, ""))
	if d.String() != "simple: vague,short,classifier:off" || m.names() != "" {
		t.Errorf("%s, ran %q", d, m.names())
	}
	decide(t, m, rewrites(0), chat(hard, ""))
	if m.names() != "" {
		t.Errorf("ran %q without a doubt", m.names())
	}
}

// What only makes sense as one model's own answer is one walk, whatever it asks.
func TestRequestsThatCannotBeCut(t *testing.T) {
	said := func(messages string) []byte {
		return []byte(`{"model":"auto","messages":[` + messages + `]}`)
	}
	user := `{"role":"user","content":"` + hard + `"}`
	for _, c := range []struct {
		name string
		body []byte
		want string
	}{
		{"tools", chat(hard, `,"tools":[{"type":"function","function":{"name":"f"}}]`), "simple: request:tools"},
		{"functions", chat(hard, `,"functions":[{"name":"f"}]`), "simple: request:tools"},
		{"no tools", chat(hard, `,"tools":[],"tool_choice":"none","functions":null`), "complex"},
		{"two choices", chat(hard, `,"n":2`), "simple: request:choices"},
		{"one choice", chat(hard, `,"n":1`), "complex"},
		{"probabilities", chat(hard, `,"logprobs":true`), "simple: request:logprobs"},
		{"no probabilities", chat(hard, `,"logprobs":false,"top_logprobs":null`), "complex"},
		{"JSON", chat(hard, `,"response_format":{"type":"json_object"}`), "simple: request:format"},
		{"text", chat(hard, `,"response_format":{"type":"text"}`), "complex"},
		{"sound", chat(hard, `,"modalities":["text","audio"],"audio":{"voice":"x"}`), "simple: request:media"},
		{"text only", chat(hard, `,"modalities":["text"]`), "complex"},
		{"a prediction", chat(hard, `,"prediction":{"type":"content","content":"x"}`), "simple: request:prediction"},
		{"an image", said(`{"role":"user","content":[{"type":"text","text":"` + hard + `"},{"type":"image_url","image_url":{"url":"data:x"}}]}`), "simple: request:media"},
		{"an image before", said(`{"role":"user","content":[{"type":"image_url"}]},` + user), "simple: request:media"},
		{"text in parts", said(`{"role":"user","content":[{"type":"text","text":"` + hard + `"}]}`), "complex"},
		{"a tool's result", said(user + `,{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]},{"role":"tool","content":"x"}`), "simple: request:tools"},
		{"an answer to go on with", said(user + `,{"role":"assistant","content":"Well,"}`), "simple: request:messages"},
		{"nothing asked", said(`{"role":"user","content":" "}`), "simple: request:messages"},
		{"no message", said(`3`), "simple: request:messages"},
		{"a talk", said(`{"role":"system","content":"Be brief."},` + user + `,{"role":"assistant","content":"No."},` + user), "complex"},
		{"rubbish", []byte(`{"messages":{}}`), "simple: request:unread"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := decide(t, script(t, nil), rewrites(0), c.body)
			if !strings.HasPrefix(d.String(), c.want) || d.Staged != (c.want == "complex") {
				t.Errorf("%s, staged %v, want %s", d, d.Staged, c.want)
			}
		})
	}
}

// The caller's own words come first, and what it said of lengths and samples
// holds where it should.
func TestWhatPartsAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := `{"model":"auto","stream":true,"stream_options":{"include_usage":true},"temperature":0.2,"max_tokens":50,"stop":["END"],"seed":7,
			"messages":[{"role":"system","content":"SYSTEM"},{"role":"user","content":"EARLIER"},{"role":"assistant","content":"REPLY"},{"role":"user","content":"QUESTION <&>"}]}`
		m := script(t, map[string]line{
			"decompose": says(`{"subtasks":[{"id":"THEIR-ID","type":"code","prompt":"FIRST"},{"id":"y","type":"THEIR-TYPE","prompt":"SECOND","depends_on":["THEIR-ID"]}]}`),
			"s1":        says("RESULT1"), "synthesise": says("ANSWER"), "score": says(`{"score":0.1,"issues":["ISSUE"]}`), "rewrite": says("BETTER"),
		})
		run(t, m, settings(rewrites(1)), pipeline.Request{Body: []byte(body)})
		own := "SYSTEM\n---\nEARLIER\n---\nREPLY\n---\nQUESTION <&>"
		for name, parts := range map[string][]string{
			"decompose":  {"1 to 3 subtasks", "SYSTEM", "EARLIER", "REPLY", "QUESTION <&>"},
			"s1":         {own, "FIRST"},
			"s2":         {own, "Asked: FIRST", "RESULT1", "SECOND"},
			"synthesise": {own, "⚠️ [unverified]", "Asked: FIRST", "RESULT1", "Asked: SECOND", "(nothing came of it)"},
			"score-1":    {"⚠️ [unverified]", "SYSTEM", "QUESTION", "ANSWER"},
			"rewrite-1":  {own, "ANSWER", "ISSUE"},
		} {
			rest := m.body(name)
			for _, part := range parts {
				_, after, found := strings.Cut(rest, part)
				if !found {
					t.Errorf("%s: want %q behind what came before: %q", name, part, m.body(name))
				}
				rest = after
			}
		}
		for _, task := range m.tasks {
			raw := string(task.Body)
			final := slices.Contains([]string{"synthesise", "rewrite-1"}, task.Name)
			ours := slices.Contains([]string{"decompose", "score-1", "score-2"}, task.Name)
			if strings.Contains(raw, `"model"`) || strings.Contains(raw, `"stream`) {
				t.Errorf("%s: model or stream in %s", task.Name, raw)
			}
			if strings.Contains(raw, `"max_tokens":50`) != final || strings.Contains(raw, `"stop":["END"]`) != final {
				t.Errorf("%s: limits of the answer in %s", task.Name, raw)
			}
			if strings.Contains(raw, `"temperature":0.2`) == ours || strings.Contains(raw, `"seed":7`) == ours {
				t.Errorf("%s: samples in %s", task.Name, raw)
			}
			if strings.Contains(raw, "THEIR-ID") || strings.Contains(task.Kind+strings.Join(task.After, ""), "THEIR") {
				t.Errorf("%s: a model's own name in %+v", task.Name, task)
			}
			if task.Final != final || task.Name == "s2" && !slices.Equal(task.After, []string{"s1"}) || task.Name == "s1" && task.Kind != "code" {
				t.Errorf("%+v", task)
			}
		}
	})
}

// A direct walk, and one worker for a plan that cannot be followed, get the
// request as it came.
func TestTheRequestAsItCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := `{"model":"auto","stream":false,"x_unknown":[1.50,{"b":1,"a":2}],"messages":[{"role":"user","name":"n","content":[{"type":"text","text":"Q"}]}]}`
		m := script(t, map[string]line{"decompose": says(`{"subtasks":[]}`)})
		run(t, m, settings(), pipeline.Request{Body: []byte(body)})
		n := 0
		for _, task := range m.tasks {
			if task.Name == "s1" || strings.HasPrefix(task.Name, "direct") {
				n++
				if want := `{"messages":[{"role":"user","name":"n","content":[{"type":"text","text":"Q"}]}],"x_unknown":[1.50,{"b":1,"a":2}]}`; string(task.Body) != want {
					t.Errorf("%s: %s, want %s", task.Name, task.Body, want)
				}
			}
		}
		if n != 5 {
			t.Errorf("%d tasks with the request, ran %s", n, m.names())
		}
	})
}

func TestSettingsOutOfRange(t *testing.T) {
	if err := pipeline.Default().Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	s := pipeline.Settings{MinComplexity: 3, SupervisorFallbackTier: 1, MaxRewriteIterations: -1, RewriteScoreThreshold: 1.5, Waves: wave.Default()}
	s.Waves.Replicas = 6
	_, err := pipeline.New(s)
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"min_complexity is 3: it goes from 0 to 2", "supervisor_fallback_tier is 1: it goes from 2 to 3", "max_rewrite_iterations is -1: it goes from 0 to 10",
		"rewrite_score_threshold is 1.5: it goes from 0 to 1", "race_replicas is 6",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want %q in it", err, want)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one line: %v", err)
	}
	s = pipeline.Default()
	s.RewriteScoreThreshold = nan()
	if s.Validate() == nil {
		t.Error("not a number is no threshold")
	}
}

func nan() float64 { var zero float64; return zero / zero }

func TestBodiesThatAreNoChats(t *testing.T) {
	p, _ := pipeline.New(settings())
	for _, body := range []string{"", "null", "[]", `{"messages":[]}`, `{"messages":"x"}`, `{}`} {
		_, err := p.Run(t.Context(), script(t, nil), pipeline.Request{Body: []byte(body)}, pipeline.Decision{}, pipeline.Output{})
		if err == nil || errors.Is(err, pipeline.ErrNoModels) {
			t.Errorf("%q: %v", body, err)
		}
	}
}
