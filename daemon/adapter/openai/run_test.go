package openai

import (
	"bytes"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/adapter/providertest"
)

func TestWhatTheUpstreamGetsToSee(t *testing.T) {
	p := providertest.New(t)
	c := chat(p.Endpoint(), true)
	c.Request.Body = []byte(`{"model":"auto", "messages":[{"role":"user","content":"hello \u00e9"}],"stream":true,"x":1.0}`)
	if _, o := collect(t.Context(), newAdapter(t), c); o.Class != chain.OK || o.Status != 200 {
		t.Fatalf("%+v", o)
	}
	r := p.Wait(1)
	if want := `{"stream_options":{"include_usage":true},"model":"small", "messages":[{"role":"user","content":"hello \u00e9"}],"stream":true,"x":1.0}`; string(r.Body) != want {
		t.Errorf("body %s\nwant %s", r.Body, want)
	}
	want := http.Header{"Accept": {"text/event-stream"}, "Accept-Encoding": {"identity"}, "Authorization": {"Bearer sk-test"},
		"Content-Length": {fmt.Sprint(len(r.Body))}, "Content-Type": {"application/json"}, "User-Agent": {"chordwheel"}}
	if fmt.Sprint(r.Header) != fmt.Sprint(want) {
		t.Errorf("headers %v\nwant %v", r.Header, want)
	}

	c = chat(p.Endpoint(), false)
	c.Secret = ""
	_, _ = collect(t.Context(), newAdapter(t), c)
	if r := p.Wait(2); r.Header.Get("Authorization") != "" || r.Header.Get("Accept") != "application/json" || r.Usage {
		t.Errorf("plain without a key: %v %s", r.Header, r.Body)
	}
}

func TestLargeRequestsArriveWhole(t *testing.T) {
	p := providertest.New(t)
	for _, size := range []int{copied - 100, copied, copied + 100, 4 << 20} {
		c := chat(p.Endpoint(), true)
		c.Request.Body = []byte(`{"messages":[{"role":"user","content":"` + strings.Repeat("x", size) + `"}],"model":"auto","stream":true}`)
		before := string(c.Request.Body)
		if _, o := collect(t.Context(), newAdapter(t), c); o.Class != chain.OK {
			t.Fatalf("%d: %s", size, o.Class)
		}
		seen := p.Requests()
		want := `{"stream_options":{"include_usage":true},` + strings.Replace(before[1:], `"auto"`, `"small"`, 1)
		if got := string(seen[len(seen)-1].Body); got != want {
			t.Errorf("%d: a body of %d bytes, want %d", size, len(got), len(want))
		}
		if string(c.Request.Body) != before {
			t.Errorf("%d: the caller's body was changed", size)
		}
	}
}

func TestTheUsageEventIsForThoseWhoAsked(t *testing.T) {
	p := providertest.New(t)
	for _, asked := range []bool{true, false} {
		c := chat(p.Endpoint(), true)
		c.Request.Usage = asked
		got, o := collect(t.Context(), newAdapter(t), c)
		if o.Class != chain.OK || o.Input != providertest.InputTokens || o.Output != providertest.OutputTokens {
			t.Errorf("asked %v: %+v", asked, o)
		}
		if last := string(got[len(got)-1].Data); strings.Contains(last, "usage") != asked {
			t.Errorf("asked %v: the last chunk is %s", asked, last)
		}
	}
	// Some servers put the usage into the event with the finish reason.
	p.Script(func(x *providertest.Exchange) {
		x.Open()
		x.Event(x.Request.Said("hi"))
		x.Event(`{"model":"small","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":4}}`)
		x.End()
	})
	got, o := collect(t.Context(), newAdapter(t), chat(p.Endpoint(), true))
	if last := string(got[len(got)-1].Data); o.Input != 3 || o.Output != 4 || last != `{"model":"auto","choices":[{"index":0,"delta":{},"finish_reason":"stop"}],"usage":null}` {
		t.Errorf("%s, %+v", last, o)
	}
}

