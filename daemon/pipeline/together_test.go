package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/job"
	"github.com/chordwheel/chordwheel/daemon/pipeline"
	"github.com/chordwheel/chordwheel/daemon/pipeline/wave"
)

// fleet is a Runner: places that answer after a while, or never.
type fleet struct {
	offers map[chain.Primitive][]wave.Offer
	slow   map[chain.OptionID]time.Duration
	says   func(*wave.Task) string

	mu      sync.Mutex
	begun   int
	settled map[string]string // by ID: what became of whom
	names   map[string]string
}

func (f *fleet) Offers(p chain.Primitive) []wave.Offer { return f.offers[p] }

func (f *fleet) Run(ctx context.Context, c wave.Copy, begun func(string), accepted func(chain.OptionID, chain.PeerID)) wave.Outcome {
	f.mu.Lock()
	f.begun++
	id := fmt.Sprintf("job%d", f.begun)
	f.names[id] = c.Task.Name
	f.mu.Unlock()
	begun(id)
	at := c.Offer
	if at == nil {
		offers := f.offers[c.Task.Primitive]
		if len(offers) == 0 {
			return wave.Outcome{Class: chain.NoPeer}
		}
		at = &offers[0]
	}
	accepted(at.Option, at.Peer)
	select {
	case <-ctx.Done():
		return wave.Outcome{Class: chain.Canceled, Option: at.Option}
	case <-time.After(f.slow[at.Option]):
	}
	text := f.says(c.Task)
	if text == "" {
		return wave.Outcome{Class: chain.Unreachable, Option: at.Option}
	}
	return wave.Outcome{Class: chain.OK, Text: text, Option: at.Option, Provider: at.Provider, Model: at.Model}
}

func (f *fleet) Settle(id string, state job.State, hedge job.Hedge) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if was, twice := f.settled[id]; twice {
		f.settled[id] = was + " and again"
	}
	f.settled[id] += strings.TrimSpace(fmt.Sprintf("%s %s %s", f.names[id], state, hedge))
}

func place(provider string) wave.Offer {
	return wave.Offer{Option: chain.OptionID(provider + "/m"), Provider: provider, Model: "m-" + provider, Quality: 0.5}
}

func newFleet() *fleet {
	return &fleet{
		offers: map[chain.Primitive][]wave.Offer{chain.T2: {place("a"), place("b"), place("c")}, chain.T3: {place("t")}, chain.LLMChat: {place("a")}},
		slow:   map[chain.OptionID]time.Duration{"a/m": 5 * time.Second, "b/m": 5 * time.Second, "c/m": 5 * time.Second, "t/m": 5 * time.Second},
		says: func(t *wave.Task) string {
			switch t.Role {
			case job.Decompose:
				return plan("supervisor", "x 2", "y 2", "z 2 x y")
			case job.Score:
				return `{"score":0.9}`
			}
			return string(t.Role)
		},
		settled: map[string]string{}, names: map[string]string{},
	}
}

// With the real waves: parts of a wave go to different providers, every job is
// settled once, and an abort ends all of them within a second.
func TestStagesOverWaves(t *testing.T) {
	together := func(t *testing.T, f *fleet, ctx context.Context) (string, pipeline.Result, error) {
		s := settings(rewrites(1))
		p, err := pipeline.New(s)
		if err != nil {
			t.Fatal(err)
		}
		pool := wave.NewPool()
		w := wave.New(s.Waves, f, pool)
		text := ""
		res, err := p.Run(ctx, w, pipeline.Request{Body: []byte(question), Budget: 10 * time.Minute}, pipeline.Decision{Staged: true},
			pipeline.Output{Text: func(s string) error { text += s; return nil }})
		w.Close()
		if err := pool.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if len(f.settled) != f.begun {
			t.Errorf("%d jobs began, %d are settled: %v", f.begun, len(f.settled), f.settled)
		}
		for id, what := range f.settled {
			if strings.Contains(what, "again") {
				t.Errorf("%s: %s", id, what)
			}
		}
		return text, res, err
	}
	synctest.Test(t, func(t *testing.T) {
		f, began := newFleet(), time.Now()
		text, res, err := together(t, f, t.Context())
		if text != "synthesise" || err != nil || !res.Scored || res.Score != 0.9 || len(res.Notes) > 0 {
			t.Errorf("%q, %+v, %v", text, res, err)
		}
		if took := time.Since(began); took != 25*time.Second { // five steps, of which one has two parts side by side
			t.Errorf("took %s", took)
		}
	})
	synctest.Test(t, func(t *testing.T) { // everything is down but one worker
		f := newFleet()
		f.offers = map[chain.Primitive][]wave.Offer{chain.T2: {place("a")}}
		f.says = func(t *wave.Task) string {
			if t.Role == job.Direct {
				return "direct"
			}
			return ""
		}
		if text, res, err := together(t, f, t.Context()); text != "direct" || err != nil || res.Notes[len(res.Notes)-1] != pipeline.NoteLastResort {
			t.Errorf("%q, %v, %v", text, res.Notes, err)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFleet()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(7*time.Second, cancel) // in the first wave
		began := time.Now()
		if text, _, err := together(t, f, ctx); text != "" || !errors.Is(err, context.Canceled) || time.Since(began) > 8*time.Second {
			t.Errorf("%q, %v after %s", text, err, time.Since(began))
		}
		if f.begun != 3 {
			t.Errorf("%d jobs began: %v", f.begun, f.settled)
		}
	})
	synctest.Test(t, func(t *testing.T) { // nobody at all
		f := newFleet()
		f.offers = nil
		if text, _, err := together(t, f, t.Context()); text != "" || !errors.Is(err, pipeline.ErrNoModels) {
			t.Errorf("%q, %v", text, err)
		}
	})
}
