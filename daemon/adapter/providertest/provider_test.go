package providertest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

func post(t *testing.T, p *Provider, body string) *http.Response {
	t.Helper()
	r, err := http.Post(p.Endpoint()+"/chat/completions", "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.Body.Close() })
	return r
}

func TestHealthyPlainStreamAndModels(t *testing.T) {
	p := New(t, Healthy("one two three"))
	p.SetModels("a/b", "c")
	b, _ := io.ReadAll(post(t, p, `{"model":"m","messages":[]}`).Body)
	if !json.Valid(b) || !strings.Contains(string(b), `"content":"one two three"`) {
		t.Errorf("plain: %s", b)
	}
	b, _ = io.ReadAll(post(t, p, `{"model":"m","stream":true,"stream_options":{"include_usage":true}}`).Body)
	if n := strings.Count(string(b), "data: "); n != 7 || !strings.HasSuffix(string(b), "data: [DONE]\n\n") {
		t.Errorf("stream of %d events: %s", n, b)
	}
	r, err := http.Get(p.Endpoint() + "/models")
	if err != nil {
		t.Fatal(err)
	}
	b, _ = io.ReadAll(r.Body)
	_ = r.Body.Close()
	if string(b) != `{"data":[{"id":"a/b","object":"model"},{"id":"c","object":"model"}],"object":"list"}` {
		t.Errorf("models: %s", b)
	}
	if seen := p.Requests(); len(seen) != 2 || !seen[1].Stream || !seen[1].Usage || seen[0].Model != "m" || seen[0].Stream {
		t.Errorf("seen %+v", seen)
	}
}

func TestScriptIsPlayedInOrderAndItsLastPlayRepeats(t *testing.T) {
	p := New(t, Refusal(500, "{}"), Refusal(501, "{}"))
	for i, want := range []int{500, 501, 501} {
		if r := post(t, p, "{}"); r.StatusCode != want {
			t.Errorf("request %d: %d, want %d", i+1, r.StatusCode, want)
		}
	}
}

func TestClientThatLeavesIsSeen(t *testing.T) {
	p := New(t, (*Exchange).Hang)
	c, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(p.Endpoint(), "http://"), "/v1"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
	p.Wait(1)
	_ = c.Close()
	if p.WaitClosed(1).Before(p.Wait(1).At) {
		t.Error("closed before it came")
	}
}

func TestEveryFaultHasANameAndEnds(t *testing.T) {
	names := map[string]bool{}
	for _, f := range Faults() {
		if names[f.Name] || f.Name == "" || f.Refuses != (f.Play == nil) {
			t.Errorf("fault %q is not well made", f.Name)
		}
		names[f.Name] = true
		for _, e := range []Expect{f.Streamed, f.Plain} {
			if !e.Class.Known() || e.Then == "" {
				t.Errorf("fault %q expects %+v", f.Name, e)
			}
		}
		if f.Refuses || f.Hangs {
			continue
		}
		// Every other play ends by itself, or with its client.
		p := f.Start(t)
		c, err := net.Dial("tcp", p.addr)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprint(c, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 15\r\n\r\n{\"stream\":true}")
		_, _ = bufio.NewReader(c).ReadByte()
		_ = c.Close()
		p.Close()
	}
}
