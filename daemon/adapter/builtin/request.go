package builtin

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// errRequest is what the caller did wrong, errFeature what primer cannot do.
var (
	errRequest = errors.New("the request is not a chat completion")
	errFeature = errors.New("the builtin model cannot do that")
)

// question is what primer takes from a chat completion request.
type question struct {
	text   string   // of the last user message
	tokens int64    // in all messages
	limit  int      // most tokens of the answer; 0: no limit
	stop   []string // texts before which the answer ends
}

type request struct {
	Messages []struct {
		Role    string          `json:"role"`
		Content json.RawMessage `json:"content"`
	} `json:"messages"`
	N                   *int64          `json:"n"`
	MaxTokens           *int64          `json:"max_tokens"`
	MaxCompletionTokens *int64          `json:"max_completion_tokens"`
	Stop                json.RawMessage `json:"stop"`
	ToolChoice          json.RawMessage `json:"tool_choice"`
	ResponseFormat      *struct {
		Type string `json:"type"`
	} `json:"response_format"`
	Logprobs   *bool    `json:"logprobs"`
	Modalities []string `json:"modalities"`
}

// read takes a request apart. Its errors wrap errRequest or errFeature.
func read(body []byte) (question, error) {
	var r request
	var q question
	d := json.NewDecoder(bytes.NewReader(body))
	if err := d.Decode(&r); err != nil || d.More() {
		return q, fmt.Errorf("%w: a JSON object with messages is wanted", errRequest)
	}
	if len(r.Messages) == 0 {
		return q, fmt.Errorf("%w: messages is missing or empty", errRequest)
	}
	if err := r.able(); err != nil {
		return q, err
	}
	for _, m := range r.Messages {
		text, err := content(m.Content)
		if err != nil {
			return q, err
		}
		q.tokens += int64(len(pieces(text)))
		if m.Role == "user" {
			q.text = text
		}
	}
	for _, limit := range []*int64{r.MaxTokens, r.MaxCompletionTokens} {
		if limit == nil {
			continue
		}
		if *limit < 1 {
			return q, fmt.Errorf("%w: max_tokens must be at least 1", errRequest)
		}
		q.limit = int(min(*limit, 1<<20))
	}
	var err error
	q.stop, err = stops(r.Stop)
	return q, err
}

// able refuses what only a real model can do.
func (r *request) able() error {
	refuse := func(what string) error { return fmt.Errorf("%w: %s", errFeature, what) }
	switch choice := strings.TrimSpace(string(r.ToolChoice)); choice {
	case "", "null", `"none"`, `"auto"`:
	default:
		return refuse("it never calls tools, and tool_choice demands it")
	}
	switch {
	case r.ResponseFormat != nil && r.ResponseFormat.Type != "" && r.ResponseFormat.Type != "text":
		return refuse("it answers in plain text only, and response_format asks for JSON")
	case r.N != nil && *r.N > 1:
		return refuse("it gives one choice, and n asks for more")
	case r.Logprobs != nil && *r.Logprobs:
		return refuse("it has no log probabilities")
	}
	for _, m := range r.Modalities {
		if m != "text" {
			return refuse("it speaks text only, and modalities asks for more")
		}
	}
	return nil
}

// content gives a message's text: a string, null, or parts that are all text.
func content(raw json.RawMessage) (string, error) {
	var text string
	if len(raw) == 0 || json.Unmarshal(raw, &text) == nil { // null too
		return text, nil
	}
	var parts []struct {
		Type    string `json:"type"`
		Text    string `json:"text"`
		Refusal string `json:"refusal"`
	}
	if json.Unmarshal(raw, &parts) != nil {
		return "", fmt.Errorf("%w: content must be a text or a list of parts", errRequest)
	}
	var all []string
	for _, p := range parts {
		switch p.Type {
		case "text":
			all = append(all, p.Text)
		case "refusal":
			all = append(all, p.Refusal)
		default:
			return "", fmt.Errorf("%w: it reads text only, and a message has other parts", errFeature)
		}
	}
	return strings.Join(all, "\n"), nil
}

// stops reads the stop texts: one, or a list.
func stops(raw json.RawMessage) ([]string, error) {
	var one string
	var list []string
	switch {
	case len(raw) == 0 || string(raw) == "null":
		return nil, nil
	case json.Unmarshal(raw, &one) == nil:
		list = []string{one}
	case json.Unmarshal(raw, &list) != nil || len(list) > 16:
		return nil, fmt.Errorf("%w: stop must be a text or a short list of texts", errRequest)
	}
	var used []string
	for _, s := range list {
		if s != "" {
			used = append(used, s)
		}
	}
	return used, nil
}

// pieces cuts text into primer's tokens: a word with the white space before it.
// Together they are the text.
func pieces(text string) []string {
	var out []string
	from, inWord := 0, false
	for i, r := range text {
		blank := r == ' ' || r == '\n' || r == '\t' || r == '\r'
		if blank && inWord {
			out = append(out, text[from:i])
			from = i
		}
		inWord = !blank
	}
	if from < len(text) {
		out = append(out, text[from:])
	}
	return out
}

// cut shortens an answer as the caller wished, and gives the finish reason.
func (q *question) cut(text string) (kept []string, finish string) {
	for _, s := range q.stop {
		text, _, _ = strings.Cut(text, s)
	}
	kept = pieces(text)
	if q.limit > 0 && len(kept) > q.limit {
		return kept[:q.limit], "length"
	}
	return kept, "stop"
}
