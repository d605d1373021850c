package receipt

import (
	"crypto/sha256"
	"encoding/json"
	"hash"
	"io"
	"slices"

	"github.com/chordwheel/chordwheel/chain"
)

// maxCalls bounds the calls of tools that are put together from a stream: bytes,
// and how many. What comes beyond is not covered by the hash.
const (
	maxCallBytes = 4 << 20
	maxCalls     = 1024
)

// Response hashes an answer while it passes. It keeps nothing of it but the calls
// of tools of a stream, which come in pieces that may interleave. One goroutine
// uses it at a time.
//
// Of several choices the one with index 0 counts.
type Response struct {
	text   hash.Hash // of an answer in words
	stream bool
	said   string // the name under which a choice says it
	whole  string // the hash of an answer of another kind, once it came
	calls  []toolCall
	raw    []byte // calls of a plain answer, as they came
	kept   int    // bytes in calls
}

// NewResponse makes the hash of an answer to work for primitive p: one of llm.*
// is an answer in words, in the form of a chat completion, or its events where
// stream is set.
func NewResponse(p chain.Primitive, stream bool) *Response {
	r := &Response{stream: stream, said: "message"}
	if stream {
		r.said = "delta"
	}
	if p.LLM() {
		r.text = sha256.New()
	}
	return r
}

// Add takes one piece in the form that adapters emit: the data of one event of a
// stream, or a whole plain answer. It keeps nothing of data, which is not changed.
// What is no answer in words adds nothing.
func (r *Response) Add(data []byte) {
	if r.text == nil {
		r.whole = OutputHash(data)
		return
	}
	var room [2]choice
	choices, ok := choicesOf(data, r.said, room[:0])
	if !ok {
		return
	}
	for i := range choices {
		r.add(&choices[i])
	}
}

// Hash gives the hash of what was added so far.
func (r *Response) Hash() string {
	if r.text == nil {
		if r.whole == "" {
			return hashOf(nil)
		}
		return r.whole
	}
	// A copy: Sum leaves the hash as it was, the calls would not.
	h, err := r.text.(hash.Cloner).Clone()
	if err != nil {
		panic("BUG: SHA-256 can be copied: " + err.Error())
	}
	calls := r.raw
	if len(r.calls) > 0 {
		if calls, err = json.Marshal(r.calls); err != nil {
			panic("BUG: texts are JSON: " + err.Error())
		}
	}
	writeCalls(h, calls)
	return sumOf(h)
}

// choice is what one of the choices of a chat completion, or of one of its events,
// says: the values as they came, nil without one.
type choice struct{ content, calls []byte }

// choicesOf appends the choices in data with index 0, which say it under the name
// said. It is false if data is no JSON.
func choicesOf(data []byte, said string, to []choice) ([]choice, bool) {
	in := reader{b: data}
	in.at = blanks(data, 0)
	ok := in.object(func(name []byte) bool {
		if string(name) != "choices" {
			return in.value()
		}
		return in.array(func() bool {
			c, first, ok := in.choice(said)
			if first {
				to = append(to, c)
			}
			return ok
		})
	})
	return to, ok && in.end()
}

// choice takes one of the choices; first says that it is the one with index 0.
func (r *reader) choice(said string) (c choice, first, ok bool) {
	first = true
	ok = r.object(func(name []byte) bool {
		from := r.at
		switch string(name) {
		case said:
			c = choice{}
			return r.object(func(name []byte) bool {
				from := r.at
				ok := r.value()
				switch string(name) {
				case "content":
					c.content = r.b[from:r.at]
				case "tool_calls":
					c.calls = r.b[from:r.at]
				}
				return ok
			})
		case "index":
			ok := r.value()
			if index := string(r.b[from:r.at]); index != "0" && index != "null" {
				first = false
			}
			return ok
		}
		return r.value()
	})
	return c, first, ok
}

func (r *Response) add(c *choice) {
	if text, ok := plainText(c.content); ok {
		r.text.Write(text)
	} else if text, ok := textOf(c.content); ok {
		_, _ = io.WriteString(r.text, text)
	} else if len(c.content) > 0 && string(c.content) != "null" { // parts: no text of one kind
		r.text.Write(formOf(c.content))
	}
	switch {
	case len(c.calls) == 0:
	case r.stream:
		r.deltas(c.calls)
	default:
		r.raw = slices.Clone(c.calls)
	}
}

// toolCall is a call of a tool, put together.
type toolCall struct {
	ID       string   `json:"id,omitempty"`
	Type     string   `json:"type,omitempty"`
	Function *calling `json:"function,omitempty"`
	Custom   *calling `json:"custom,omitempty"`
}

type calling struct {
	Name      string `json:"name,omitempty"`
	Arguments *grown `json:"arguments,omitempty"`
	Input     *grown `json:"input,omitempty"`
}

// grown is a text that comes in any number of pieces.
type grown []byte

func (g grown) MarshalJSON() ([]byte, error) { return json.Marshal(string(g)) }

func (g *grown) UnmarshalJSON(b []byte) error {
	var s string
	err := json.Unmarshal(b, &s)
	*g = grown(s)
	return err
}

// deltas takes pieces of calls: names are set, arguments grow.
func (r *Response) deltas(b []byte) {
	var pieces []struct {
		Index *int `json:"index"`
		toolCall
	}
	if json.Unmarshal(b, &pieces) != nil {
		return
	}
	for i := range pieces {
		p, at := &pieces[i], i
		if p.Index != nil {
			at = *p.Index
		}
		if at < 0 || at >= maxCalls || r.kept > maxCallBytes {
			continue
		}
		for len(r.calls) <= at {
			r.calls = append(r.calls, toolCall{})
		}
		call := &r.calls[at]
		set(&call.ID, p.ID)
		set(&call.Type, p.Type)
		r.grow(&call.Function, p.Function)
		r.grow(&call.Custom, p.Custom)
	}
}

func (r *Response) grow(to **calling, piece *calling) {
	if piece == nil {
		return
	}
	if *to == nil {
		*to = new(calling)
	}
	set(&(*to).Name, piece.Name)
	r.extend(&(*to).Arguments, piece.Arguments)
	r.extend(&(*to).Input, piece.Input)
}

func (r *Response) extend(to **grown, piece *grown) {
	if piece == nil {
		return
	}
	r.kept += len(*piece)
	if *to == nil {
		*to = new(grown)
	}
	**to = append(**to, *piece...)
}

func set(to *string, s string) {
	if s != "" {
		*to = s
	}
}
