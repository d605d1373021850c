package daemon_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon"
	"github.com/chordwheel/chordwheel/daemon/adapter"
	"github.com/chordwheel/chordwheel/daemon/apps"
	"github.com/chordwheel/chordwheel/daemon/edge"
	"github.com/chordwheel/chordwheel/daemon/gate"
	"github.com/chordwheel/chordwheel/daemon/job"
	"github.com/chordwheel/chordwheel/daemon/pipeline"
	"github.com/chordwheel/chordwheel/daemon/snapshot"
	"github.com/chordwheel/chordwheel/mesh/wire"
	"github.com/chordwheel/chordwheel/store/spool"
)

// A question that the classifier finds complex, and one that it finds simple.
const (
	hard = `Compare three database engines for a small web shop. First, list their licences. Second, weigh their cost and their operational risk against each other. Third, design a migration plan with a rollback for each step, and finally recommend one and justify the trade-offs in detail.`
	easy = `What is the capital of France?`
)

// models plays every model of a device: what they say is told by the test for each
// kind of job, which is known by the words of its request.
type models struct {
	mu    sync.Mutex
	calls []adapter.Call
	down  map[chain.OptionID]bool
	slow  map[chain.OptionID]time.Duration
	plan  string
	score string
	mute  bool                   // all that is said is blank
	left  map[chain.OptionID]int // calls that were cancelled
	short chain.OptionID         // whose answers end at a limit of length
	long  bool                   // parts of the work are longer than what is kept of one
}

const planOfTwo = "Here you are:\n```json\n" + `{"subtasks":[{"id":"a","type":"research","prompt":"licences","tier":1,"depends_on":[]},{"id":"b","type":"analysis","prompt":"risk","tier":2,"depends_on":["a"]}],"synthesis":"supervisor"}` + "\n```"

func (m *models) Run(ctx context.Context, c adapter.Call, emit func(walk.Chunk) error) walk.Outcome {
	m.mu.Lock()
	m.calls = append(m.calls, c)
	id := c.Attempt.Option.ID
	down, slow, n := m.down[id], m.slow[id], len(m.calls)
	m.mu.Unlock()
	if down {
		return walk.Outcome{Class: chain.Status, Status: 503}
	}
	select {
	case <-time.After(100*time.Millisecond + slow):
	case <-ctx.Done():
		m.mu.Lock()
		defer m.mu.Unlock()
		m.left[id]++
		return walk.Outcome{Class: chain.Canceled}
	}
	text := fmt.Sprintf("words of %s, call %d", id, n)
	body := string(c.Request.Body)
	switch {
	case strings.Contains(body, "depends_on"):
		text = m.plan
	case strings.Contains(body, "issues"):
		text = m.score
	}
	if m.mute {
		text = " \n"
	}
	if m.long && strings.Contains(body, "Your part of this work") {
		text = strings.Repeat("x", 5<<20)
	}
	finish := "stop"
	if id == m.short {
		finish = "length"
	}
	said, _ := json.Marshal(text)
	data := fmt.Sprintf(`{"id":"x","object":"chat.completion","created":1,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":%s},"finish_reason":%q}]}`, said, finish)
	if c.Request.Stream {
		data = fmt.Sprintf(`{"id":"x","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{"role":"assistant","content":%s},"finish_reason":%q}]}`, said, finish)
	}
	if err := emit(walk.Chunk{Data: []byte(data), Meaningful: true}); err != nil {
		return walk.Outcome{Class: chain.Canceled}
	}
	return walk.Outcome{Class: chain.OK, Input: 100, Output: 50}
}

// stage is a device with the pipeline on, and a chain for each tier.
type stage struct {
	*bench
	models *models
}

