package daemon

import (
	"encoding/json"
	"strings"
)

// Why an answer ended, in the words of a chat completion.
const (
	finishStop   = "stop"
	finishLength = "length"
)

// wordsOf gives the text of a chat completion, or of one event of its stream; ""
// where there is none. What a model thought before it spoke is no part of it. short
// says that the model stopped at a limit of length.
func wordsOf(data []byte, stream bool) (text string, short bool) {
	var a struct {
		Choices []struct {
			Index   int      `json:"index"`
			Message saidPart `json:"message"`
			Delta   saidPart `json:"delta"`
			Finish  any      `json:"finish_reason"` // mostly null
		} `json:"choices"`
	}
	if json.Unmarshal(data, &a) != nil {
		return "", false
	}
	for _, c := range a.Choices {
		switch {
		case c.Index != 0:
		case stream:
			return c.Delta.text(), c.Finish == finishLength
		default:
			return c.Message.text(), c.Finish == finishLength
		}
	}
	return "", false
}

type saidPart struct {
	Content json.RawMessage `json:"content"`
}

// text gives content that is a text, or a list of parts with texts.
func (p saidPart) text() string {
	var text string
	if json.Unmarshal(p.Content, &text) == nil {
		return text
	}
	var parts []struct {
		Text string `json:"text"`
	}
	if json.Unmarshal(p.Content, &parts) != nil {
		return ""
	}
	var all strings.Builder
	for _, part := range parts {
		all.WriteString(part.Text)
	}
	return all.String()
}
