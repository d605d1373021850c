package daemon_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/edge"
	"github.com/chordwheel/chordwheel/daemon/job"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// worker is a provider over HTTP that does what does says with each job.
type worker struct {
	id   string
	mu   sync.Mutex
	jobs []job.Lease
}

func (w *worker) asked() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.jobs)
}

// hire registers a provider with b, and has it work until the test ends.
func (b *bench) hire(does func(board *job.Board, id string, l job.Lease), has ...chain.Capability) *worker {
	b.t.Helper()
	board := b.Providers().Board
	if len(has) == 0 {
		has = []chain.Capability{"execute:llm.chat"}
	}
	id, _, err := board.Register(job.Grant{Scope: chain.DefaultScope, Patterns: []member.Pattern{member.Everything}}, job.Registration{Class: job.Browser, Capabilities: has})
	if err != nil {
		b.t.Fatal(err)
	}
	w := &worker{id: id}
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		for ctx.Err() == nil {
			leases, err := board.Claim(ctx, id, 1, job.LongestWait)
			if err != nil {
				return
			}
			for _, l := range leases {
				w.mu.Lock()
				w.jobs = append(w.jobs, l)
				w.mu.Unlock()
				does(board, id, l)
			}
		}
	})
	b.t.Cleanup(func() { cancel(); group.Wait() })
	synctest.Wait()
	return w
}

func tells(output string) func(*job.Board, string, job.Lease) {
	return func(board *job.Board, id string, l job.Lease) {
		_ = board.Result(id, l.Job, job.Result{State: job.Done, Output: []byte(output)})
	}
}

// TestAProviderFillsASlot: where no peer does. What the hub hears of it names no
// peer, and the receipt names this device, which vouches for it.
func TestAProviderFillsASlot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, withSlot)
		w := b.hire(tells(`"four"`))
		text, result, err := b.ask(edge.Work{})
		if err != nil || result.Option != "peer" || !strings.Contains(text, `"content":"four"`) || !strings.Contains(text, `"model":"auto"`) || w.asked() != 1 {
			t.Fatalf("%q, %+v, %v", text, result, err)
		}
		if roots := b.Jobs().Roots(0); len(roots) != 1 || roots[0].State != job.Done || roots[0].Provider != w.id || roots[0].RequestID != "r" || roots[0].RequestHash == "" {
			t.Errorf("jobs %+v", roots)
		}
		time.Sleep(time.Hour)
		b.hub.mu.Lock()
		defer b.hub.mu.Unlock()
		found := false
		for _, r := range b.hub.reports {
			for _, c := range r.Counters {
				found = found || c.Option == "peer" && c.Peer == "" && c.Outcomes[chain.OK] == 1
			}
		}
		// The hub hears what its providers can do, peers do not.
		hears := func(all []chain.Capability) bool { return slices.Contains(all, job.Browser.Capability()) }
		if r := b.hub.reports; !slices.ContainsFunc(r, func(r wire.Report) bool { return hears(r.Capabilities) }) {
			t.Error("the hub does not hear what they can do")
		}
		for _, a := range b.hub.announced {
			if hears(a.Capabilities) {
				t.Error("peers hear of them")
			}
		}
		if !found {
			t.Errorf("the hub does not hear of it: %+v", b.hub.reports)
		}
	})
}

// TestAPeerGoesFirst: a provider is one more candidate, after live peers.
func TestAPeerGoesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, x := beside(t, "peer tries=2 | beta/small")
		w := b.hire(tells(`"of a provider"`))
		if text, _, _ := b.ask(edge.Work{}); text != "answer of box" || w.asked() != 0 {
			t.Errorf("%q", text)
		}
		x.errs(errors.New("reset"))
		if text, result, _ := b.ask(edge.Work{}); !strings.Contains(text, "of a provider") || !slices.Equal(result.Peers, []chain.PeerID{x.id(), job.Peer}) {
			t.Errorf("%q after %v", text, result.Peers)
		}
	})
}