func newStage(t *testing.T, change func(*pipeline.Settings), more ...func(*daemon.Config)) *stage {
	m := &models{left: map[chain.OptionID]int{}, down: map[chain.OptionID]bool{}, slow: map[chain.OptionID]time.Duration{}, plan: planOfTwo, score: `{"score": 0.9, "issues": []}`}
	settings := pipeline.Default()
	settings.Enabled = true
	if change != nil {
		change(&settings)
	}
	memory := newMemory()
	b := assemble(t, m, func(c *daemon.Config) {
		c.Chains, c.Marks, c.State, c.Pipeline = chains{memory}, marks{memory}, memory, settings
		c.Locals = []wire.LocalOption{}
		for _, f := range more {
			f(c)
		}
	})
	b.memory = memory
	b.hub.serve("alpha/small q=.3 in=.1 out=.4 domain=alpha | beta/small q=.3 domain=beta")
	if err := b.Join(t.Context(), b.invitation()); err != nil {
		t.Fatal(err)
	}
	s := &stage{b, m}
	for tier, options := range map[chain.Primitive]string{"llm.t1": "alpha/small q=.3 in=.1 out=.4 domain=alpha | beta/small q=.3 domain=beta", "llm.t2": "alpha/mid q=.5 domain=alpha | beta/mid q=.5 domain=beta", "llm.t3": "gamma/large q=.9 in=1 out=4 domain=gamma"} {
		s.serveFor(tier, options)
	}
	synctest.Wait()
	return s
}

// serveFor puts a chain for another primitive in force.
func (s *stage) serveFor(p chain.Primitive, options string) {
	h, now := s.hub.policy.For(chain.DefaultScope, p), time.Now()
	body := h.Body(s.t, options)
	if _, err := s.memory.Accept(h.Trust, chain.Slot{Scope: chain.DefaultScope, Primitive: p}, h.Head(s.t, body, now), body, now); err != nil {
		s.t.Fatal(err)
	}
}

// chat asks for an answer and gives its text and usage.
func (s *stage) chat(w *edge.Work, question string) (events []string, result walk.Result, err error) {
	q, _ := json.Marshal(question)
	w.ID, w.Primitive, w.Model = "r", chain.LLMChat, edge.Auto
	w.Ask = q
	w.Body = fmt.Appendf(nil, `{"model":"auto","stream":%v,"messages":[{"role":"user","content":%s}]}`, w.Stream, q)
	result, err = s.Do(s.t.Context(), w, func(_ walk.Attempt, data [][]byte) error {
		for _, d := range data {
			events = append(events, string(d))
		}
		return nil
	})
	return events, result, err
}

func (s *stage) tree(w *edge.Work) []job.Record { return s.Jobs().Tree(w.Job) }

func TestAHardQuestionGoesThroughTheStages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		w := &edge.Work{}
		events, result, err := s.chat(w, hard)
		if err != nil || result.End != walk.Answered || len(events) != 1 {
			t.Fatalf("%v %+v %q", err, result, events)
		}
		if !strings.HasPrefix(w.Complexity, "complex: ") {
			t.Errorf("complexity %q", w.Complexity)
		}
		var answer struct {
			Object, Model string
			Choices       []struct {
				Message struct{ Role, Content string }
				Finish  string `json:"finish_reason"`
			}
			Usage struct {
				Total int64 `json:"total_tokens"`
			}
		}
		if err := json.Unmarshal([]byte(events[0]), &answer); err != nil {
			t.Fatal(err)
		}
		if answer.Object != "chat.completion" || answer.Model != "auto" || len(answer.Choices) != 1 || answer.Choices[0].Message.Role != "assistant" || answer.Choices[0].Message.Content == "" || answer.Choices[0].Finish != "stop" {
			t.Errorf("%s", events[0])
		}
		tree := s.tree(w)
		var roles []string
		for _, r := range tree {
			roles = append(roles, string(r.Role))
			if r.State != job.Done || r.Attempts == 0 || r.ResponseHash == "" {
				t.Errorf("%+v", r)
			}
		}
		if got, want := strings.Join(roles, " "), "root decompose subtask subtask synthesise score"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		if root := tree[0]; root.Cost == 0 || root.Input != 500 || root.Output != 250 || root.AtLeast || root.Score == nil || *root.Score != 0.9 || answer.Usage.Total != 750 {
			t.Errorf("%+v, usage %d", root, answer.Usage.Total)
		}
	})
}

func TestAnEasyQuestionIsOneWalk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		w := &edge.Work{}
		_, result, err := s.chat(w, easy)
		if err != nil || result.End != walk.Answered || result.Option != "alpha/small" || len(s.models.calls) != 1 {
			t.Fatalf("%v %+v, %d calls", err, result, len(s.models.calls))
		}
		if !strings.HasPrefix(w.Complexity, "simple") || w.Job != "" || len(s.Jobs().Roots(0)) != 0 {
			t.Errorf("%q, job %q, %d jobs", w.Complexity, w.Job, len(s.Jobs().Roots(0)))
		}
	})
}

