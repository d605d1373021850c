package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/retry"
)

// refused classifies an answer whose status is not 2xx. text is its body,
// decompressed, as far as it could be read.
func refused(status int, h http.Header, text []byte, now time.Time) walk.Outcome {
	o := walk.Outcome{Status: status, Class: byStatus(status)}
	o.RetryAfter, o.HasRetryAfter = retry.After(h, now)
	if tells(status) {
		if c, ok := recognise(text); ok {
			o.Class = c
		}
	}
	switch o.Class {
	case chain.CallerError, chain.ContextLength, chain.Feature, chain.Filtered:
		o.Answer = passed(status, h, text)
	}
	return o
}

// leastSecret is the length of a key from which on it is looked for: the places
// of a shorter one could be anything.
const leastSecret = 8

// withoutSecret gives an upstream's words without the device's key: a server
// that repeats the headers it got would tell it to whoever asks.
func withoutSecret(text []byte, key chain.Secret) []byte {
	if len(key) < leastSecret {
		return text
	}
	return bytes.ReplaceAll(text, []byte(key.Reveal()), []byte("***"))
}

// tells reports whether the text of an answer with this status may say that
// this model, and not the request or the server, is the wrong one: the dialect's
// speakers use all of these for a prompt that is too long or a missing feature.
func tells(status int) bool {
	switch status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity, http.StatusNotFound, http.StatusRequestEntityTooLarge,
		http.StatusInternalServerError:
		return true
	}
	return false
}

// byStatus is the table for statuses alone.
func byStatus(status int) chain.Class {
	switch status {
	case http.StatusTooManyRequests, 529:
		return chain.RateLimited
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden:
		return chain.Credentials
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return chain.CallerError
	}
	return chain.Status
}

// passed is an upstream's refusal as the caller gets it: as it came, or, where
// nothing readable came, in a few words of ours.
func passed(status int, h http.Header, text []byte) *walk.Answer {
	if len(text) == 0 {
		return refusal(status, "the upstream refused the request and gave no reason", "upstream_refused")
	}
	kind := h.Get("Content-Type")
	if kind == "" {
		kind = "application/json"
	}
	return &walk.Answer{Status: status, ContentType: kind, Body: text}
}

// refusal makes an answer in the dialect's error shape.
func refusal(status int, message, code string) *walk.Answer {
	b := append([]byte(`{"error":{"message":`), quote(message)...)
	b = append(append(b, `,"type":"invalid_request_error","code":`...), quote(code)...)
	return &walk.Answer{Status: status, ContentType: "application/json", Body: append(b, "}}"...)}
}

// problem is what the error objects of the dialect's many speakers have in
// common. Fields of another type than expected are left empty.
type problem struct {
	code, kind, param, message string
}

// readProblem finds the error in text: {"error":{…}}, {"error":"…"}, a bare
// {"message","type","code"} or {"detail"}, or a list around one of them.
func readProblem(text []byte) problem {
	var members map[string]json.RawMessage
	if list := []json.RawMessage(nil); json.Unmarshal(text, &list) == nil && len(list) > 0 {
		text = list[0]
	}
	if json.Unmarshal(text, &members) != nil {
		return problem{}
	}
	var inner map[string]json.RawMessage
	if e, ok := members["error"]; ok {
		if json.Unmarshal(e, &inner) != nil {
			return problem{message: lower(e)}
		}
		members = inner
	}
	p := problem{code: lower(members["code"]), kind: lower(members["type"]), param: lower(members["param"]), message: lower(members["message"])}
	if p.message == "" {
		p.message = detail(members["detail"])
	}
	var cause struct {
		Code string `json:"code"`
	}
	if json.Unmarshal(members["innererror"], &cause) == nil && cause.Code != "" {
		p.kind += " " + strings.ToLower(cause.Code)
	}
	return p
}

// detail reads how one family of web frameworks reports: a text, or a list of
// places in the body with what is wrong there. What they echo of the body is
// left out: its words are the caller's.
func detail(raw json.RawMessage) string {
	var list []struct {
		Place   []any  `json:"loc"`
		Message string `json:"msg"`
	}
	if json.Unmarshal(raw, &list) != nil {
		return lower(raw)
	}
	var all []string
	for _, d := range list[:min(len(list), 16)] {
		all = append(all, fmt.Sprint(d.Place...)+": "+d.Message)
	}
	return strings.ToLower(strings.Join(all, "; "))
}

func lower(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return strings.ToLower(s)
}

// signs are words by which the dialect's speakers say the same thing. codes are
// compared whole with an error's code and type, phrases are looked for in its
// message, in lower case.
type signs struct {
	class   chain.Class
	codes   []string
	phrases []string
}

// known is ordered: a filter's no is looked for first, because its messages
// quote the others' words the least.
var known = []signs{
	{chain.Filtered,
		[]string{"content_filter", "content_policy_violation", "responsibleaipolicyviolation", "data_inspection_failed", "moderation_blocked"},
		[]string{"content management policy", "content filter", "content policy", "safety system", "flagged by our", "flagged as potentially"}},
	{chain.ContextLength,
		[]string{"context_length_exceeded", "exceed_context_size_error", "context_window_exceeded", "model_max_prompt_tokens_exceeded"},
		[]string{"maximum context length", "context length exceeded", "exceeds the context", "exceed the context", "exceeds the available context",
			"context window", "context size", "prompt is too long", "input is too long", "too many tokens in the prompt", "max_model_len",
			"reduce the length of the messages", "longer than the model's context", "exceeds the maximum number of tokens"}},
	{chain.Feature,
		[]string{"unsupported_parameter", "unsupported_value", "unsupported_feature", "tool_use_unsupported", "feature_not_supported"},
		[]string{"does not support", "do not support", "doesn't support", "not supported by this model", "not supported with this model",
			"is not supported for this model", "no endpoints found that support", "not a multimodal model", "is not multimodal",
			"tool choice requires", "image input is not supported"}},
}

// recognise looks for a reason that concerns this model and not the request.
func recognise(text []byte) (chain.Class, bool) {
	p := readProblem(text)
	for _, s := range known {
		for _, c := range s.codes {
			if p.code == c || strings.Contains(" "+p.kind+" ", " "+c+" ") {
				return s.class, true
			}
		}
		for _, phrase := range s.phrases {
			if strings.Contains(p.message, phrase) {
				return s.class, true
			}
		}
	}
	return "", false
}