func TestAServerThatCannotCountIsAskedOnce(t *testing.T) {
	p := providertest.New(t, func(x *providertest.Exchange) {
		if x.Request.Usage {
			x.Respond(400, "application/json", providertest.Problem("Unrecognized request argument supplied: stream_options", "invalid_request_error", ""))
			return
		}
		providertest.Healthy("hi")(x)
	})
	a := newAdapter(t)
	if _, o := collect(t.Context(), a, chat(p.Endpoint(), true)); o.Class != chain.Feature || o.Answer != nil {
		t.Errorf("first: %+v", o)
	}
	if _, o := collect(t.Context(), a, chat(p.Endpoint(), true)); o.Class != chain.OK {
		t.Errorf("second: %+v", o)
	}
	c := chat(p.Endpoint(), true)
	c.Request.Usage = true // now it is the caller's own wish
	if _, o := collect(t.Context(), a, c); o.Class != chain.CallerError {
		t.Errorf("third: %+v", o)
	}
	p.Script(providertest.Refusal(422, `{"detail":[{"type":"extra_forbidden","loc":["body","stream_options"],"msg":"Extra inputs are not permitted"}]}`))
	if _, o := collect(t.Context(), newAdapter(t), chat(p.Endpoint(), true)); o.Class != chain.Feature {
		t.Errorf("in another's words: %+v", o)
	}
}

// TestOtherBytesPass sends chunks as a provider may make them and compares all
// of them but the model.
func TestOtherBytesPass(t *testing.T) {
	events := []string{
		`{"id":"a","model":"small" , "choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null},{"index":1,"delta":{"content":"b\u00e9\/"}}],"system_fingerprint":"fp"}`,
		`{"model":"small","choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"c1","function":{"name":"f","arguments":"{\"model\":"}},{"index":1,"id":"c2"}]},"logprobs":{"content":[{"token":"é","logprob":-0.10,"bytes":[195,169],"top_logprobs":[]}]}}]}`,
		`{"model":"small","choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}],"x":{"model":"small"},"n":1E+2}`,
		`{"model":"small","choices":[{"index":1,"delta":{"content":""},"finish_reason":"length"}]}`,
	}
	p := providertest.New(t, func(x *providertest.Exchange) {
		x.Open()
		for _, e := range events {
			x.Event(e)
		}
		x.Event("[DONE]")
		x.End()
	})
	c := chat(p.Endpoint(), true)
	c.Request.Model = "team/model:8b"
	got, o := collect(t.Context(), newAdapter(t), c)
	if o.Class != chain.OK || len(got) != len(events) {
		t.Fatalf("%+v, %d chunks", o, len(got))
	}
	for i, e := range events {
		if want := strings.Replace(e, `"small"`, `"team/model:8b"`, 1); string(got[i].Data) != want {
			t.Errorf("chunk %d\n got %s\nwant %s", i, got[i].Data, want)
		}
	}

	const answer = "{\n  \"model\": \"small\",\n  \"choices\": [{\"message\": {\"content\": \"a\\u00e9\"}, \"logprobs\": null}], \"usage\": {\"prompt_tokens\": 1}\n}\n"
	p.Script(func(x *providertest.Exchange) { x.Respond(200, "application/json; charset=UTF-8", answer) })
	c = chat(p.Endpoint(), false)
	got, o = collect(t.Context(), newAdapter(t), c)
	if o.Class != chain.OK || len(got) != 1 || string(got[0].Data) != strings.Replace(answer, "small", "auto", 1) || o.Input != 1 {
		t.Errorf("plain: %+v, %d chunks", o, len(got))
	}
}

func TestToolCallsArriveWhole(t *testing.T) {
	p := providertest.New(t, providertest.ToolCalls())
	for _, stream := range []bool{true, false} {
		got, o := collect(t.Context(), newAdapter(t), chat(p.Endpoint(), stream))
		var all bytes.Buffer
		for _, c := range got {
			all.Write(c.Data)
		}
		if o.Class != chain.OK || !got[0].Meaningful || !strings.Contains(all.String(), "call_1") || !strings.Contains(all.String(), "call_2") {
			t.Errorf("stream %v: %+v %s", stream, o, all.String())
		}
	}
}

// TestChunksAreGivenOutAtOnce holds the upstream back behind each event: what
// was sent must come out although nothing more follows.
func TestChunksAreGivenOutAtOnce(t *testing.T) {
	for name, send := range map[string]string{"LF": "data: %s\n\n", "CRLF": "data: %s\r\n\r\n", "CR": "data: %s\r\r"} {
		t.Run(name, func(t *testing.T) {
			proceed := make(chan struct{})
			p := providertest.New(t, func(x *providertest.Exchange) {
				x.Open()
				for _, w := range []string{"a", "b", "c"} {
					x.Chunk(fmt.Sprintf(send, x.Request.Said(w)))
					select {
					case <-proceed:
					case <-x.Gone():
						return
					}
				}
				x.Chunk(fmt.Sprintf(send, x.Request.Finish()))
				x.End()
			})
			n := 0
			o := newAdapter(t).Run(t.Context(), chat(p.Endpoint(), true), func(c walk.Chunk) error {
				if n++; c.Meaningful {
					proceed <- struct{}{} // deadlocks where a chunk waits for the next one
				}
				return nil
			})
			if o.Class != chain.OK || n != 4 {
				t.Errorf("%+v after %d chunks", o, n)
			}
		})
	}
}