// TestWhatProvidersNeverGet: work that may not leave the device, or that asks for
// what they lack.
func TestWhatProvidersNeverGet(t *testing.T) {
	for name, options := range map[string]string{
		"a capability that it lacks":       "peer requires=net:residential | beta/small",
		"a class that it is not":           "peer requires=worker:server | beta/small",
		"another device":                   "peer requires=device:x | beta/small",
		"and the other way round, it does": "peer requires=worker:browser | beta/small",
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := joined(t, options)
				w := b.hire(tells(`"words"`))
				text, _, err := b.ask(edge.Work{})
				if does := strings.HasPrefix(name, "and"); err != nil || does != (w.asked() == 1) || does != strings.Contains(text, "words") {
					t.Errorf("%q, %v, asked %d times", text, err, w.asked())
				}
			})
		})
	}
}

// TestProvidersFail: the walk goes on, or the caller is told.
func TestProvidersFail(t *testing.T) {
	for _, test := range []struct {
		name  string
		does  func(*job.Board, string, job.Lease)
		class chain.Class
	}{
		{"it says so", func(board *job.Board, id string, l job.Lease) {
			_ = board.Result(id, l.Job, job.Result{State: job.Failed})
		}, chain.Status},
		{"it falls silent", func(*job.Board, string, job.Lease) {}, chain.Status},
		{"what it says is no answer", func(board *job.Board, id string, l job.Lease) {
			if err := board.Result(id, l.Job, job.Result{State: job.Done, Output: []byte(`{"choices":[]}`)}); !errors.Is(err, job.ErrInvalid) {
				panic(err)
			}
		}, chain.Status},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := joined(t, "peer | beta/small")
				w := b.hire(test.does)
				text, result, err := b.ask(edge.Work{Budget: edge.Budget{Batch: true}})
				if err != nil || text != "answer of beta/small" || w.asked() != 1 || len(result.Failures) != 1 || result.Failures[0].Class != test.class {
					t.Errorf("%q, %v, %v", text, result.Failures, err)
				}
			})
		})
	}
}

// TestAProviderStreams: its parts are the events of the answer; one that falls silent
// after the first breaks it, and nobody else's words follow.
func TestAProviderStreams(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, "peer | beta/small")
		silent := false
		b.hire(func(board *job.Board, id string, l job.Lease) {
			for _, text := range []string{"one ", "two"} {
				_ = board.Result(id, l.Job, job.Result{State: job.Running, Text: text})
				time.Sleep(time.Second)
			}
			if !silent {
				_ = board.Result(id, l.Job, job.Result{State: job.Done, Output: []byte(`{"choices":[{"message":{"content":"one two three","tool_calls":[{"id":"c"}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":3,"completion_tokens":4}}`)})
			}
		})
		text, result, err := b.ask(edge.Work{Stream: true, Usage: true})
		for _, want := range []string{`"content":"one "`, `"content":"two"`, `"content":" three"`, `"index":0`, `"finish_reason":"tool_calls"`, `"prompt_tokens":3`} {
			if !strings.Contains(text, want) {
				t.Errorf("no %s in %s", want, text)
			}
		}
		if err != nil || result.Input != 3 || result.Output != 4 {
			t.Errorf("%+v, %v", result, err)
		}
		silent = true
		if text, result, _ := b.ask(edge.Work{Stream: true}); result.End != walk.Broken || strings.Contains(text, "beta") {
			t.Errorf("%q, %s", text, result.End)
		}
	})
}

// TestACallerLeaves: the job is cancelled and the provider's word is late.
func TestACallerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, "peer | beta/small")
		late := make(chan error, 1)
		b.hire(func(board *job.Board, id string, l job.Lease) {
			time.Sleep(10 * time.Second)
			late <- board.Result(id, l.Job, job.Result{State: job.Done, Output: []byte(`"late"`)})
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		result, _ := b.Do(ctx, &edge.Work{ID: "r", Primitive: chain.LLMChat, Model: edge.Auto, Body: []byte(`{}`)}, func(walk.Attempt, [][]byte) error { return nil })
		if result.End != walk.Left {
			t.Errorf("%+v", result)
		}
		if err := <-late; !errors.Is(err, job.ErrOver) {
			t.Errorf("a late result: %v", err)
		}
		if r := b.Jobs().Roots(1)[0]; r.State != job.Cancelled {
			t.Errorf("%+v", r)
		}
	})
}