// streamed asks for a stream and gives the answer's words, what was thought aloud,
// how it finished and its usage.
func (s *stage) streamed(w *edge.Work, question string) (said, thought, finish string, total int64, result walk.Result, err error) {
	w.Stream = true
	events, result, err := s.chat(w, question)
	for _, e := range events {
		var c struct {
			Object, Model string
			Choices       []struct {
				Delta struct {
					Content   string
					Reasoning string `json:"reasoning_content"`
				}
				Finish string `json:"finish_reason"`
			}
			Usage struct {
				Total int64 `json:"total_tokens"`
			}
		}
		if err := json.Unmarshal([]byte(e), &c); err != nil || c.Object != "chat.completion.chunk" || c.Model != "auto" {
			s.t.Errorf("%v: %s", err, e)
		}
		for _, choice := range c.Choices {
			said, thought, finish = said+choice.Delta.Content, thought+choice.Delta.Reasoning, finish+choice.Finish
		}
		total += c.Usage.Total
	}
	return said, thought, finish, total, result, err
}

func TestAStreamTellsOfTheWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		var comments []string
		w := &edge.Work{Comment: func(line string) { comments = append(comments, line) }}
		said, thought, finish, total, _, err := s.streamed(w, hard)
		if err != nil || said == "" || thought != "" || finish != "stop" || total != 0 {
			t.Errorf("%v %q %q %q %d", err, said, thought, finish, total)
		}
		if all := strings.Join(comments, "\n"); !strings.Contains(all, "part 2 done, 2 of 2 parts ended") || !strings.Contains(all, "the answer scores 0.90") {
			t.Errorf("%s", all)
		}
		if _, thought, _, total, _, _ = s.streamed(&edge.Work{Reasoning: true, Usage: true}, hard); !strings.Contains(thought, "synthesise done") || total != 750 {
			t.Errorf("%q %d", thought, total)
		}
	})
}

// The status of an answer is not fixed by a comment before it is certain.
func TestNoModelAtAllIsSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		for _, id := range []chain.OptionID{"alpha/small", "beta/small", "alpha/mid", "beta/mid", "gamma/large"} {
			s.models.down[id] = true
		}
		s.noModelIsSaid(t)
	})
	synctest.Test(t, func(t *testing.T) { // as good as none
		s := newStage(t, nil)
		s.models.mute = true
		s.noModelIsSaid(t)
	})
}

func (s *stage) noModelIsSaid(t *testing.T) {
	w := &edge.Work{Stream: true, Comment: func(line string) { t.Errorf("a comment: %s", line) }}
	events, result, err := s.chat(w, hard)
	if err != nil || len(events) > 0 || result.End != walk.NothingToTry {
		t.Errorf("%v %q %+v", err, events, result)
	}
	if root := s.tree(w)[0]; root.State != job.Failed || root.Reason != "no_models" {
		t.Errorf("%+v", root)
	}
}

// A caller who does not wait for an extension comes back for it.
func TestHardQuestionsDoNotWaitForAnExtensionEither(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		for _, id := range []chain.OptionID{"alpha/small", "beta/small", "alpha/mid", "beta/mid", "gamma/large"} {
			s.models.down[id] = true
		}
		w := &edge.Work{Async: true}
		events, result, err := s.chat(w, hard)
		if err != nil || len(events) > 0 || result.End != walk.Escalating || result.RetryAfter <= 0 {
			t.Errorf("%v %q %+v", err, events, result)
		}
		if root := s.tree(w)[0]; root.State != job.Failed || root.Reason != "no_models" {
			t.Errorf("%+v", root)
		}
	})
}

func TestAnAnswerThatIsTooLongFailsItsPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		s.models.long = true
		w := &edge.Work{}
		if events, result, err := s.chat(w, hard); err != nil || result.End != walk.Answered || len(events) != 1 {
			t.Errorf("%v %+v %d", err, result, len(events))
		}
		for _, r := range s.tree(w) {
			if r.Role == job.Subtask && (r.State != job.Failed || r.Reason != string(chain.BadAnswer)) {
				t.Errorf("%s %s: %s", r.Task, r.State, r.Reason)
			}
		}
	})
}