func TestTheUpstreamSeesThatItsCallerLeft(t *testing.T) {
	endless := func(x *providertest.Exchange) {
		x.Open()
		for x.Pause(1) {
			x.Event(x.Request.Said("word "))
		}
	}
	for _, tt := range []struct {
		name string
		play providertest.Play
		emit func(cancel func()) error
	}{
		{"emit fails", endless, func(func()) error { return errors.New("gone") }},
		{"canceled while it streams", endless, func(cancel func()) error { cancel(); return nil }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := providertest.New(t, tt.play)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			o := newAdapter(t).Run(ctx, chat(p.Endpoint(), true), func(walk.Chunk) error { return tt.emit(cancel) })
			if o.Class != chain.Canceled {
				t.Errorf("%+v", o)
			}
			p.WaitClosed(1)
		})
	}
}

func TestConnectionsAreUsedAgain(t *testing.T) {
	var mu sync.Mutex
	from := map[string]bool{}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		from[r.RemoteAddr] = true
		mu.Unlock()
		var body bytes.Buffer
		_, _ = body.ReadFrom(r.Body)
		switch {
		case bytes.Contains(body.Bytes(), []byte(`"stream":true`)):
			w.Header().Set("Content-Type", "text/event-stream")
			fmt.Fprint(w, `data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}`+"\n\ndata: [DONE]\n\n")
		default:
			w.WriteHeader(http.StatusTooManyRequests)
			fmt.Fprint(w, providertest.Problem("slow down", "", ""))
		}
	}))
	defer srv.Close()
	a := newAdapter(t)
	for i := range 20 {
		_, _ = collect(t.Context(), a, chat(srv.URL+"/v1", i%2 == 0))
	}
	mu.Lock()
	defer mu.Unlock()
	if len(from) != 1 {
		t.Errorf("20 calls one after the other took %d connections", len(from))
	}
}

func TestADeadPooledConnectionIsReplacedOnce(t *testing.T) {
	status := func(x *providertest.Exchange) { x.Raw("HTTP/1.1 200"); x.Drop() }
	drop := (*providertest.Exchange).Drop
	for _, tt := range []struct {
		name   string
		second []providertest.Play
		want   chain.Class
		calls  int
	}{
		{"dead, then well", []providertest.Play{drop, providertest.Healthy("hi")}, chain.OK, 3},
		{"dead twice", []providertest.Play{drop, drop, providertest.Healthy("hi")}, chain.Unreachable, 3},
		{"dead behind the first byte", []providertest.Play{status, providertest.Healthy("hi")}, chain.Unreachable, 2},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := providertest.New(t, append([]providertest.Play{providertest.Healthy("hi")}, tt.second...)...)
			a := newAdapter(t)
			if _, o := collect(t.Context(), a, chat(p.Endpoint(), false)); o.Class != chain.OK {
				t.Fatal(o.Class)
			}
			_, o := collect(t.Context(), a, chat(p.Endpoint(), false))
			seen := p.Requests()
			if o.Class != tt.want || len(seen) != tt.calls {
				t.Errorf("%s after %d calls, want %s after %d", o.Class, len(seen), tt.want, tt.calls)
			}
			if last := seen[len(seen)-1]; !bytes.Equal(last.Body, seen[0].Body) || last.Header.Get("Idempotency-Key") != "" {
				t.Errorf("it was sent again as %s %v", last.Body, last.Header)
			}
		})
	}
}

