package pipeline

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
)

// ask is a caller's request, taken apart.
type ask struct {
	fields   map[string]json.RawMessage // of the body, without model, stream and messages
	messages []json.RawMessage          // all of them, as they came
	system   string                     // what the system and developer messages say
	talk     string                     // the turns before the last message, as text
	text     string                     // the last message: the user's
	unfit    string                     // why it is not for the pipeline, in a fixed word; "" if it is
}

// The fields that only make sense for one model's own answer: with any of them
// the request is one walk. A tool loop is the caller's, several choices,
// probabilities and formats are a model's.
var unfitFields = []struct {
	name, word string
	set        func(json.RawMessage) bool
}{
	{"tools", "tools", filled},
	{"functions", "tools", filled},
	{"web_search_options", "tools", filled},
	{"n", "choices", func(v json.RawMessage) bool { return string(v) != "1" && string(v) != "null" }},
	{"logprobs", "logprobs", func(v json.RawMessage) bool { return string(v) == "true" }},
	{"top_logprobs", "logprobs", func(v json.RawMessage) bool { return string(v) != "0" && string(v) != "null" }},
	{"response_format", "format", formatted},
	{"modalities", "media", mediated},
	{"audio", "media", filled},
	{"prediction", "prediction", filled},
}

func filled(v json.RawMessage) bool {
	switch string(bytes.TrimSpace(v)) {
	case "null", "[]", "{}", "false":
		return false
	}
	return true
}

func formatted(v json.RawMessage) bool {
	var f struct {
		Type string `json:"type"`
	}
	return filled(v) && (json.Unmarshal(v, &f) != nil || f.Type != "text")
}

func mediated(v json.RawMessage) bool {
	var kinds []string
	if json.Unmarshal(v, &kinds) != nil {
		return filled(v)
	}
	for _, k := range kinds {
		if k != "text" {
			return true
		}
	}
	return false
}

var errNoChat = errors.New("the body is no chat completion request")

// readAsk takes body apart. The edge has checked its form; what it did not look
// at makes the request unfit.
func readAsk(body []byte) (*ask, error) {
	a := &ask{}
	if err := json.Unmarshal(body, &a.fields); err != nil || a.fields == nil {
		return nil, errNoChat
	}
	if err := json.Unmarshal(a.fields["messages"], &a.messages); err != nil || len(a.messages) == 0 {
		return nil, errNoChat
	}
	for _, name := range []string{"messages", "model", "stream", "stream_options"} {
		delete(a.fields, name)
	}
	for _, u := range unfitFields {
		if v, given := a.fields[u.name]; given && u.set(v) {
			a.unfit = u.word
			return a, nil
		}
	}
	a.readMessages()
	return a, nil
}

func (a *ask) readMessages() {
	var talk strings.Builder
	for i, raw := range a.messages {
		var m map[string]json.RawMessage
		if json.Unmarshal(raw, &m) != nil {
			a.unfit = "messages"
			return
		}
		var role string
		json.Unmarshal(m["role"], &role) // of another kind: no role that we know
		text, ok := plainText(m["content"])
		switch {
		case role == "tool" || role == "function" || filled(orNull(m["tool_calls"])) || filled(orNull(m["function_call"])):
			a.unfit = "tools"
		case !ok:
			a.unfit = "media"
		case i == len(a.messages)-1 && (role != "user" || blank(text)):
			a.unfit = "messages" // an answer to be continued, or nothing that is asked
		}
		if a.unfit != "" {
			return
		}
		switch {
		case i == len(a.messages)-1:
			a.text = text
		case role == "system" || role == "developer":
			a.system += text + "\n"
		default:
			talk.WriteString(role + ": " + text + "\n")
		}
	}
	a.talk = talk.String()
}

func orNull(v json.RawMessage) json.RawMessage {
	if v == nil {
		return json.RawMessage("null")
	}
	return v
}

// plainText is the text of a message's content; false if it has anything else.
func plainText(content json.RawMessage) (string, bool) {
	var text string
	if len(content) == 0 || string(content) == "null" {
		return "", true
	}
	if json.Unmarshal(content, &text) == nil {
		return text, true
	}
	var parts []struct {
		Type string  `json:"type"`
		Text *string `json:"text"`
	}
	if json.Unmarshal(content, &parts) != nil {
		return "", false
	}
	var texts []string
	for _, p := range parts {
		if p.Type != "text" || p.Text == nil {
			return "", false
		}
		texts = append(texts, *p.Text)
	}
	return strings.Join(texts, "\n"), true
}

// own is the caller's request as it came, without model and stream.
func (a *ask) own() []byte { return encode(a.with(a.messages, true)) }

// saying puts text in the place of the last message, so that all before it (the
// caller's system prompt, its language, the talk) still holds. Roles go on taking
// turns, which some models insist on. Limits of length and stop words are for the
// final answer only.
func (a *ask) saying(text string, final bool) []byte {
	messages := append([]json.RawMessage(nil), a.messages[:len(a.messages)-1]...)
	messages = append(messages, encode(message{"user", text}))
	return encode(a.with(messages, final))
}

var finalFields = []string{"max_tokens", "max_completion_tokens", "stop", "logit_bias", "verbosity"}

func (a *ask) with(messages []json.RawMessage, final bool) map[string]any {
	body := make(map[string]any, len(a.fields)+1)
	for name, value := range a.fields {
		body[name] = value
	}
	if !final {
		for _, name := range finalFields {
			delete(body, name)
		}
	}
	body["messages"] = messages
	return body
}

type message struct {
	Role    string `json:"role"`
	Content string `json:"content"`
}

// instruct is a talk of our own: nothing but what each model takes, since some
// refuse a temperature or a limit in the form that others want.
func instruct(system, user string) []byte {
	return encode(map[string]any{"messages": []message{{"system", system}, {"user", user}}})
}

// encode writes v, which is made of strings and of JSON that was read before.
func encode(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic("BUG: " + err.Error())
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
