package job

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/member"
)

var home = Grant{Scope: chain.DefaultScope, Patterns: []member.Pattern{member.Everything}}

func keywords() *Work {
	return &Work{RequestID: "r", Option: "peer", Scope: chain.DefaultScope, Primitive: "text.keywords", Body: []byte(`{"input":"a"}`)}
}

// join registers a provider that can run primitives.
func join(t testing.TB, b *Board, primitives ...chain.Primitive) (id string, key chain.Secret) {
	t.Helper()
	r := Registration{Class: Browser}
	for _, p := range primitives {
		r.Capabilities = append(r.Capabilities, chain.ExecuteCapability(p))
	}
	id, key, err := b.Register(home, r)
	if err != nil {
		t.Fatal(err)
	}
	return id, key
}

// call is one call of Run in a bubble.
type call struct {
	cancel   context.CancelFunc
	answer   Answer
	err      error
	over     bool
	accepted []string
	parts    []string
	mu       sync.Mutex
}

func begin(b *Board, w *Work) *call {
	ctx, cancel := context.WithCancel(context.Background())
	c := &call{cancel: cancel}
	go func() {
		defer cancel()
		answer, err := b.Run(ctx, w, func(p string) { c.accepted = append(c.accepted, p) }, func(text string) error { c.parts = append(c.parts, text); return nil })
		c.mu.Lock()
		defer c.mu.Unlock()
		c.answer, c.err, c.over = answer, err, true
	}()
	synctest.Wait()
	return c
}

func (c *call) ended() bool {
	synctest.Wait()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

func claim(t testing.TB, b *Board, id string) string {
	t.Helper()
	leases, err := b.Claim(context.Background(), id, 1, 0)
	if err != nil || len(leases) > 1 {
		t.Fatal(leases, err)
	}
	if len(leases) == 0 {
		return ""
	}
	return leases[0].Job
}

var done = Result{State: Done, Output: []byte(`["a"]`)}

// TestAJobIsDone: a provider is told, takes it, and its answer is the job's.
func TestAJobIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBoard(NewTable(nil), nil)
		id, _ := join(t, b, "text.keywords")
		other, _ := join(t, b, "text.other")
		stream, err := b.Watch(id)
		must(t, err)
		c := begin(b, keywords())
		n := <-stream.Notices()
		stream.Close()
		if claim(t, b, other) != "" {
			t.Error("somebody took what they cannot do")
		}
		leases, err := b.Claim(t.Context(), id, 4, time.Minute)
		must(t, err)
		if len(leases) != 1 || leases[0].Job != n.Job || n.Kind != Offered || string(leases[0].Request) != `{"input":"a"}` {
			t.Fatalf("notice %+v, leases %+v", n, leases)
		}
		must(t, b.Result(id, n.Job, done))
		if !c.ended() || c.err != nil || string(c.answer.Output) != `["a"]` || c.answer.Provider != id || len(c.accepted) != 1 {
			t.Fatalf("%+v", c)
		}
		if r, _ := b.table.Get(n.Job); r.State != Done || r.Provider != id || r.ResponseHash == "" || r.Role != Provided {
			t.Errorf("%+v", r)
		}
	})
}

// TestWaitingForWork: a provider may wait for its next job.
func TestWaitingForWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBoard(NewTable(nil), nil)
		id, _ := join(t, b, "text.keywords")
		began := time.Now()
		if none, err := b.Claim(t.Context(), id, 1, time.Hour); err != nil || len(none) > 0 || time.Since(began) != LongestWait {
			t.Errorf("%v, %v after %v", none, err, time.Since(began))
		}
		var leases []Lease
		go func() { leases, _ = b.Claim(t.Context(), id, 1, time.Hour) }()
		synctest.Wait()
		c := begin(b, keywords())
		synctest.Wait()
		if len(leases) != 1 {
			t.Fatal("it still waits")
		}
		c.cancel()
		if !c.ended() || !errors.Is(c.err, context.Canceled) {
			t.Errorf("%+v", c.err)
		}
		if err := b.Result(id, leases[0].Job, done); !errors.Is(err, ErrOver) {
			t.Errorf("a result that nobody wants: %v", err)
		}
	})
}