func TestPlainHTTPStaysInside(t *testing.T) {
	var log bytes.Buffer
	a := New(Config{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	defer a.Close()
	// Documentation addresses: were they dialled, nobody would answer.
	for _, endpoint := range []string{"http://192.0.2.1:9/v1", "http://[2001:db8::1]:9/v1"} {
		if _, o := collect(t.Context(), a, chat(endpoint, false)); o.Class != chain.Unreachable {
			t.Errorf("%s: %s", endpoint, o.Class)
		}
	}
	if n := strings.Count(log.String(), ErrPlainHTTP.Error()); n != 2 {
		t.Errorf("%d refusals in the log:\n%s", n, log.String())
	}
	if strings.Contains(log.String(), "hello") || strings.Contains(log.String(), "sk-test") {
		t.Errorf("content or a key in the log:\n%s", log.String())
	}
}

func TestTLS(t *testing.T) {
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprint(w, `{"choices":[{"message":{"content":"hi"}}]}`)
	}))
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, 0)
	srv.StartTLS()
	defer srv.Close()
	if _, o := collect(t.Context(), newAdapter(t), chat(srv.URL, false)); o.Class != chain.Unreachable {
		t.Errorf("a stranger's certificate: %s", o.Class)
	}
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	a := New(Config{Roots: roots})
	defer a.Close()
	if _, o := collect(t.Context(), a, chat(srv.URL, false)); o.Class != chain.OK {
		t.Errorf("a known one: %+v", o)
	}
}

func TestHTTP2(t *testing.T) {
	left := make(chan struct{})
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: {\"choices\":[{\"delta\":{\"content\":%q}}]}\n\n", r.Proto)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
		close(left)
	}))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	roots := x509.NewCertPool()
	roots.AddCert(srv.Certificate())
	a := New(Config{Roots: roots})
	defer a.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var got string
	o := a.Run(ctx, chat(srv.URL, true), func(c walk.Chunk) error { got = string(c.Data); cancel(); return nil })
	if o.Class != chain.Canceled || !strings.Contains(got, "HTTP/2.0") {
		t.Errorf("%+v, %s", o, got)
	}
	<-left // the upstream sees it
}

func TestTheEnvironmentsProxyIsNotUsed(t *testing.T) {
	a := newAdapter(t)
	if a.transport.plain.Proxy != nil || a.transport.secure.Proxy != nil {
		t.Error("a proxy would hide the dialled address and see the key")
	}
}

func TestOtherPrimitivesAreRefused(t *testing.T) {
	p := providertest.New(t)
	c := chat(p.Endpoint(), false)
	c.Request.Primitive = "embed.text"
	if _, o := collect(t.Context(), newAdapter(t), c); o.Class != chain.Feature || len(p.Requests()) != 0 {
		t.Errorf("%+v, %d requests", o, len(p.Requests()))
	}
}

func TestAKeyThatIsNoHeaderIsNotSent(t *testing.T) {
	p := providertest.New(t)
	for _, key := range []chain.Secret{"sk\n", "sk\r\nX-Evil: 1", "sk\x00"} {
		c := chat(p.Endpoint(), false)
		c.Secret = key
		if _, o := collect(t.Context(), newAdapter(t), c); o.Class != chain.Credentials || len(p.Requests()) != 0 {
			t.Errorf("%q: %s, %d requests", key.Reveal(), o.Class, len(p.Requests()))
		}
	}
}

func TestAServerThatRepeatsTheKeyDoesNotTellTheCaller(t *testing.T) {
	const key = "sk-very-secret"
	p := providertest.New(t, providertest.Refusal(http.StatusBadRequest, `{"error":{"message":"Authorization was Bearer `+key+`, body was fine"}}`))
	for _, stream := range []bool{false, true} {
		c := chat(p.Endpoint(), stream)
		c.Secret = key
		_, o := collect(t.Context(), newAdapter(t), c)
		if o.Answer == nil || strings.Contains(string(o.Answer.Body), key) || !strings.Contains(string(o.Answer.Body), "Bearer ***, body was fine") {
			t.Errorf("streamed %v: %+v", stream, o.Answer)
		}
	}
}

func TestBadEndpointsAndBodies(t *testing.T) {
	a := newAdapter(t)
	if _, o := collect(t.Context(), a, chat("ftp://x", false)); o.Class != chain.Unreachable {
		t.Error(o.Class)
	}
	c := chat("http://127.0.0.1:9/v1", false)
	c.Request.Body = []byte(`[]`)
	if _, o := collect(t.Context(), a, c); o.Class != chain.CallerError || o.Answer.Status != 400 {
		t.Errorf("%+v", o)
	}
}