func TestOneModelIsEnough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, alone := range []chain.OptionID{"alpha/small", "beta/mid", "gamma/large"} {
			s := newStage(t, nil)
			for _, id := range []chain.OptionID{"alpha/small", "beta/small", "alpha/mid", "beta/mid", "gamma/large"} {
				s.models.down[id] = id != alone
			}
			w := &edge.Work{}
			events, result, err := s.chat(w, hard)
			if err != nil || result.End != walk.Answered || len(events) != 1 || !strings.Contains(events[0], string(alone)) {
				t.Errorf("%s: %v %+v %q", alone, err, result, events)
			}
		}
	})
}

func TestWhoLeavesEndsEveryJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		for _, id := range []chain.OptionID{"alpha/small", "beta/small", "alpha/mid", "beta/mid"} {
			s.models.slow[id] = time.Hour
		}
		s.models.plan = strings.ReplaceAll(planOfTwo, `["a"]`, `[]`) // both at once
		ctx, leave := context.WithCancel(t.Context())
		w := &edge.Work{ID: "r", Primitive: chain.LLMChat, Model: edge.Auto}
		q, _ := json.Marshal(hard)
		w.Body = fmt.Appendf(nil, `{"model":"auto","messages":[{"role":"user","content":%s}]}`, q)
		done := make(chan walk.Result)
		go func() {
			r, _ := s.Do(ctx, w, func(walk.Attempt, [][]byte) error { return nil })
			done <- r
		}()
		time.Sleep(10 * time.Second)
		leave()
		left := time.Now()
		if r := <-done; r.End != walk.Left || time.Since(left) > time.Second {
			t.Errorf("%+v after %s", r, time.Since(left))
		}
		for _, r := range s.tree(w) {
			if r.Role != job.Decompose && r.State != job.Cancelled {
				t.Errorf("%s %s: %s", r.Role, r.Task, r.State)
			}
		}
	})
}

func TestTheReceiptsOfAPipeline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := &shelf{}
		s := newStage(t, nil, withShelf(kept))
		w := &edge.Work{}
		if _, _, err := s.chat(w, hard); err != nil {
			t.Fatal(err)
		}
		tree, receipts := s.tree(w), kept.take(t)
		if len(receipts) != len(tree) {
			t.Fatalf("%d receipts of %d jobs", len(receipts), len(tree))
		}
		ids := map[string]receipt.Signed{}
		for _, q := range receipts {
			ids[q.MessageID] = q
		}
		for _, r := range tree {
			role := receipt.RoleJob(r.ID)
			if r.Root == r.ID {
				role = receipt.RoleRoot
			}
			q, ok := ids[receipt.MessageID(r.Transaction, role)]
			if !ok || q.TransactionID != tree[0].Transaction || q.RequestHash != r.RequestHash || q.ResponseHash != r.ResponseHash || q.Status != receipt.OK || q.Capability != string(r.Primitive) {
				t.Errorf("%s: %+v of %+v", role, q.Receipt, r)
			}
		}
	})
}

// Sub-jobs count against the application, the request counts once.
func TestAnApplicationPaysForItsJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		app := s.known(apps.Rule{Name: "notes", Budget: 1_000_000})
		w := &edge.Work{App: app}
		if _, _, err := s.chat(w, hard); err != nil {
			t.Fatal(err)
		}
		var requests, money, input int64
		for _, row := range s.Usage(time.Now()) {
			requests, money, input = requests+row.Requests, money+row.Money, input+row.Input
		}
		if root := s.tree(w)[0]; requests != 1 || money != int64(root.Cost) || input != root.Input {
			t.Errorf("%d requests, %d µ$, %d tokens: %+v", requests, money, input, root)
		}
	})
}

// drawer keeps records in memory.
type drawer struct {
	mu   sync.Mutex
	kept map[string][]byte
}

func (d *drawer) PutAll(records map[string]any) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for k, v := range records {
		d.kept[k] = v.([]byte)
	}
	return nil
}

func (d *drawer) Delete(keys ...string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, k := range keys {
		delete(d.kept, k)
	}
	return nil
}

func (d *drawer) Each(f func(string, func(any) error) error) error {
	for k, b := range d.kept {
		if err := f(k, func(v any) error { *v.(*[]byte) = b; return nil }); err != nil {
			return err
		}
	}
	return nil
}

func TestARestartFailsWhatWasUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &drawer{kept: map[string][]byte{}}
		table := job.NewTable(disk)
		ctx, stop := context.WithCancel(t.Context())
		root, _ := table.Open(job.Record{RequestID: "r", Transaction: "T1", Role: job.Root, Primitive: chain.LLMChat, RequestHash: receipt.OutputHash([]byte("q"))})
		part, _ := table.Open(job.Record{Root: root, RequestID: "r", Transaction: "T1", Role: job.Subtask, Primitive: "llm.t1", RequestHash: receipt.OutputHash([]byte("p"))})
		go table.Run(ctx)
		time.Sleep(2 * time.Second)
		stop()
		synctest.Wait()

		kept := &shelf{}
		s := newStage(t, nil, withShelf(kept), func(c *daemon.Config) { c.Jobs = disk })
		for _, r := range s.Jobs().Tree(root) {
			if r.State != job.Failed || r.Reason != job.Restart {
				t.Errorf("%+v", r)
			}
		}
		var roles []string
		for _, q := range kept.take(t) {
			if q.Status != receipt.UpstreamError || q.TransactionID != "T1" {
				t.Errorf("%+v", q.Receipt)
			}
			roles = append(roles, q.MessageID)
		}
		want := []string{receipt.MessageID("T1", receipt.RoleRoot), receipt.MessageID("T1", receipt.RoleJob(part))}
		slices.Sort(want)
		if slices.Sort(roles); !slices.Equal(roles, want) {
			t.Errorf("%v, want %v", roles, want)
		}
	})
}

// What has its receipt after a restart is not counted as lost besides; what has no
// record is.
func TestWhatTheRestartHasAReceiptOfIsNotLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk, dir := &drawer{kept: map[string][]byte{}}, t.TempDir()
		open := func() *spool.Spool {
			s, err := spool.Open(spool.Config{Dir: dir, Label: daemon.LabelReceipt, Recall: daemon.RecallReceipt})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return s
		}
		table := job.NewTable(disk)
		ctx, stop := context.WithCancel(t.Context())
		go table.Run(ctx)
		root, _ := table.Open(job.Record{RequestID: "r", Transaction: "T1", Role: job.Root, Primitive: chain.LLMChat, RequestHash: receipt.OutputHash([]byte("q"))})
		part, _ := table.Open(job.Record{Root: root, RequestID: "r", Transaction: "T1", Role: job.Subtask, Primitive: "llm.t1", RequestHash: receipt.OutputHash([]byte("p"))})
		before := open()
		for _, q := range []receipt.Receipt{
			{TransactionID: "T1", MessageID: receipt.MessageID("T1", receipt.RoleRoot)},
			{TransactionID: "T1", MessageID: receipt.MessageID("T1", receipt.RoleJob(part))},
			{TransactionID: "T2", MessageID: receipt.MessageID("T2", receipt.RoleRoot)}, // an easy one
		} {
			if err := before.Begin(q.ID()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second)
		_ = before.Close() // as a crash leaves it
		stop()
		synctest.Wait()

		after := open()
		if n := after.Status().Lost; n != 3 {
			t.Fatalf("%d were open", n)
		}
		s := newStage(t, nil, func(c *daemon.Config) { c.Jobs, c.Spool = disk, after })
		synctest.Wait()
		if r := s.Status().Receipts; r.Lost != 1 || r.Waiting != 2 {
			t.Errorf("%d lost, %d receipts; want 1 and 2", r.Lost, r.Waiting)
		}
	})
}

