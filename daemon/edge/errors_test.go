package edge

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
)

var update = flag.Bool("update", false, "write the golden files anew")

// golden compares got with a file of testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := "testdata/" + name
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("%s differs; go test -update writes it anew after a change that is meant\ngot:\n%s", path, got)
	}
}

// failing answers each request as one walk result or refusal says.
func failing(res walk.Result, err error) *fake {
	return &fake{do: func(context.Context, *Work, walk.Deliver) (walk.Result, error) { return res, err }}
}

// show asks for a chat and gives the whole answer as a few lines.
func show(t *testing.T, name string, f *fake) string {
	t.Helper()
	w := do(newEdge(t, f), ask("POST", "/v1/chat/completions", helloReq, headerRequestID, "r1"))
	errorOf(t, w)
	out := fmt.Sprintf("%s\n  %d", name, w.Code)
	for _, h := range []string{"Retry-After", headerOption, headerAttempts} {
		if v := w.Header().Get(h); v != "" {
			out += fmt.Sprintf("  %s: %s", h, v)
		}
	}
	return out + "\n  " + sortedMembers(w.Body.String()) + "\n\n"
}

// Every code of openapi.yaml has its status and type.
func TestErrorTable(t *testing.T) {
	var codes []string
	for code := range verdicts {
		if !code.Valid() {
			t.Errorf("%s is not in openapi.yaml", code)
		}
		codes = append(codes, string(code))
	}
	slices.Sort(codes)
	var b strings.Builder
	for _, code := range codes {
		b.WriteString(show(t, code, failing(walk.Result{}, Refuse(Code(code), "a message"))))
	}
	b.WriteString(show(t, "overloaded, with a wait of its own", failing(walk.Result{}, &Refusal{Code: Overloaded, Message: "a message", RetryAfter: 2100 * time.Millisecond})))
	golden(t, "codes.golden", b.String())
}

// Every end of a walk has its answer.
func TestEndTable(t *testing.T) {
	failures := []chain.Failure{{Option: "alpha/small", Class: chain.Timeout}, {Option: "peer", Class: chain.NoPeer}, {Option: "beta/small", Class: chain.Status}}
	var many []chain.Failure
	for i := range 9 {
		many = append(many, chain.Failure{Option: chain.OptionID(fmt.Sprintf("o%d", i)), Class: chain.Timeout})
	}
	var b strings.Builder
	for _, c := range []struct {
		name string
		res  walk.Result
	}{
		{"all timed out", walk.Result{End: walk.AllTimedOut, Option: "beta/small", Attempts: 2, Failures: failures}},
		{"all timed out, many options", walk.Result{End: walk.AllTimedOut, Option: "o8", Attempts: 9, Failures: many}},
		{"all credentials", walk.Result{End: walk.AllCredentials, Option: "beta/small", Attempts: 2, Failures: []chain.Failure{{Option: "beta/small", Class: chain.Credentials}}}},
		{"all cooling", walk.Result{End: walk.AllCooling, Failures: []chain.Failure{{Option: "beta/small", Class: chain.Cooling}}, RetryAfter: 12300 * time.Millisecond}},
		{"all cooling, nobody knows for how long", walk.Result{End: walk.AllCooling}},
		{"nothing to try", walk.Result{End: walk.NothingToTry, Failures: []chain.Failure{{Option: "peer", Class: chain.NoPeer}}}},
		{"nothing to try for want of money", walk.Result{End: walk.NothingToTry, Failures: []chain.Failure{{Option: "alpha/small", Class: chain.Ceiling}}}},
		{"over the application's budget", walk.Result{End: walk.OverBudget, Why: "the budget of application notes is used up until 2026-12-01T00:00:00Z", RetryAfter: time.Hour, Failures: []chain.Failure{{Option: "alpha/small", Class: chain.Ceiling, Why: "the caller's own budget"}}}},
		{"all failed", walk.Result{End: walk.AllFailed, Option: "beta/small", Attempts: 2, Failures: failures}},
		{"escalating", walk.Result{End: walk.Escalating, Option: "beta/small", Attempts: 2, Failures: failures}},
		{"broken before anything went out", walk.Result{End: walk.Broken, Option: "alpha/small", Attempts: 1}},
	} {
		b.WriteString(show(t, c.name, failing(c.res, nil)))
	}
	golden(t, "ends.golden", b.String())
}

