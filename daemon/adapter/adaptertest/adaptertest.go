// Package adaptertest holds what every adapter for chat completions must do,
// whatever runs behind it: one suite, run by the tests of each. It must not be
// imported by code that ships.
package adaptertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/adapter"
)

// Subject is the adapter under test, and how to call it so that it answers.
type Subject struct {
	Adapter adapter.Adapter
	Attempt walk.Attempt // what the walk would ask for
	Secret  chain.Secret
}

// model is a name that no server knows: answers must carry it all the same.
const model = "team/asked-for:8b"

// call gives the usual call. Each has a request of its own.
func (s Subject) call(stream, usage bool) adapter.Call {
	body := `{"model":"` + model + `","messages":[{"role":"system","content":"be kind"},{"role":"user","content":"hello"}]}`
	if stream {
		body = `{"model":"` + model + `","stream":true,"messages":[{"role":"user","content":"hello"}]}`
	}
	return adapter.Call{Attempt: s.Attempt, Secret: s.Secret, Request: &adapter.Request{
		ID: "req-1", Primitive: chain.LLMChat, Body: []byte(body), Model: model, Stream: stream, Usage: usage}}
}

// Run holds s to the contract of docs/adapters.md. s must answer every call
// with some text, in a stream with more than one chunk.
func Run(t *testing.T, s Subject) {
	t.Run("a plain answer is one meaningful chunk", s.plain)
	t.Run("a stream is events on one line, ended by a finish reason", s.stream)
	t.Run("the usage event is for those who asked", s.usage)
	t.Run("the request is shared and not changed", s.shared)
	t.Run("an attempt that was given up ends", s.givenUp)
	t.Run("an attempt ends with its context", s.canceled)
	t.Run("work of another kind is refused", s.otherWork)
}

// answer is what both kinds of answer have.
type answer struct {
	Model   string
	Object  string
	Choices []struct {
		Delta, Message struct{ Content string }
		FinishReason   string `json:"finish_reason"`
	}
	Usage json.RawMessage
}

func read(t *testing.T, c walk.Chunk) (a answer) {
	t.Helper()
	if err := json.Unmarshal(c.Data, &a); err != nil {
		t.Fatalf("chunk %.200s: %v", c.Data, err)
	}
	if a.Model != model {
		t.Errorf("the answer names %q, the caller asked for %q", a.Model, model)
	}
	return a
}

func (s Subject) collect(ctx context.Context, c adapter.Call) (got []walk.Chunk, o walk.Outcome) {
	o = s.Adapter.Run(ctx, c, func(c walk.Chunk) error {
		if c.Data != nil { // else it only lets go what the walk holds
			got = append(got, c)
		}
		return nil
	})
	return got, o
}

func (s Subject) plain(t *testing.T) {
	got, o := s.collect(t.Context(), s.call(false, false))
	if o.Class != chain.OK || len(got) != 1 || !got[0].Meaningful {
		t.Fatalf("%+v with %d chunks", o, len(got))
	}
	if a := read(t, got[0]); a.Object != "chat.completion" || len(a.Choices) != 1 || a.Choices[0].Message.Content == "" {
		t.Errorf("answer %s", got[0].Data)
	}
	if o.Input <= 0 || o.Output <= 0 {
		t.Errorf("tokens %d and %d", o.Input, o.Output)
	}
}

func (s Subject) stream(t *testing.T) {
	got, o := s.collect(t.Context(), s.call(true, false))
	if o.Class != chain.OK || len(got) < 2 {
		t.Fatalf("%+v with %d chunks", o, len(got))
	}
	if o.Input <= 0 || o.Output <= 0 {
		t.Errorf("tokens %d and %d, also where the caller did not ask for them", o.Input, o.Output)
	}
	finished := false
	for _, c := range got {
		if bytes.ContainsAny(c.Data, "\r\n") {
			t.Errorf("not one line: %q", c.Data)
		}
		for _, choice := range read(t, c).Choices {
			if said := choice.Delta.Content != ""; said != c.Meaningful {
				t.Errorf("meaningful is %v for %s", c.Meaningful, c.Data)
			}
			finished = finished || choice.FinishReason != ""
		}
	}
	if !finished {
		t.Error("no finish reason")
	}
}

func (s Subject) usage(t *testing.T) {
	for _, asked := range []bool{true, false} {
		got, o := s.collect(t.Context(), s.call(true, asked))
		if o.Class != chain.OK {
			t.Fatalf("%+v", o)
		}
		counted := slices.ContainsFunc(got, func(c walk.Chunk) bool {
			u := string(read(t, c).Usage)
			return u != "" && u != "null"
		})
		if counted != asked {
			t.Errorf("asked for usage: %v, given: %v", asked, counted)
		}
	}
}

// shared runs many attempts at one request at once. Under the race detector
// it also shows that chunks are not written to again.
func (s Subject) shared(t *testing.T) {
	for _, stream := range []bool{true, false} {
		c := s.call(stream, false)
		before := bytes.Clone(c.Request.Body)
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				var kept, copies [][]byte
				o := s.Adapter.Run(t.Context(), c, func(c walk.Chunk) error {
					kept, copies = append(kept, c.Data), append(copies, bytes.Clone(c.Data))
					return nil
				})
				if o.Class != chain.OK || !slices.EqualFunc(kept, copies, bytes.Equal) {
					t.Errorf("%s; chunks were changed: %v", o.Class, !slices.EqualFunc(kept, copies, bytes.Equal))
				}
			})
		}
		group.Wait()
		if !bytes.Equal(c.Request.Body, before) {
			t.Errorf("the body became %s", c.Request.Body)
		}
	}
}

func (s Subject) givenUp(t *testing.T) {
	n := 0
	o := s.Adapter.Run(t.Context(), s.call(true, false), func(walk.Chunk) error { n++; return errors.New("given up") })
	if o.Class != chain.Canceled || n != 1 {
		t.Errorf("%+v after %d chunks", o, n)
	}
}

func (s Subject) canceled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if got, o := s.collect(ctx, s.call(true, false)); o.Class != chain.Canceled || len(got) > 0 {
		t.Errorf("before the start: %+v after %d chunks", o, len(got))
	}
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	n := 0
	o := s.Adapter.Run(ctx, s.call(true, false), func(walk.Chunk) error { n++; cancel(); return ctx.Err() })
	if o.Class != chain.Canceled || n != 1 {
		t.Errorf("after the first chunk: %+v after %d chunks", o, n)
	}
}

func (s Subject) otherWork(t *testing.T) {
	c := s.call(false, false)
	c.Request.Primitive = "render.pdf"
	if got, o := s.collect(t.Context(), c); o.Class != chain.Feature || len(got) > 0 {
		t.Errorf("%+v with %d chunks", o, len(got))
	}
}
