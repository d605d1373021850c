package daemon_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/adapter/openai"
	"github.com/chordwheel/chordwheel/daemon/adapter/providertest"
	"github.com/chordwheel/chordwheel/daemon/edge"
)

// healthyText is what the second option says, where there is one.
const healthyText = "the second option's answer"

// TestEveryFaultOfAProviderEndsAsTheRulesOfTheWalkSay plays each fault through
// the real edge, daemon, walk and adapter: streamed and plain, alone and before a
// healthy option.
func TestEveryFaultOfAProviderEndsAsTheRulesOfTheWalkSay(t *testing.T) {
	adapter := openai.New(openai.Config{ConnectTimeout: 20 * time.Second})
	t.Cleanup(adapter.Close)
	for _, fault := range providertest.Faults() {
		for _, stream := range []bool{true, false} {
			for _, alone := range []bool{true, false} {
				name := fault.Name + "/" + map[bool]string{true: "streamed", false: "plain"}[stream] + map[bool]string{true: "/alone", false: "/before a healthy option"}[alone]
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					playFault(t, adapter, fault, stream, alone)
				})
			}
		}
	}
}

func playFault(t *testing.T, adapter *openai.Adapter, fault providertest.Fault, stream, alone bool) {
	first := fault.Start(t)
	second := providertest.New(t, providertest.Healthy(healthyText))
	options := "alpha/faulty first=60s idle=60s total=60s endpoint=" + first.Endpoint()
	switch {
	case fault.Hangs && stream && fault.Streamed.Then == providertest.Breaks: // until a limit ends it, which is not that of what comes before
		options = "alpha/faulty first=60s idle=1500ms total=60s endpoint=" + first.Endpoint()
	case fault.Hangs:
		options = "alpha/faulty first=1500ms idle=1500ms total=3s endpoint=" + first.Endpoint()
	}
	if !alone {
		options += " | beta/good first=60s idle=60s total=60s context=200000 features=tools,images endpoint=" + second.Endpoint()
	}
	got := askEdge(t, adapter, options, stream)
	expect := fault.Plain
	if stream {
		expect = fault.Streamed
	}
	text := fault.Text
	if text == "" {
		text = providertest.Text
	}
	if stream && got.status == http.StatusOK && !got.done {
		t.Error("a stream ends with [DONE]")
	}
	switch expect.Then {
	case providertest.Answers:
		if got.status != http.StatusOK || got.text != text || got.err != nil || got.option != "alpha/faulty" {
			t.Errorf("want its own answer, got %s", got)
		}
	case providertest.Breaks:
		if got.status != http.StatusOK || got.err == nil || got.err.Code != string(edge.UpstreamError) || got.finished {
			t.Errorf("want an error event in the middle, got %s", got)
		}
		if !strings.HasPrefix(providertest.Text, got.text) || got.text == "" {
			t.Errorf("what came before the break is %.60q", got.text)
		}
	case providertest.Stops:
		if got.status != http.StatusBadRequest && got.status != http.StatusUnprocessableEntity {
			t.Errorf("want the refusal passed through, got %s", got)
		}
	case providertest.Next:
		if !alone {
			if got.status != http.StatusOK || got.text != healthyText || got.err != nil || got.option != "beta/good" {
				t.Errorf("want the second option's answer and nothing of the first, got %s", got)
			}
			return
		}
		wantFinal(t, expect.Class, got)
	}
	if n := len(second.Requests()); n > 0 {
		t.Errorf("the second option was asked %d times", n)
	}
}