func TestAnswersAreBounded(t *testing.T) {
	a := New(Config{MaxAnswer: 1000})
	defer a.Close()
	p := providertest.New(t, providertest.Healthy(strings.Repeat("x", 5000)))
	if got, o := collect(t.Context(), a, chat(p.Endpoint(), false)); o.Class != chain.BadAnswer || len(got) != 0 {
		t.Errorf("plain: %s, %d chunks", o.Class, len(got))
	}
	if _, o := collect(t.Context(), a, chat(p.Endpoint(), true)); o.Class != chain.BadAnswer && o.Class != chain.Cut {
		t.Errorf("streamed: %s", o.Class)
	}
	b := New(Config{}) // by what the caller has a use for
	defer b.Close()
	c := chat(p.Endpoint(), false)
	if _, o := collect(t.Context(), b, c); o.Class != chain.OK {
		t.Errorf("without a bound: %s", o.Class)
	}
	c.Request.MaxAnswer = 1000
	if got, o := collect(t.Context(), b, c); o.Class != chain.BadAnswer || len(got) != 0 {
		t.Errorf("of use to the caller: %s, %d chunks", o.Class, len(got))
	}
}

func TestModels(t *testing.T) {
	p := providertest.New(t)
	p.SetModels("qwen2.5:7b", "a/b", "", strings.Repeat("x", 300), "line\nbreak", "last")
	a := newAdapter(t)
	got, err := a.Models(t.Context(), p.Endpoint(), "")
	if want := []string{"qwen2.5:7b", "a/b", "last"}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q (%v)", got, err)
	}
	many := make([]string, 3000)
	for i := range many {
		many[i] = fmt.Sprint("m", i)
	}
	p.SetModels(many...)
	if got, err = a.Models(t.Context(), p.Endpoint(), ""); err != nil || len(got) != maxModels {
		t.Errorf("%d models (%v)", len(got), err)
	}
	p.SetModels()
	if got, err = a.Models(t.Context(), p.Endpoint(), ""); err != nil || len(got) != 0 {
		t.Errorf("%q (%v)", got, err)
	}
	if _, err = a.Models(t.Context(), providertest.Refusing(t).Endpoint(), ""); err == nil {
		t.Error("nobody listens, and no error")
	}
}

func FuzzReadModels(f *testing.F) {
	for _, s := range []string{`{"data":[{"id":"a"}]}`, `{"data":null}`, `[]`, `{"data":[{"id":7}]}`, `{"data":[]}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		ids, err := readModels(b)
		for _, id := range ids {
			if err != nil || !named(id) {
				t.Errorf("%q gave %q (%v)", b, id, err)
			}
		}
	})
}

// Whatever an upstream says instead of an answer, the log names what is wrong with it and
// repeats none of it: it may be the caller's words.
func TestTheLogHasNoWordOfAnUpstream(t *testing.T) {
	const words = "cAnArY"
	for name, raw := range map[string]string{
		"no HTTP":           words + " garbage\r\n\r\n",
		"with quotes":       words + `" \" ` + words + "\r\n\r\n",
		"no status":         "HTTP/1.1 " + words + " x\r\n\r\n",
		"a first line":      "HTTP/1.1 200 OK\r\n " + words + "\r\n\r\n",
		"a line":            "HTTP/1.1 200 OK\r\nX-" + words + "\r\n\r\n",
		"a name":            "HTTP/1.1 200 OK\r\n" + words + " \x01: x\r\n\r\n",
		"a length":          "HTTP/1.1 200 OK\r\nContent-Length: " + words + "\r\n\r\n",
		"two lengths":       "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2" + words + "\r\n\r\n",
		"a transfer":        "HTTP/1.1 200 OK\r\nTransfer-Encoding: " + words + "\r\n\r\n",
		"an encoding":       "HTTP/1.1 200 OK\r\nContent-Encoding: " + words + "\r\nContent-Length: 2\r\n\r\n{}",
		"a type":            "HTTP/1.1 200 OK\r\nContent-Type: text/" + words + "\r\nContent-Length: 2\r\n\r\n{}",
		"a chunk":           "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + words + "\r\n",
		"a trailer":         "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n" + words + "\r\n\r\n",
		"an error, in JSON": "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 39\r\n\r\n" + `{"error":{"message":"` + words + `","code":1}}`,
		"a place":           "HTTP/1.1 307 " + words + "\r\nLocation: http://" + words + "\r\nContent-Length: 0\r\n\r\n",
	} {
		for _, stream := range []bool{false, true} {
			var log bytes.Buffer
			p := providertest.New(t, func(x *providertest.Exchange) { x.Raw(raw); x.Drop() })
			a := New(Config{Log: slog.New(slog.NewJSONHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
			_, o := collect(t.Context(), a, chat(p.Endpoint(), stream))
			a.Close()
			if o.Class == chain.OK || !strings.Contains(log.String(), "attempt failed") || strings.Contains(log.String(), words) {
				t.Errorf("%s: %s, log %s", name, o.Class, log.String())
			}
		}
	}
}
