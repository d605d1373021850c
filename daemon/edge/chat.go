package edge

import (
	"github.com/chordwheel/chordwheel/chain"
)

// maxModel bounds the name of a model, in bytes.
const maxModel = chain.MaxNameBytes

// chat is what the edge must know of a chat completion request.
type chat struct {
	model    string
	stream   bool
	usage    bool
	messages bool
	carries  span   // the value of transaction_id, where it is a text
	ask      []byte // the last text of the last message of a user, as the JSON string it is; nil without one
}

// asked is what a user said last, `""` where nobody said anything: selection has a
// default for that, as for what matches nothing.
func (c chat) asked() []byte {
	if c.ask == nil {
		return []byte(`""`)
	}
	return c.ask
}

// span is a part of a body.
type span struct{ from, to int }

// readChat checks a whole body as a chat completion request.
func readChat(body []byte, l Limits) (chat, error) {
	s := scan(body, l.Depth)
	defer s.done()
	s.space()
	if s.peek() != '{' {
		return chat{}, s.want("an object")
	}
	c, err := s.chat(l)
	if err == nil {
		err = s.end()
	}
	if err == nil {
		err = c.complete("")
	}
	return c, err
}

// complete demands the fields without which nothing can be done.
func (c chat) complete(base string) error {
	switch {
	case !c.messages:
		return invalid("%smessages: missing: want a list of at least one message", base)
	case c.model == "":
		return invalid("%smodel: missing: name one, or \"auto\"", base)
	}
	return nil
}

// chat passes over the object of a chat completion request.
func (s *scanner) chat(l Limits) (chat, error) {
	var c chat
	err := s.object(func(name []byte) error {
		s.field, s.index = name, -1
		err := s.chatField(&c, name, l)
		s.field, s.index = nil, -1
		return err
	})
	return c, err
}

func (s *scanner) chatField(c *chat, name []byte, l Limits) (err error) {
	switch string(name) {
	case "model":
		c.model, err = s.model()
	case "stream":
		c.stream, err = s.boolean("")
	case "stream_options":
		return s.streamOptions(c)
	case "messages":
		c.messages = true
		return s.messages(c, l)
	case "transaction_id":
		from, text := s.i, s.peek() == '"'
		if err = s.value(); err == nil && text {
			c.carries = span{from, s.i}
		}
	default:
		return s.value()
	}
	return err
}

func (s *scanner) model() (string, error) {
	if s.peek() != '"' {
		return "", s.want("a string")
	}
	raw, escaped, err := s.text()
	if err != nil {
		return "", err
	}
	if escaped {
		raw = appendUnquoted(nil, raw)
	}
	switch {
	case string(raw) == Auto:
		return Auto, nil
	case len(raw) == 0 || len(raw) > maxModel:
		return "", invalid("%s: want 1 to %d bytes, or \"auto\"", s.where(), maxModel)
	}
	return string(raw), nil
}

// boolean reads true, false or null.
func (s *scanner) boolean(inner string) (bool, error) {
	switch s.peek() {
	case 't':
		return true, s.literal("true")
	case 'f':
		return false, s.literal("false")
	case 'n':
		return false, s.literal("null")
	}
	return false, invalid("%s%s: want true or false", s.where(), inner)
}

func (s *scanner) streamOptions(c *chat) error {
	switch s.peek() {
	case 'n':
		return s.literal("null")
	case '{':
	default:
		return s.want("an object")
	}
	return s.object(func(name []byte) (err error) {
		if string(name) != "include_usage" {
			return s.value()
		}
		c.usage, err = s.boolean(".include_usage")
		return err
	})
}

// want says that a field has a value of another kind, unless the value is not
// even JSON.
func (s *scanner) want(kind string) error {
	if err := s.value(); err != nil {
		return err
	}
	return invalid("%s: want %s", s.where(), kind)
}

func (s *scanner) messages(c *chat, l Limits) error {
	if s.peek() != '[' {
		return s.want("a list of messages")
	}
	err := s.array(func() error {
		if s.index++; s.index >= l.Messages {
			return invalid("%s: more than %d messages", s.base+"messages", l.Messages)
		}
		return s.message(c)
	})
	if err == nil && s.index < 0 {
		return invalid("%s: empty: want at least one message", s.where())
	}
	return err
}

func (s *scanner) message(c *chat) error {
	if s.peek() != '{' {
		return s.want("an object")
	}
	var role, said []byte
	err := s.object(func(name []byte) (err error) {
		switch string(name) {
		case "role":
			role, err = s.role()
		case "content":
			said, err = s.content()
		default:
			err = s.value()
		}
		return err
	})
	if err == nil && role == nil {
		return invalid("%s.role: missing: want system, user, assistant, tool or developer", s.where())
	}
	if string(role) == "user" && said != nil {
		c.ask = said
	}
	return err
}

// content passes over what a message says and gives the last text in it. What it
// may be is the upstream's to judge.
func (s *scanner) content() (said []byte, err error) {
	start := s.i
	switch s.peek() {
	case '"':
		_, _, err = s.text()
		return s.b[start:s.i], err
	case '[':
		err = s.array(func() error {
			if s.peek() != '{' {
				return s.value()
			}
			return s.object(func(name []byte) error {
				start, text := s.i, s.peek() == '"' && string(name) == "text"
				err := s.value()
				if text && err == nil {
					said = s.b[start:s.i]
				}
				return err
			})
		})
		return said, err
	}
	return nil, s.value()
}

func (s *scanner) role() ([]byte, error) {
	if s.peek() != '"' {
		if err := s.value(); err != nil {
			return nil, err
		}
		return nil, invalid("%s.role: want a string", s.where())
	}
	raw, escaped, err := s.text()
	if err != nil {
		return nil, err
	}
	if escaped {
		raw = appendUnquoted(nil, raw)
	}
	switch string(raw) {
	case "system", "user", "assistant", "tool", "developer":
		return raw, nil
	}
	return nil, invalid("%s.role: unknown role %q: want system, user, assistant, tool or developer", s.where(), chain.ClipTo(string(raw), 32))
}