// TestProvidersAreAdmittedByTheHub: an invitation is the hub's to judge, and nobody
// else's while that is away.
func TestProvidersAreAdmittedByTheHub(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := joined(t, withSlot)
		var spent []wire.Provider
		b.hub.provider = func(p wire.Provider) wire.ProviderReply {
			spent = append(spent, p)
			return wire.ProviderReply{Scope: p.Invitation.Scope, Granted: []string{"execute:*"}}
		}
		admit := func(text string) (job.Grant, edge.Code) {
			g, err := b.Providers().Admit(t.Context(), chain.Secret(text), job.Registration{Class: job.Browser, Capabilities: []chain.Capability{"execute:llm.chat", "net:lan"}})
			var no *edge.Refusal
			if errors.As(err, &no) {
				return g, no.Code
			}
			return g, ""
		}
		g, code := admit(b.invitation())
		if code != "" || g.Scope != chain.DefaultScope || len(g.Patterns) != 1 || len(spent) != 1 || spent[0].Class != "browser" || spent[0].Validate() != nil {
			t.Errorf("%+v, %s", g, code)
		}
		if _, code := admit("chordwheel1:x"); code != edge.Unauthorized {
			t.Errorf("no invitation: %s", code)
		}
		other := chaintest.NewHub()
		other.Trust.Mesh = "another"
		b.hub.policy, other = other, b.hub.policy
		foreign := b.invitation()
		b.hub.policy = other
		if _, code := admit(foreign); code != edge.Unauthorized {
			t.Errorf("another mesh's: %s", code)
		}
		b.hub.provider = nil
		if _, code := admit(b.invitation()); code != edge.Unauthorized {
			t.Errorf("one that the hub does not know: %s", code)
		}
		b.hub.set(true)
		if _, code := admit(b.invitation()); code != edge.HubUnreachable {
			t.Errorf("the hub is away: %s", code)
		}
	})
}

// TestAProviderIsDropped: its owner ends it in the middle of a job, which the next one
// gets; its key and its word count no more, also after a restart.
func TestAProviderIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := &drawer{kept: map[string][]byte{}}
		board := job.NewBoard(job.NewTable(nil), disk)
		register := func() (string, chain.Secret) {
			id, key, err := board.Register(job.Grant{Scope: chain.DefaultScope, Patterns: []member.Pattern{member.Everything}}, job.Registration{Class: job.Browser, Capabilities: []chain.Capability{"execute:llm.chat"}})
			if err != nil {
				t.Fatal(err)
			}
			return id, key
		}
		first, key := register()
		stream, err := board.Watch(first)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan job.Answer, 1)
		go func() {
			a, err := board.Run(t.Context(), &job.Work{Scope: chain.DefaultScope, Primitive: chain.LLMChat, Body: []byte(`{}`)}, nil, nil)
			if err != nil {
				t.Error(err)
			}
			done <- a
		}()
		leases, _ := board.Claim(t.Context(), first, 1, time.Second)
		second, _ := register()
		if err := board.Drop(first); err != nil || len(leases) != 1 {
			t.Fatal(err, leases)
		}
		for range stream.Notices() { // it ends
		}
		stream.Close()
		if _, err := board.Authenticate(key); !errors.Is(err, job.ErrProvider) {
			t.Errorf("its key: %v", err)
		}
		if err := board.Result(first, leases[0].Job, job.Result{State: job.Done, Output: []byte(`"late"`)}); !errors.Is(err, job.ErrOver) {
			t.Errorf("its word: %v", err)
		}
		if _, err := board.Claim(t.Context(), first, 1, time.Minute); !errors.Is(err, job.ErrProvider) {
			t.Errorf("it asks for more: %v", err)
		}
		more, _ := board.Claim(t.Context(), second, 1, time.Second)
		if len(more) != 1 || more[0].Job != leases[0].Job || board.Result(second, more[0].Job, job.Result{State: job.Done, Output: []byte(`"words"`)}) != nil {
			t.Fatalf("the next one gets %v", more)
		}
		if a := <-done; a.Provider != second {
			t.Errorf("%+v", a)
		}
		if err := board.Drop(first); !errors.Is(err, job.ErrProvider) {
			t.Errorf("twice: %v", err)
		}
		again := job.NewBoard(job.NewTable(nil), disk)
		if err := again.Load(); err != nil || len(again.Providers()) != 1 || again.Providers()[0].ID != second {
			t.Errorf("after a restart: %v %v", err, again.Providers())
		}
	})
}