// wantFinal checks the final error when the only option failed with class.
func wantFinal(t *testing.T, class chain.Class, got reply) {
	t.Helper()
	status, code := http.StatusBadGateway, edge.UpstreamError
	switch class {
	case chain.Timeout:
		status, code = http.StatusGatewayTimeout, edge.UpstreamTimeout
	case chain.Credentials:
		code = edge.UpstreamCredentials
	case chain.RateLimited:
		status, code = http.StatusTooManyRequests, edge.RateLimited
	case chain.ContextLength, chain.Feature:
		if got.status != http.StatusBadRequest && got.status != http.StatusUnprocessableEntity {
			t.Errorf("want the upstream's refusal, got %s", got)
		}
		return
	}
	if got.status != status || got.err == nil || got.err.Code != string(code) {
		t.Errorf("want %d %s, got %s", status, code, got)
		return
	}
	if len(got.err.Attempts) != 1 || got.err.Attempts[0].Class != string(class) || got.err.Attempts[0].Option != "alpha/faulty" {
		t.Errorf("attempts %+v: want alpha/faulty with %s", got.err.Attempts, class)
	}
	if status == http.StatusTooManyRequests && got.retryAfter == "" {
		t.Error("a 429 says when to come again")
	}
}

// reply is what a caller of the edge got.
type reply struct {
	status     int
	option     string
	retryAfter string
	text       string
	finished   bool // a finish reason was seen
	done       bool // [DONE] was seen
	err        *edge.ErrorDetail
}

func (r reply) String() string {
	b, _ := json.Marshal(r.err)
	text := r.text
	if len(text) > 60 {
		text = text[:60] + "…"
	}
	return strings.TrimSpace(strings.Join([]string{http.StatusText(r.status), r.option, text, string(b)}, " | "))
}

// askEdge puts options in force on a new device and asks its edge once.
func askEdge(t *testing.T, adapter *openai.Adapter, options string, stream bool) reply {
	t.Helper()
	b := bareWith(t, newMemory(), adapter)
	b.hub.serve(options)
	if err := b.Join(t.Context(), b.invitation()); err != nil {
		t.Fatal(err)
	}
	<-b.Visited()
	// A machine that is busy may be silent for long: no keep-alive fixes a status before
	// anything has answered, and no limit of the edge's own ends it.
	e, err := edge.New(edge.Config{Worker: b.Daemon, Log: slog.New(slog.DiscardHandler), Limits: edge.Limits{KeepAlive: time.Hour, BodyRead: time.Hour, Write: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(e)
	defer server.Close()
	body, _ := json.Marshal(map[string]any{"model": "auto", "stream": stream, "messages": []any{map[string]string{"role": "user", "content": "hi"}}})
	response, err := http.Post(server.URL+"/v1/chat/completions", "application/json", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	got := reply{status: response.StatusCode, option: response.Header.Get("X-Chordwheel-Option"), retryAfter: response.Header.Get("Retry-After")}
	if response.StatusCode == http.StatusOK && stream {
		got.readStream(t, response.Body)
		return got
	}
	got.readPlain(t, response.Body)
	return got
}

func (r *reply) readPlain(t *testing.T, body io.Reader) {
	t.Helper()
	var answer struct {
		Choices []struct {
			Message struct {
				Content string `json:"content"`
			} `json:"message"`
		} `json:"choices"`
		Error *edge.ErrorDetail `json:"error"`
	}
	if err := json.NewDecoder(body).Decode(&answer); err != nil {
		t.Fatalf("the answer is not JSON: %v", err)
	}
	r.err = answer.Error
	for _, c := range answer.Choices {
		r.text += c.Message.Content
	}
}

func (r *reply) readStream(t *testing.T, body io.Reader) {
	t.Helper()
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 32<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		if !ok {
			continue
		}
		if r.done {
			t.Error("something came after [DONE]")
		}
		if data == "[DONE]" {
			r.done = true
			continue
		}
		var event struct {
			Choices []struct {
				Delta struct {
					Content string `json:"content"`
				} `json:"delta"`
				Finish string `json:"finish_reason"`
			} `json:"choices"`
			Error *edge.ErrorDetail `json:"error"`
		}
		if err := json.Unmarshal([]byte(data), &event); err != nil {
			t.Fatalf("an event is not JSON: %v", err)
		}
		if event.Error != nil {
			r.err = event.Error
		}
		for _, c := range event.Choices {
			r.text += c.Delta.Content
			r.finished = r.finished || c.Finish != ""
		}
	}
	if err := lines.Err(); err != nil {
		t.Errorf("the stream was cut: %v", err)
	}
}
