package pipeline_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/job"
	"github.com/chordwheel/chordwheel/daemon/pipeline"
	"github.com/chordwheel/chordwheel/daemon/pipeline/wave"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// line is what one task gets: an answer, or a class without one, after a while.
type line struct {
	text  string
	class chain.Class
	after time.Duration
	parts []string // delivered before text ends, where the task delivers; nil: text at once
	model string
}

func says(text string) line { return line{text: text} }
func fails() line           { return line{class: chain.Unreachable} }
func hangs() line           { return line{after: 1000 * time.Hour} }

// models answer tasks by a script: what is said for the task's name, else for its
// role, else for its primitive; nobody is there for the rest.
type models struct {
	t     *testing.T
	lines map[string]line
	turn  map[string][]line // by name, role or primitive: one after the other

	mu    sync.Mutex
	waves [][]string
	tasks []wave.Task
}

func script(t *testing.T, lines map[string]line) *models {
	return &models{t: t, lines: lines, turn: map[string][]line{}}
}

func (m *models) then(key string, lines ...line) *models { m.turn[key] = lines; return m }

func (m *models) Do(ctx context.Context, tasks []wave.Task) []wave.Outcome {
	m.mu.Lock()
	var names []string
	for _, t := range tasks {
		names = append(names, t.Name)
		m.tasks = append(m.tasks, t)
	}
	m.waves = append(m.waves, names)
	m.mu.Unlock()
	outs := make([]wave.Outcome, len(tasks))
	var all sync.WaitGroup
	for i := range tasks {
		all.Go(func() {
			outs[i] = m.answer(ctx, &tasks[i])
			if tasks[i].Ended != nil {
				tasks[i].Ended(outs[i])
			}
		})
	}
	all.Wait()
	return outs
}

func (m *models) find(t *wave.Task) (line, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, key := range []string{t.Name, string(t.Role), string(t.Primitive)} {
		if turns := m.turn[key]; len(turns) > 0 {
			m.turn[key] = turns[1:]
			return turns[0], true
		}
		if l, ok := m.lines[key]; ok {
			return l, true
		}
	}
	return line{}, false
}

func (m *models) answer(ctx context.Context, t *wave.Task) wave.Outcome {
	if !json.Valid(t.Body) {
		m.t.Errorf("%s: the body is no JSON", t.Name)
	}
	l, ok := m.find(t)
	if !ok {
		return wave.Outcome{Class: chain.NoPeer}
	}
	select {
	case <-ctx.Done():
		return wave.Outcome{Class: chain.Canceled}
	case <-time.After(l.after):
	}
	if t.Deliver != nil {
		parts := l.parts
		if parts == nil && l.text != "" {
			parts = []string{l.text}
		}
		for _, p := range parts {
			if t.Deliver(p) != nil {
				return wave.Outcome{Class: chain.Canceled}
			}
			select {
			case <-ctx.Done():
				return wave.Outcome{Class: chain.Canceled}
			case <-time.After(time.Second):
			}
		}
	}
	if l.class != "" {
		return wave.Outcome{Class: l.class, Text: "half of an ans"}
	}
	return wave.Outcome{Class: chain.OK, Text: l.text, Model: l.model}
}

func (m *models) names() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var waves []string
	for _, w := range m.waves {
		waves = append(waves, strings.Join(w, "+"))
	}
	return strings.Join(waves, " ")
}

// body is the first task of that name, as text.
func (m *models) body(name string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, t := range m.tasks {
		if t.Name == name {
			var b struct{ Messages []struct{ Content string } }
			json.Unmarshal(t.Body, &b)
			var all []string
			for _, msg := range b.Messages {
				all = append(all, msg.Content)
			}
			return strings.Join(all, "\n---\n")
		}
	}
	return ""
}

// heard is what a caller got.
type heard struct {
	pieces   []string
	progress []pipeline.Progress
	res      pipeline.Result
	err      error
	took     time.Duration
}

func (h *heard) text() string { return strings.Join(h.pieces, "") }

const question = `{"model":"auto","messages":[{"role":"user","content":"Compare three ways to store energy and recommend one."}]}`

// settings are the defaults, switched on.
func settings(change ...func(*pipeline.Settings)) pipeline.Settings {
	s := pipeline.Default()
	s.Enabled, s.MaxRewriteIterations = true, 0
	for _, c := range change {
		c(&s)
	}
	return s
}

func rewrites(n int) func(*pipeline.Settings) {
	return func(s *pipeline.Settings) { s.MaxRewriteIterations = n }
}

// run has the models answer the question through the stages.
func run(t *testing.T, m *models, s pipeline.Settings, req pipeline.Request) *heard {
	t.Helper()
	p, err := pipeline.New(s)
	if err != nil {
		t.Fatal(err)
	}
	return runWith(t.Context(), p, m, req)
}

func runWith(ctx context.Context, p *pipeline.Pipeline, m *models, req pipeline.Request) *heard {
	if req.Body == nil {
		req.Body = []byte(question)
	}
	if req.Budget == 0 {
		req.Budget = 10 * time.Minute
	}
	h := &heard{}
	began := time.Now()
	out := pipeline.Output{
		Text:     func(piece string) error { h.pieces = append(h.pieces, piece); return nil },
		Progress: func(p pipeline.Progress) { h.progress = append(h.progress, p) },
	}
	h.res, h.err = p.Run(ctx, m, req, pipeline.Decision{Class: "complex", Staged: true}, out)
	h.took = time.Since(began)
	return h
}

// plan is a supervisor's plan of parts, each "id tier needs…".
func plan(synthesis string, parts ...string) string {
	var list []map[string]any
	for _, p := range parts {
		f := strings.Fields(p)
		list = append(list, map[string]any{"id": f[0], "type": "research", "prompt": "do " + f[0], "tier": int(f[1][0] - '0'), "depends_on": f[2:]})
	}
	b, _ := json.Marshal(map[string]any{"subtasks": list, "synthesis": synthesis})
	return string(b)
}

const (
	role    = string(job.Decompose)
	synth   = string(job.Synthesise)
	scoring = string(job.Score)
	rewrite = string(job.Rewrite)
)
