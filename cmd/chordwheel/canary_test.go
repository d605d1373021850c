package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/adapter"
	"github.com/chordwheel/chordwheel/daemon/adapter/openai"
	"github.com/chordwheel/chordwheel/daemon/adapter/providertest"
)

// panicsAt is what a request says to make the adapter of a test binary panic, with the request
// in its mouth.
const panicsAt = "panic-now"

type panicking struct{ adapter.Adapter }

func (p panicking) Run(ctx context.Context, c adapter.Call, emit func(walk.Chunk) error) walk.Outcome {
	if bytes.Contains(c.Request.Body, []byte(panicsAt)) {
		panic(fmt.Errorf("cannot run %s", c.Request.Body))
	}
	return p.Adapter.Run(ctx, c, emit)
}

func withPanics(of func(*openai.Adapter) map[string]adapter.Adapter) func(*openai.Adapter) map[string]adapter.Adapter {
	return func(upstream *openai.Adapter) map[string]adapter.Adapter {
		all := of(upstream)
		all["openai"] = panicking{all["openai"]}
		return all
	}
}

// canary is a hub and two devices in one process, whose every directory is known. Of the
// providers in the catalogue all but the last fail, each in its way; b has two services
// that a reaches through a slot only, and one of them fails after its first answer.
type canary struct {
	t      *testing.T
	marker string
	root   string // holds all that they could write to
	up     *process
	last   *providertest.Provider
	boxes  []*providertest.Provider
	tiers  *providertest.Provider // of a, for the stages of a hard question
	words  []string               // besides the marker: secrets that came out of the mesh itself
}