// TestALostLease: whoever falls silent loses the job to the next provider, and what
// it says late does not count. Heartbeats keep it.
func TestALostLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBoard(NewTable(nil), nil)
		first, _ := join(t, b, "text.keywords")
		second, _ := join(t, b, "text.keywords")
		watch, err := b.Watch(second)
		must(t, err)
		defer watch.Close()
		c := begin(b, keywords())
		<-watch.Notices()
		job := claim(t, b, first)
		for range 5 {
			time.Sleep(LeaseTime - time.Second)
			_, err := b.Heartbeat(first, job)
			must(t, err)
		}
		if claim(t, b, second) != "" {
			t.Error("two have one job")
		}
		if _, err := b.Heartbeat(second, job); !errors.Is(err, ErrNotYours) {
			t.Errorf("a heartbeat of somebody else: %v", err)
		}
		time.Sleep(LeaseTime)
		synctest.Wait()
		if n := <-watch.Notices(); n.Job != job || n.Kind != Offered {
			t.Errorf("%+v", n)
		}
		if err := b.Result(first, job, done); !errors.Is(err, ErrOver) {
			t.Errorf("a result after the lease: %v", err)
		}
		if claim(t, b, second) != job {
			t.Fatal("the next provider does not get it")
		}
		if err := b.Result(first, job, done); !errors.Is(err, ErrOver) {
			t.Errorf("a result while another runs it: %v", err)
		}
		must(t, b.Result(second, job, done))
		if !c.ended() || c.err != nil || c.answer.Provider != second || len(c.accepted) != 2 {
			t.Errorf("%+v", c)
		}
		if n := b.Counts(); n.Lost != 1 || n.Over != 2 || n.NotYours != 1 {
			t.Errorf("%+v", n)
		}
	})
}

// TestResultsThatDoNotCount: by whom, for what and how often.
func TestResultsThatDoNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBoard(NewTable(nil), nil)
		id, _ := join(t, b, "text.keywords")
		other, _ := join(t, b, "text.keywords")
		c := begin(b, keywords())
		job := claim(t, b, id)
		for _, test := range []struct {
			name string
			by   string
			job  string
			r    Result
			want error
		}{
			{"of an unknown job", id, "x", done, ErrUnknown},
			{"of somebody else", other, job, done, ErrNotYours},
			{"no state", id, job, Result{}, ErrInvalid},
			{"no JSON", id, job, Result{State: Done, Output: []byte(`{`)}, ErrInvalid},
			{"null", id, job, Result{State: Done, Output: []byte(` null`)}, ErrInvalid},
			{"nothing", id, job, Result{State: Done}, ErrInvalid},
			{"too large", id, job, Result{State: Done, Output: []byte(`"` + strings.Repeat("x", MaxResult) + `"`)}, ErrInvalid},
			{"the one that counts", id, job, done, nil},
			{"the same once more", id, job, done, nil},
			{"another", id, job, Result{State: Done, Output: []byte(`["b"]`)}, ErrDifferent},
			{"a failure after it", id, job, Result{State: Failed}, ErrDifferent},
			{"a part after it", id, job, Result{State: Running, Text: "x"}, ErrOver},
			{"of somebody else, late", other, job, done, ErrNotYours},
		} {
			if err := b.Result(test.by, test.job, test.r); !errors.Is(err, test.want) {
				t.Errorf("%s: %v, want %v", test.name, err, test.want)
			}
			if test.want == nil && !c.ended() { // picked up: what follows is remembered
				t.Fatal("it goes on")
			}
		}
		if n := b.Counts(); n.Repeated != 1 || n.Different != 2 || n.Over != 1 || n.NotYours != 2 || n.Unknown != 1 {
			t.Errorf("%+v", n)
		}
	})
}