// An upstream's refusal of the request reaches the caller in the error shape,
// whatever shape it had, and never as the caller's own missing rights.
func TestPassThrough(t *testing.T) {
	var b strings.Builder
	for _, c := range []struct {
		name   string
		answer *walk.Answer
	}{
		{"OpenAI's shape", &walk.Answer{Status: 400, Body: []byte(`{"error":{"message":"max_tokens is too large","type":"invalid_request_error","param":"max_tokens","code":"integer_above_max_value","extra":1}}`)}},
		{"null and numbers for texts", &walk.Answer{Status: 422, Body: []byte(`{"error":{"message":"bad","type":null,"param":{"a":1},"code":400}}`)}},
		{"error as a text", &walk.Answer{Status: 400, Body: []byte(`{"error":"model does not support tools"}`)}},
		{"message at the top", &walk.Answer{Status: 400, Body: []byte(`{"object":"error","message":"bad role","code":40001}`)}},
		{"detail as a text", &walk.Answer{Status: 422, Body: []byte(`{"detail":"bad field"}`)}},
		{"detail as a list", &walk.Answer{Status: 422, Body: []byte(`{"detail":[{"loc":["body","n"],"msg":"no number"}]}`)}},
		{"HTML", &walk.Answer{Status: 400, ContentType: "text/html", Body: []byte(`<html>no</html>`)}},
		{"nothing", &walk.Answer{Status: 400}},
		{"no answer", nil},
		{"401", &walk.Answer{Status: 401, Body: []byte(`{"error":{"message":"a filter said no","type":"x","code":"content_filter"}}`)}},
		{"long", &walk.Answer{Status: 400, Body: []byte(`{"error":{"message":"` + strings.Repeat("m", 5000) + `"}}`)}},
		{"line breaks", &walk.Answer{Status: 400, Body: []byte(`{"error":{"message":"one\r\ntwo\u001b[31m"}}`)}},
	} {
		b.WriteString(show(t, c.name, failing(walk.Result{End: walk.Refused, Option: "alpha/small", Attempts: 1, Answer: c.answer}, nil)))
	}
	golden(t, "passthrough.golden", b.String())
}

func TestSeconds(t *testing.T) {
	for d, want := range map[time.Duration]string{-time.Second: "1", 0: "1", time.Nanosecond: "1", time.Second: "1", 1001 * time.Millisecond: "2", time.Hour: "3600"} {
		if got := seconds(d); got != want {
			t.Errorf("%s: %s, want %s", d, got, want)
		}
	}
}

// Any answer of an upstream gives a complete error.
func FuzzPassThrough(f *testing.F) {
	f.Add(400, []byte(`{"error":{"message":"m","type":"t","param":"p","code":"c"}}`))
	f.Add(422, []byte(`{"detail":[1]}`))
	f.Fuzz(func(t *testing.T, status int, body []byte) {
		got := passThrough(&walk.Answer{Status: status, Body: body})
		if got.status != 400 && got.status != 422 || got.detail.Message == "" || got.detail.Type == "" || got.detail.Code == "" || len(got.detail.Message) > 5000 {
			t.Fatalf("%d %q: %+v", status, body, got)
		}
	})
}

// A failure that says more than its class says it in the message, within bounds.
func TestAFailureInWords(t *testing.T) {
	f := failureOfResult(walk.Result{End: walk.NothingToTry, Failures: []chain.Failure{{Option: "peer", Class: chain.Declined, Why: "nas: its owner shares nothing now"}, {Option: "alpha/small", Class: chain.Cooling}}})
	if want := "(peer: declined (nas: its owner shares nothing now), alpha/small: cooling)"; !strings.HasSuffix(f.detail.Message, want) {
		t.Errorf("%q, want it to end with %q", f.detail.Message, want)
	}
	f = failureOfResult(walk.Result{End: walk.NothingToTry, Failures: []chain.Failure{{Option: "peer", Class: chain.Declined, Why: strings.Repeat("x", 9999)}}})
	if len(f.detail.Message) > 1024 {
		t.Errorf("%d bytes", len(f.detail.Message))
	}
}