func newCanary(t *testing.T, marker string) *canary {
	t.Helper()
	c := &canary{t: t, marker: marker, root: t.TempDir()}
	wrong := providertest.Refusal(500, `{"error":{"message":"`+marker+`-error","type":"`+marker+`","code":"`+marker+`","param":"`+marker+`"}}`)
	calls := func(x *providertest.Exchange) {
		x.Respond(200, "application/json", `{"model":"`+marker+`","choices":[{"index":0,"finish_reason":"tool_calls","message":{"role":"assistant","content":"`+marker+`","tool_calls":[{"id":"`+marker+`","type":"function","function":{"name":"`+marker+`","arguments":"`+marker+`"}}]}}]}`)
	}
	healthy := providertest.Healthy(marker + "-answer")
	var providers strings.Builder
	var order []string
	provider := func(script ...providertest.Play) *providertest.Provider {
		p := providertest.New(t, script...)
		fmt.Fprintf(&providers, "  - {name: p%d, adapter: openai, endpoint: %s, keys: [beta], models: [{name: small, primitives: [llm.chat], %s}]}\n", len(order), p.Endpoint(), canaryLimits)
		order = append(order, fmt.Sprintf("p%d/small", len(order)))
		return p
	}
	provider(providertest.Refusal(400, `{"error":{"message":"`+marker+`-refusal","code":"`+marker+`"}}`), wrong)
	provider(providertest.Refusal(429, `<html>`+marker+`</html>`))
	provider(func(x *providertest.Exchange) {
		x.Respond(200, "text/html", "<html>"+marker+"</html>", "X-"+marker+": "+marker)
	})
	provider(func(x *providertest.Exchange) {
		x.Open()
		x.Event(`{"choices":[{"index":0,"delta":{"content":"` + marker + `-half"}}]}`)
		x.Drop()
	})
	order = append(order, "peer")
	c.last = provider(calls, healthy)
	c.boxes = []*providertest.Provider{providertest.New(t, healthy, wrong), providertest.New(t, calls, healthy)}
	write := func(name, text string) {
		file := filepath.Join(c.root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	c.tiers = providertest.New(t, c.stages())
	write("catalogue/catalogue.yaml", fmt.Sprintf("providers:\n%sprimitives:\n  - {name: llm.chat, order: fixed, default: [%s], peer: {requires: [\"execute:llm.chat\"], tries: 2}}\n"+
		"  - {name: fetch.plain, default: [peer], peer: {requires: [\"execute:fetch.plain\"], tries: 2}}\n  - {name: llm.t1, default: [local]}\n  - {name: llm.t2, default: [local]}\n  - {name: llm.t3, default: [local]}\nworkspaces:\n  - {id: home, keys: [beta]}\n",
		&providers, strings.Join(order, ", ")))
	write("up/a/config.yaml", fmt.Sprintf("pipeline: {enabled: true}\nadapters:\n  - {name: tiers, adapter: openai, endpoint: %[1]s, models: [{name: m1, primitives: [llm.t1], %[2]s}, {name: m2, primitives: [llm.t2], %[2]s}, {name: m3, primitives: [llm.t3], %[2]s}]}\n", c.tiers.Endpoint(), canaryLimits))
	write("up/b/config.yaml", fmt.Sprintf("adapters:\n  - {name: box, adapter: openai, endpoint: %s, models: [{name: m, primitives: [llm.chat], %s}]}\n  - {name: more, adapter: openai, endpoint: %s, models: [{name: m, primitives: [llm.chat], %s}]}\n",
		c.boxes[0].Endpoint(), canaryLimits, c.boxes[1].Endpoint(), canaryLimits))
	for _, dir := range []string{"home", "tmp", "cwd"} {
		if err := os.Mkdir(filepath.Join(c.root, dir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	cmd := coreful(program(t, "up", "--devices", "2", "--dir", filepath.Join(c.root, "up"), "--catalog", filepath.Join(c.root, "catalogue", "catalogue.yaml"), "--json"))
	cmd.Dir = filepath.Join(c.root, "cwd")
	cmd.Env = append(cmd.Env, "CHORDWHEEL_BUILTIN=false", "CHORDWHEEL_LOG=debug", "GOTRACEBACK=crash", "CHORDWHEEL_KEY_BETA="+marker+"-secret",
		"HOME="+filepath.Join(c.root, "home"), "TMPDIR="+filepath.Join(c.root, "tmp"))
	c.up = startCommand(t, cmd)
	return c
}

const canaryLimits = "limits: {first_output: 20s, idle: 20s, total: 30s}"

// send posts a body to a device, and reads the answer to its end.
func (c *canary) send(device int, path, body string, header ...string) (status int, answer string) {
	c.t.Helper()
	return c.call(http.MethodPost, strings.TrimSuffix(c.up.ready.Devices[device].Edge, "/v1")+path, device, body, header...)
}

// call is send for another method, at any address.
func (c *canary) call(method, url string, device int, body string, header ...string) (status int, answer string) {
	c.t.Helper()
	d := c.up.ready.Devices[device]
	request, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		c.t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("Authorization", "Bearer "+d.Key)
	for i := 0; i+1 < len(header); i += 2 {
		request.Header.Set(header[i], header[i+1])
	}
	r, err := (&http.Client{Timeout: patience}).Do(request)
	if err != nil {
		c.t.Fatal(err)
	}
	defer r.Body.Close()
	b, _ := io.ReadAll(r.Body) // a cut stream ends in an error
	return r.StatusCode, string(b)
}

// chat is a body with the marker in every field that a request has.
func (c *canary) chat(extra string) string {
	m := c.marker
	return `{"model":"auto","user":"` + m + `-user","metadata":{"` + m + `-name":"` + m + `-value"},"stop":["` + m + `-stop"],"` + m + `-unknown":"` + m + `",
"response_format":{"type":"json_schema","json_schema":{"name":"` + m + `"}},
"tools":[{"type":"function","function":{"name":"` + m + `-tool","description":"` + m + `","parameters":{"` + m + `":1}}}],
"messages":[{"role":"system","content":"` + m + `-system"},
{"role":"user","name":"` + m + `-name","content":[{"type":"text","text":"` + m + `-text"},{"type":"image_url","image_url":{"url":"data:image/png;base64,` + m + `"}}]},
{"role":"assistant","content":null,"tool_calls":[{"id":"` + m + `-call","type":"function","function":{"name":"` + m + `-tool","arguments":"{\"` + m + `\":1}"}}]},
{"role":"tool","tool_call_id":"` + m + `-call","content":"` + m + `-result"},
{"role":"user","content":"` + m + `-question` + extra + `}`
}

// No word of a request, an answer, a header, a key or an error is anywhere but on its way:
// not in a file of hub or device, a page of a database that was freed, a log, an output,
// what a panic says, what a killed process leaves.
func TestTheCanaryIsNowhere(t *testing.T) {
	const marker = "cAnArY-91c4"
	c := newCanary(t, marker)
	until(t, "a hands work to b", func() bool {
		c.send(0, "/v1/chat/completions", c.chat(`"}]`))
		return calls(c.boxes...) > 0
	})
	header := []string{"User-Agent", marker + "-agent", "X-Chordwheel-Session", marker + "-session", "X-Chordwheel-Consumer", marker, "X-Other", marker, "Cookie", "a=" + marker, "Referer", "http://" + marker}
	paths := func(device int) {
		for _, r := range []struct{ path, body string }{
			{"/v1/chat/completions", c.chat(`"}]`)}, {"/v1/chat/completions", c.chat(`"}],"stream":true`)}, {"/v1/chat/completions?q=" + marker, c.chat(`"}],"stream":true`)},
			{"/v1/chat/completions", `{"` + marker + `":`}, {"/v1/chat/completions", `{"model":"` + marker + `-model","messages":[{"role":"` + marker + `","content":"x"}]}`},
			{"/v1/chat/completions", `{"model":"` + marker + `-model","messages":[{"role":"user","content":"x"}]}`},
			{"/api/v1/work/llm.chat", `{"input":"` + marker + `-input","options":{"` + marker + `":1}}`}, {"/api/v1/work/fetch.plain", `{"input":{"url":"http://` + marker + `"}}`},
			{"/api/v1/work/nobody.does", `{"input":"` + marker + `"}`}, {"/api/v1/work/" + marker, `{"input":1}`}, {"/v1/" + marker, `{}`},
			{"/v1/inlet", c.chat(`"}],"mode":"auto"`)}, {"/v1/inlet", `{"mode":"` + marker + `","messages":[]}`},
			{"/v1/outlet", `{"response":"` + marker + `-response","status":"` + marker + `","request_hash":"` + marker + `","agent_model_id":"` + marker + `","transaction_id":"` + marker + `"}`},
			{"/v1/outlet", `{"response":{"content":"` + marker + `","tool_calls":[{"id":"` + marker + `"}]},"status":"ok"}`},
			{"/v1/chat/completions", c.chat(panicsAt + `"}]`)}, {"/v1/chat/completions", c.chat(panicsAt + `"}],"stream":true`)},
		} {
			c.send(device, r.path, r.body, header...)
		}
		c.send(device, "/v1/chat/completions", "{}", "Authorization", "Bearer "+marker)
		c.send(device, "/v1/chat/completions", marker, "Content-Type", "text/"+marker)
		c.send(device, "/v1/chat/completions", "{}", "Origin", "http://"+marker)
		c.send(device, "/v1/chat/completions", "{}", "X-Chordwheel-"+marker, marker)
	}
	for range 3 { // so that each request meets other answers
		paths(0)
		paths(1)
	}
	if status, answer := c.send(0, "/v1/chat/completions", c.chat(`"}]`)); status != http.StatusOK || !strings.Contains(answer, marker) {
		t.Errorf("after all that: %d %s", status, answer)
	}
	panics := map[string]int{}
	for line := range strings.Lines(c.up.log.String()) {
		for _, node := range []string{"a", "b"} {
			if strings.Contains(line, `"msg":"panic"`) && strings.Contains(line, `"node":"`+node+`"`) {
				panics[node]++
			}
		}
	}
	if panics["a"] == 0 || panics["b"] == 0 {
		t.Errorf("panics: %v", panics)
	}
	c.hardQuestion()
	c.overHTTP()
	c.elsewhere()
	for _, name := range []string{"a", "b"} {
		until(t, name+"'s receipts are in the ledger", func() bool {
			r := fares(t, filepath.Join(c.root, "up", name))
			return r.Waiting == 0 && r.Pending == 0 && r.Sent >= 20
		})
	}

	// A request is on its way when the process is aborted: the worst that a crash can say.
	all := append([]*providertest.Provider{c.last}, c.boxes...)
	for _, p := range all {
		p.Script(func(x *providertest.Exchange) { x.Hang() })
	}
	before := calls(all...)
	for _, d := range c.up.ready.Devices {
		go func() {
			request, _ := http.NewRequest(http.MethodPost, d.Edge+"/chat/completions", strings.NewReader(c.chat(`"}]`)))
			request.Header.Set("Content-Type", "application/json")
			request.Header.Set("Authorization", "Bearer "+d.Key)
			if r, err := http.DefaultClient.Do(request); err == nil { // it is cut
				r.Body.Close()
			}
		}()
	}
	until(t, "both devices have a request on its way", func() bool { return calls(all...) >= before+2 })
	_ = c.up.cmd.Process.Signal(syscall.SIGABRT)
	select {
	case <-c.up.done:
	case <-time.After(patience):
		t.Fatal("it does not end")
	}
	if !strings.Contains(c.up.log.String(), "SIGABRT") {
		t.Error("the process said nothing when it was aborted")
	}
	c.sweep()
}