// TestNotAccepted: how long a job waits depends on how many could take it.
func TestNotAccepted(t *testing.T) {
	for _, test := range []struct {
		providers int
		want      time.Duration
	}{{0, 0}, {1, 10 * time.Minute}, {2, 3 * time.Minute}, {3, 3 * time.Minute}, {4, 90 * time.Second}, {9, 90 * time.Second}} {
		t.Run(fmt.Sprint(test.providers), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := NewBoard(NewTable(nil), nil)
				for range test.providers {
					id, _ := join(t, b, "text.keywords")
					s, err := b.Watch(id)
					must(t, err)
					defer s.Close()
				}
				join(t, b, "text.other")
				began := time.Now()
				_, err := b.Run(t.Context(), keywords(), nil, nil)
				if !errors.Is(err, ErrNotAccepted) || time.Since(began) != test.want {
					t.Errorf("%v after %v", err, time.Since(began))
				}
				if roots := b.table.Roots(1); roots[0].State != Failed || roots[0].Reason != NotAccepted {
					t.Errorf("%+v", roots[0])
				}
			})
		})
	}
}

// TestWhoIsOffered: scope, capability and requirement decide, and being there.
func TestWhoIsOffered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBoard(NewTable(nil), nil)
		narrow := Grant{Scope: chain.DefaultScope, Patterns: []member.Pattern{"execute:text.*"}}
		id, _, err := b.Register(narrow, Registration{Class: Server, Capabilities: []chain.Capability{"execute:text.keywords", "execute:llm.chat", "geo:IN"}})
		must(t, err)
		for _, test := range []struct {
			name   string
			change func(*Work)
			want   int
		}{
			{"what it declared and was granted", func(*Work) {}, 1},
			{"what it was not granted", func(w *Work) { w.Primitive = "llm.chat" }, 0},
			{"another scope", func(w *Work) { w.Scope = "workspace:other" }, 0},
			{"its class", func(w *Work) { w.Requires = []chain.Capability{Server.Capability()} }, 1},
			{"another class", func(w *Work) { w.Requires = []chain.Capability{Browser.Capability()} }, 0},
			{"itself", func(w *Work) { w.Requires = []chain.Capability{chain.Capability("device:" + id)} }, 1},
			{"a place that was not granted", func(w *Work) { w.Requires = []chain.Capability{"geo:IN"} }, 0},
		} {
			w := keywords()
			test.change(w)
			if got := b.Able(w); got != test.want {
				t.Errorf("%s: %d", test.name, got)
			}
		}
		time.Sleep(onlineFor)
		if b.Able(keywords()) != 0 {
			t.Error("a provider is online that says nothing")
		}
	})
}

// TestAClosedTab: whoever closes its stream is gone soon after, and what it could do
// is still told of for a while.
func TestAClosedTab(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBoard(NewTable(nil), nil)
		id, _ := join(t, b, "text.keywords")
		s, err := b.Watch(id)
		must(t, err)
		time.Sleep(2 * onlineFor)
		c := begin(b, keywords())
		s.Close()
		s.Close()
		if b.Able(keywords()) != 1 {
			t.Error("it has no time to connect again")
		}
		time.Sleep(reconnects + recheckEvery)
		if !c.ended() || !errors.Is(c.err, ErrNotAccepted) || b.Able(keywords()) != 0 {
			t.Errorf("a job waits for a closed tab: %v", c.err)
		}
		if got := b.Declared(); !slices.Equal(got, []chain.Capability{"execute:text.keywords", "worker:browser"}) {
			t.Errorf("declared %v", got)
		}
		time.Sleep(lately)
		if got := b.Declared(); len(got) > 0 {
			t.Errorf("declared for ever: %v", got)
		}
	})
}

// TestAFailureRests: a provider that fails is left alone for a while; the next one
// does the job, and where nobody else is there it fails.
func TestAFailureRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBoard(NewTable(nil), nil)
		id, _ := join(t, b, "text.keywords")
		s, err := b.Watch(id)
		must(t, err)
		defer s.Close()
		c := begin(b, keywords())
		must(t, b.Result(id, claim(t, b, id), Result{State: Failed, Reason: "out of memory"}))
		if !c.ended() || !errors.Is(c.err, ErrFailed) {
			t.Fatalf("%v", c.err)
		}
		if b.Able(keywords()) != 0 {
			t.Error("it does not rest")
		}
		time.Sleep(firstRest)
		if b.Able(keywords()) != 1 {
			t.Error("it rests for ever")
		}
	})
}