// Where the gate lets no job of a request through, the caller is told why; where it
// says the same of all of them, the request's line in the log says it too.
func TestTheGateOnTheWayOfAPipeline(t *testing.T) {
	const a, b = "did:web:a.example", "did:web:b.example"
	for name, c := range map[string]struct {
		mode gate.Mode
		set  func(*bureau)
		code edge.Code
		word string
		jobs bool // somebody was asked
	}{
		"all may":                    {gate.Enforce, nil, "", "allow", true},
		"none may":                   {gate.Enforce, func(o *bureau) { o.refuse[a], o.refuse[b] = "x", "x" }, edge.TokenMissing, "deny", false},
		"none may, as the mint says": {gate.Enforce, func(o *bureau) { o.refuse[a], o.refuse[b] = "agent_suspended", "agent_suspended" }, edge.AgentSuspended, "deny", false},
		"none may, and all do":       {gate.Observe, func(o *bureau) { o.refuse[a], o.refuse[b] = "x", "x" }, "", "deny", true},
		"the best may not":           {gate.Enforce, func(o *bureau) { o.refuse[b] = "x" }, "", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o, kept := newBureau(t), &shelf{}
				t.Cleanup(o.ends)
				var listed []snapshot.Agent
				for _, p := range []string{"llm.chat", "llm.t1", "llm.t2", "llm.t3"} {
					listed = append(listed, snapshot.Agent{DID: a, Capability: p, Status: "active"}, snapshot.Agent{DID: b, Capability: p, Status: "active"})
				}
				o.agents = listed
				s := newStage(t, nil, withShelf(kept), o.gated(c.mode, true))
				time.Sleep(time.Second) // newer chains
				for p, options := range map[chain.Primitive]string{"llm.chat": "alpha/small agent=" + a, "llm.t1": "alpha/small agent=" + a, "llm.t2": "alpha/mid agent=" + a, "llm.t3": "gamma/large agent=" + b} {
					s.serveFor(p, options)
				}
				if err := s.Refresh(t.Context()); err != nil {
					t.Fatal(err)
				}
				if c.set != nil {
					o.set(c.set)
				}
				w := &edge.Work{}
				_, result, err := s.chat(w, hard)
				if codeOf(err) != c.code || (result.End == walk.Answered) != (c.code == "") {
					t.Errorf("%v %+v, want code %q", err, result, c.code)
				}
				if w.Gate != c.word || (len(s.models.calls) > 0) != c.jobs {
					t.Errorf("the log says %q, want %q; %d calls", w.Gate, c.word, len(s.models.calls))
				}
				if c.code == "" {
					return
				}
				for _, q := range kept.take(t) {
					if q.Status != receipt.Rejected {
						t.Errorf("%+v", q.Receipt)
					}
				}
				if root := s.tree(w)[0]; root.State != job.Failed || root.Reason != string(receipt.Rejected) {
					t.Errorf("%+v", root)
				}
			})
		})
	}
}

// How fast jobs were is kept now and then and at the end, without a word of them, and
// holds after a restart for as long as the window does.
func TestSpeedsSurviveARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &drawer{kept: map[string][]byte{}}
		s := newStage(t, nil, func(c *daemon.Config) { c.Speeds = disk })
		if _, _, err := s.chat(&edge.Work{}, hard); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Minute)
		disk.mu.Lock()
		kept := string(disk.kept["counts"])
		disk.mu.Unlock()
		if !strings.Contains(kept, `"gamma/large"`) || strings.Contains(kept, "words") || strings.Contains(kept, "database") {
			t.Errorf("kept: %s", kept)
		}
		clear(disk.kept)
		if _, _, err := s.chat(&edge.Work{}, hard); err != nil {
			t.Fatal(err)
		}
		_ = s.Close()
		last := string(disk.kept["counts"])
		if last == "" || last == kept {
			t.Error("nothing was kept at the end")
		}
		again := newStage(t, nil, func(c *daemon.Config) { c.Speeds = disk })
		clear(disk.kept)
		_ = again.Close()
		if disk.kept["counts"] == nil || string(disk.kept["counts"]) != last {
			t.Errorf("after a restart %s, want %s", disk.kept["counts"], last)
		}
		time.Sleep(27 * time.Hour)
		old := newStage(t, nil, func(c *daemon.Config) { c.Speeds = disk })
		_ = old.Close()
		if got := string(disk.kept["counts"]); got != "[]" {
			t.Errorf("after the window %s", got)
		}
		disk.kept["counts"] = []byte("{")
		_ = newStage(t, nil, func(c *daemon.Config) { c.Speeds = disk }).Close()
	})
}

// Whose words the answer is, that one's limit is the answer's.
func TestAnAnswerThatStoppedAtALimitSaysSo(t *testing.T) {
	for name, c := range map[string]struct {
		short    chain.OptionID
		rewrites int
		want     string
	}{
		"whoever wrote it, in one piece": {"gamma/large", 3, "length"},
		"whoever wrote it, as it went":   {"gamma/large", 0, "length"},
		"whoever did a part":             {"alpha/mid", 3, "stop"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, func(s *pipeline.Settings) { s.MaxRewriteIterations = c.rewrites })
				s.models.short = c.short
				said, _, finish, _, _, err := s.streamed(&edge.Work{}, hard)
				if err != nil || said == "" || finish != c.want {
					t.Errorf("%v %q ends %q, want %q", err, said, finish, c.want)
				}
				events, _, err := s.chat(&edge.Work{}, hard)
				if err != nil || len(events) != 1 || !strings.Contains(events[0], fmt.Sprintf(`"finish_reason":%q`, c.want)) {
					t.Errorf("%v %q", err, events)
				}
			})
		})
	}
}

