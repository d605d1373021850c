package edge

import (
	"bytes"

	"github.com/chordwheel/chordwheel/chain"
)

// call is what the edge must know of the body of a work call. Its spans are of
// the body, as they came.
type call struct {
	chat    chat   // of input, where that is a chat completion request
	text    bool   // input is a string
	input   []byte // nil if missing
	options []byte // nil if missing or null
	model   string // of options
}

// readWork checks a whole body of POST /api/v1/work/{primitive} and gives what
// the adapter gets: the body as it came, or for llm.* a chat completion request.
func readWork(body []byte, p chain.Primitive, l Limits) (model string, payload []byte, err error) {
	s := scan(body, l.Depth)
	defer s.done()
	llm := p.LLM()
	s.space()
	if s.peek() != '{' {
		return "", nil, s.want("an object")
	}
	var c call
	err = s.object(func(name []byte) error {
		s.field = name
		err := s.workField(&c, name, llm, l)
		s.base, s.field = "", nil
		return err
	})
	if err == nil {
		err = s.end()
	}
	switch {
	case err != nil:
		return "", nil, err
	case c.input == nil:
		return "", nil, invalid(`input: missing: want {"input": …, "options": {…}}`)
	case !llm:
		return "", body, nil
	case c.text:
		model, payload = c.asChat()
		return model, payload, nil
	case len(members(c.options)) > 0:
		return "", nil, invalid("options: a chat completion request as input has its options inside: put them there")
	}
	return c.chat.model, c.input, c.chat.complete("input.")
}

func (s *scanner) workField(c *call, name []byte, llm bool, l Limits) (err error) {
	start := s.i
	switch string(name) {
	case "input":
		if !llm {
			err = s.value()
		} else {
			err = s.llmInput(c, l)
		}
		c.input = s.b[start:s.i]
	case "options":
		switch s.peek() {
		case 'n':
			return s.literal("null")
		case '{':
		default:
			return s.want("an object")
		}
		err = s.object(func(name []byte) error { return s.option(c, name, llm) })
		c.options = s.b[start:s.i]
	default:
		err = s.value()
	}
	return err
}

// llmInput passes over the input of an llm.* primitive.
func (s *scanner) llmInput(c *call, l Limits) (err error) {
	switch s.peek() {
	case '"':
		c.text = true
		_, _, err = s.text()
	case '{':
		s.base, s.field = "input.", nil
		c.chat, err = s.chat(l)
		if err == nil && c.chat.stream {
			err = invalid("input.stream: work answers in one piece: use /v1/chat/completions for a stream")
		}
	default:
		err = s.want("a text or a chat completion request")
	}
	return err
}

// option passes over one member of options. Where input is a text they become
// members of a chat completion request, so those that the edge sets itself
// must not be among them.
func (s *scanner) option(c *call, name []byte, llm bool) (err error) {
	if !llm {
		return s.value()
	}
	s.base, s.field = "options.", name
	switch string(name) {
	case "model":
		c.model, err = s.model()
	case "messages", "stream":
		err = invalid("%s: not an option of work: leave it out", s.where())
	default:
		err = s.value()
	}
	return err
}

// asChat makes a chat completion request of a text and options, by joining
// their bytes.
func (c call) asChat() (model string, payload []byte) {
	extra := members(c.options)
	payload = make([]byte, 0, len(c.input)+len(extra)+64)
	payload = append(payload, '{')
	if c.model == "" {
		c.model = Auto
		payload = append(payload, `"model":"auto",`...)
	}
	payload = append(payload, `"messages":[{"role":"user","content":`...)
	payload = append(payload, c.input...)
	payload = append(payload, `}]`...)
	if len(extra) > 0 {
		payload = append(append(payload, ','), extra...)
	}
	return c.model, append(payload, '}')
}

// members gives what stands between the braces of an object that was scanned.
func members(object []byte) []byte {
	if len(object) < 2 {
		return nil
	}
	return bytes.TrimSpace(object[1 : len(object)-1])
}