// TestParts: parts reach a caller who streams; nobody else's text is glued on.
func TestParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := NewBoard(NewTable(nil), nil)
		id, _ := join(t, b, "llm.chat")
		next, _ := join(t, b, "llm.chat")
		w := &Work{Scope: chain.DefaultScope, Primitive: "llm.chat", Body: []byte(`{}`), Stream: true}
		c := begin(b, w)
		job := claim(t, b, id)
		must(t, b.Result(id, job, Result{State: Running, Text: "Hel"}))
		must(t, b.Result(id, job, Result{State: Running, Text: "lo"}))
		must(t, b.Result(id, job, Result{State: Done, Output: []byte(`"Hello"`)}))
		if !c.ended() || c.err != nil || strings.Join(c.parts, "") != "Hello" || !c.answer.Parts {
			t.Errorf("%+v", c)
		}
		c = begin(b, w)
		job = claim(t, b, id)
		must(t, b.Result(id, job, Result{State: Running, Text: "Hel"}))
		c.ended()
		must(t, b.Result(id, job, Result{State: Failed}))
		_ = claim(t, b, next)
		if !c.ended() || !errors.Is(c.err, ErrCut) {
			t.Errorf("%v", c.err)
		}
		c = begin(b, w)
		job = claim(t, b, next)
		if err := b.Result(next, job, Result{State: Done, Output: []byte(`{"choices":[]}`)}); !errors.Is(err, ErrInvalid) {
			t.Errorf("no answer: %v", err)
		}
		c.cancel()
		c.ended()
	})
}

// TestProvidersSurviveARestart: with their hashes, and not beyond their time.
func TestProvidersSurviveARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := &disk{records: map[string][]byte{"x": []byte("{}")}}
		b := NewBoard(NewTable(nil), kept)
		id, key := join(t, b, "text.keywords")
		if strings.Contains(string(kept.records[id]), strings.TrimPrefix(key.Reveal(), id+".")) {
			t.Error("the key is on the disk")
		}
		again := NewBoard(NewTable(nil), kept)
		must(t, again.Load())
		if len(kept.records) != 1 {
			t.Errorf("%d records", len(kept.records))
		}
		for name, key := range map[string]chain.Secret{"another": chain.Secret(id + ".x"), "none": "", "nobody's": "x.y", "the ID alone": chain.Secret(id)} {
			if _, err := again.Authenticate(key); !errors.Is(err, ErrProvider) {
				t.Errorf("%s key: %v", name, err)
			}
		}
		if got, err := again.Authenticate(key); err != nil || got != id || again.Able(keywords()) != 1 {
			t.Errorf("%s, %v", got, err)
		}
		time.Sleep(providerLife)
		if _, err := again.Authenticate(key); !errors.Is(err, ErrProvider) {
			t.Errorf("after its time: %v", err)
		}
		join(t, again, "text.keywords")
		if len(kept.records) != 1 || kept.records[id] != nil {
			t.Errorf("%d records", len(kept.records))
		}
	})
}

// TestRegistrations: what cannot be declared is refused.
func TestRegistrations(t *testing.T) {
	b := NewBoard(NewTable(nil), nil)
	for name, r := range map[string]Registration{
		"no class":         {Capabilities: []chain.Capability{"execute:a.b"}},
		"no capability":    {Class: Browser},
		"another's class":  {Class: Browser, Capabilities: []chain.Capability{"worker:server"}},
		"another's device": {Class: Browser, Capabilities: []chain.Capability{"device:x"}},
		"no word":          {Class: Browser, Capabilities: []chain.Capability{"a b\n"}},
		"too many":         {Class: Browser, Capabilities: make([]chain.Capability, MaxCapabilities+1)},
	} {
		if _, _, err := b.Register(home, r); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for range MaxProviders {
		join(t, b, "a.b")
	}
	if _, _, err := b.Register(home, Registration{Class: Agent, Capabilities: []chain.Capability{"execute:a.b"}}); !errors.Is(err, ErrFull) {
		t.Errorf("one more: %v", err)
	}
}

// TestBoardInAnyOrder: whatever providers say in whatever order, a job ends once,
// with the first result of whoever held its lease then.
func TestBoardInAnyOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		script := rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) event {
			return event{what: rapid.IntRange(0, 5).Draw(rt, "event"), by: rapid.IntRange(0, 2).Draw(rt, "provider"), job: rapid.IntRange(0, 2).Draw(rt, "job"),
				n: rapid.IntRange(1, 40).Draw(rt, "n")}
		}), 1, 60).Draw(rt, "script")
		var broken string
		synctest.Test(t, func(t *testing.T) { broken = play(t, script) })
		if broken != "" {
			rt.Fatal(broken)
		}
	})
}