// In a race the first answer wins and the others end where they run; what those may have
// spent makes the request's total one of "at least".
func TestARace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, func(s *pipeline.Settings) { s.Waves.Race, s.Waves.Replicas, s.Waves.RaceTiers = true, 2, []int{1} })
		s.models.slow["alpha/small"] = time.Minute
		w, began := &edge.Work{}, time.Now()
		events, result, err := s.chat(w, hard)
		if err != nil || result.End != walk.Answered || len(events) != 1 || time.Since(began) > 10*time.Second {
			t.Fatalf("%v %+v after %s", err, result, time.Since(began))
		}
		if s.models.left["alpha/small"] != 1 || len(s.models.left) != 1 {
			t.Errorf("cancelled: %v", s.models.left)
		}
		var first, other *job.Record
		tree := s.tree(w)
		for i, r := range tree {
			switch {
			case r.Task != "s1":
				if r.Hedge != "" || r.CopyOf != "" {
					t.Errorf("%s %s raced", r.Role, r.Task)
				}
			case r.CopyOf == "":
				first = &tree[i]
			default:
				other = &tree[i]
			}
		}
		if first == nil || other == nil || other.CopyOf != first.ID || other.Rung != 0 {
			t.Fatalf("%+v %+v", first, other)
		}
		winner, loser := first, other
		if winner.Option != "beta/small" {
			winner, loser = other, first
		}
		if winner.State != job.Done || winner.Hedge != job.Winner || winner.Output != 50 || winner.AtLeast {
			t.Errorf("the winner: %+v", winner)
		}
		if loser.Option != "alpha/small" || loser.State != job.Superseded || loser.Hedge != job.Loser || loser.Reason != "" || !loser.AtLeast {
			t.Errorf("the loser: %+v", loser)
		}
		if root := tree[0]; !root.AtLeast || root.Input != 500 || root.Output != 250 || root.Attempts != 6 || len(root.Notes) != 0 {
			t.Errorf("%+v", root)
		}
		if p := s.Status().Pipeline; p.Superseded != 1 || p.Failed != 0 || p.Stuck != 0 {
			t.Errorf("%+v", p)
		}
	})
}

// A tier may be a provider over HTTP: the part is done there, in a job of its own below
// the part's, and counts once.
func TestAProviderDoesAPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, nil)
		time.Sleep(time.Second) // a newer chain
		s.serveFor("llm.t1", "peer q=.3 | beta/small q=.3 domain=beta")
		w := s.hire(tells(`{"choices":[{"message":{"content":"said over HTTP"},"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":3}}`), "execute:llm.t1")
		work := &edge.Work{}
		_, result, err := s.chat(work, hard)
		if err != nil || result.End != walk.Answered || w.asked() != 1 || w.jobs[0].Primitive != "llm.t1" {
			t.Fatalf("%v %+v, asked %d times", err, result, w.asked())
		}
		var part, done job.Record
		tree := s.tree(work)
		for _, r := range tree {
			switch {
			case r.Task == "s1":
				part = r
			case r.Role == job.Provided:
				done = r
			}
		}
		if part.State != job.Done || part.Option != "peer" || part.Peer != job.Peer || part.Input != 7 || part.Output != 3 {
			t.Errorf("the part: %+v", part)
		}
		if done.State != job.Done || done.Provider != w.id || done.Root != tree[0].ID {
			t.Errorf("what the provider did: %+v", done)
		}
		if root := tree[0]; root.Input != 407 || root.Output != 203 {
			t.Errorf("%+v", root)
		}
		heard := 0
		for _, c := range s.models.calls {
			if strings.Contains(string(c.Request.Body), "said over HTTP") {
				heard++
			}
		}
		if heard != 2 { // the part that builds on it, and the synthesis
			t.Errorf("%d others heard of it", heard)
		}
	})
}
