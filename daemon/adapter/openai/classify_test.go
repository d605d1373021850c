package openai

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

// TestReasons holds refusals as the dialect's speakers word them.
func TestReasons(t *testing.T) {
	for _, tt := range []struct {
		name   string
		status int
		body   string
		want   chain.Class
	}{
		{"context by code", 400, `{"error":{"message":"x","type":"invalid_request_error","param":"messages","code":"context_length_exceeded"}}`, chain.ContextLength},
		{"context by type", 400, `{"error":{"code":400,"message":"request (9000 tokens) too long","type":"exceed_context_size_error","n_ctx":4096}}`, chain.ContextLength},
		{"context by text", 400, `{"object":"error","message":"This model's maximum context length is 2048 tokens. However, you requested 5000","type":"BadRequestError","code":400}`, chain.ContextLength},
		{"context as detail", 422, `{"detail":"Prompt is too long: 9000 tokens"}`, chain.ContextLength},
		{"context as 413", 413, `{"error":{"message":"Please reduce the length of the messages or completion."}}`, chain.ContextLength},
		{"context as 500", 500, `{"error":"the request exceeds the available context size"}`, chain.ContextLength},
		{"context in a list", 400, `[{"error":{"code":400,"message":"The input token count exceeds the maximum number of tokens allowed (1000)."}}]`, chain.ContextLength},
		{"tools", 400, `{"error":{"message":"registry.example/library/tiny:latest does not support tools","type":"api_error"}}`, chain.Feature},
		{"tools as 404", 404, `{"error":{"message":"No endpoints found that support tool use","code":404}}`, chain.Feature},
		{"images", 400, `{"error":{"message":"at most 0 image(s) may be provided: the model is not a multimodal model"}}`, chain.Feature},
		{"parameter", 400, `{"error":{"message":"Unsupported parameter: 'temperature' is not supported with this model.","code":"unsupported_parameter"}}`, chain.Feature},
		{"filter by code", 400, `{"error":{"message":"blocked","code":"content_filter"}}`, chain.Filtered},
		{"filter inside", 400, `{"error":{"message":"blocked","code":"x","innererror":{"code":"ResponsibleAIPolicyViolation"}}}`, chain.Filtered},
		{"filter by text", 400, `{"error":{"message":"Your request was rejected by our safety system."}}`, chain.Filtered},
		{"caller's own", 400, `{"error":{"message":"'messages' is a required property","type":"invalid_request_error","code":null}}`, chain.CallerError},
		{"caller's own number", 422, `{"detail":[{"loc":["body","temperature"],"msg":"must be at most 2"}]}`, chain.CallerError},
		{"context in a list of places", 422, `{"detail":[{"loc":["body","messages",0],"msg":"input is too long","input":"x"}]}`, chain.ContextLength},
		{"an echo of the caller's words does not count", 422, `{"detail":[{"loc":["body"],"msg":"field required","input":"what is a context window?"}]}`, chain.CallerError},
		{"words in another status do not count", 503, `{"error":{"message":"maximum context length"}}`, chain.Status},
		{"nor where keys are wrong", 401, `{"error":{"message":"content policy"}}`, chain.Credentials},
		{"nor where it is busy", 429, `{"error":{"message":"too many tokens in the prompt"}}`, chain.RateLimited},
		{"no such model", 404, `{"error":{"message":"model 'x' not found"}}`, chain.Status},
		{"nonsense", 400, `<html>maximum context length</html>`, chain.CallerError},
		{"odd types", 400, `{"error":{"message":7,"code":[],"type":{}}}`, chain.CallerError},
	} {
		o := refused(tt.status, http.Header{"Content-Type": {"application/json"}}, []byte(tt.body), noon)
		if o.Class != tt.want || o.Status != tt.status {
			t.Errorf("%s: %s, want %s", tt.name, o.Class, tt.want)
		}
		if o.Answer != nil && (string(o.Answer.Body) != tt.body || o.Answer.Status != tt.status) {
			t.Errorf("%s: the answer was changed: %s", tt.name, o.Answer.Body)
		}
		if (o.Class == chain.CallerError) && o.Answer == nil {
			t.Errorf("%s: nothing to pass through", tt.name)
		}
	}
}

func TestRefusalsAreInTheErrorShape(t *testing.T) {
	a := refusal(400, "a \"quoted\"\nreason", "code")
	var e struct {
		Error struct{ Message, Type, Code string }
	}
	if err := json.Unmarshal(a.Body, &e); err != nil || e.Error.Message != "a \"quoted\"\nreason" || e.Error.Type != "invalid_request_error" || e.Error.Code != "code" {
		t.Errorf("%s (%v)", a.Body, err)
	}
}

func FuzzRefused(f *testing.F) {
	f.Add(400, `{"error":{"message":"maximum context length"}}`)
	f.Add(429, `{}`)
	f.Add(500, `[{"error":"x"}]`)
	f.Fuzz(func(t *testing.T, status int, body string) {
		o := refused(status, http.Header{}, []byte(body), noon)
		if !o.Class.Known() || o.Class == chain.OK || o.Answer != nil && len(body) > 0 && !strings.HasPrefix(string(o.Answer.Body), body) {
			t.Errorf("%d %q: %+v", status, body, o)
		}
	})
}