type event struct{ what, by, job, n int }

// play has three providers and two jobs go through script, and tells what rule was
// broken.
func play(t *testing.T, script []event) (broken string) {
	b := NewBoard(NewTable(nil), nil)
	ids := make([]string, 3)
	for i := range ids {
		ids[i], _ = join(t, b, "text.keywords")
	}
	calls := []*call{begin(b, keywords()), begin(b, keywords())}
	holder, lease, first := map[string]string{}, map[string]time.Time{}, map[string]string{}
	jobs := []string{"unknown"}
	for _, e := range script {
		id, job := ids[e.by], jobs[e.job%len(jobs)]
		holds := holder[job] == id && first[job] == "" && time.Now().Before(lease[job])
		switch e.what {
		case 0, 1:
			got := claim(t, b, id)
			if got == "" {
				break
			}
			if first[got] != "" || holder[got] != "" && time.Now().Before(lease[got]) {
				return got + " was taken twice"
			}
			holder[got], lease[got] = id, time.Now().Add(LeaseTime)
			jobs = append(jobs, got)
		case 2:
			if _, err := b.Heartbeat(id, job); (err == nil) != holds {
				return fmt.Sprintf("a heartbeat: %v, it holds the job: %v", err, holds)
			} else if holds {
				lease[job] = time.Now().Add(LeaseTime)
			}
		case 3:
			out := fmt.Sprintf("%q", id+fmt.Sprint(e.n%2))
			err := b.Result(id, job, Result{State: Done, Output: []byte(out)})
			if equal := first[job] == out; (err == nil) != (holds || equal) {
				return fmt.Sprintf("a result: %v, it holds the job: %v, said it before: %v", err, holds, equal)
			}
			if holds {
				first[job] = out
			}
		case 4:
			if err := b.Result(id, job, Result{State: Failed}); (err == nil) != holds {
				return fmt.Sprintf("a failure: %v, it holds the job: %v", err, holds)
			} else if holds {
				delete(holder, job)
			}
		case 5:
			time.Sleep(time.Duration(e.n) * time.Second)
		}
		synctest.Wait()
	}
	answers := 0
	for _, c := range calls {
		c.cancel()
		if !c.ended() {
			return "a job did not end"
		}
		if c.err == nil {
			answers++
		}
	}
	if answers != len(first) {
		return fmt.Sprintf("%d results and %d answers", len(first), answers)
	}
	return ""
}

// FuzzReadChat: an answer is foreign input.
func FuzzReadChat(f *testing.F) {
	for _, s := range []string{`"a"`, `""`, `{"choices":[{"message":{"content":"a"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1}}`, `{"choices":[{"message":{"tool_calls":[{}]}}]}`, `null`, `[`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := ReadChat(b)
		if err == nil && strings.TrimSpace(c.Text) == "" && c.ToolCalls == nil {
			t.Fatalf("an empty answer: %+v", c)
		}
		if err != nil && !errors.Is(err, ErrInvalid) {
			t.Fatal(err)
		}
	})
}

// FuzzDecodeProvider: so is a kept record.
func FuzzDecodeProvider(f *testing.F) {
	f.Add([]byte(`{"id":"k","key_hash":"` + hashed("") + `","worker_class":"browser","capabilities":["execute:a.b"],"scope":"workspace:home","granted":["*"],"since":"2026-01-01T00:00:00Z"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		k, err := decodeProvider("k", b)
		if err == nil {
			(&provider{kept: k}).count()
		}
	})
}
