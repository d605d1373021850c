package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/daemon/adapter/providertest"
	"github.com/chordwheel/chordwheel/daemon/control"
)

const streamedChat = `{"model":"auto","stream":true,"messages":[{"role":"user","content":"hello"}]}`

// pair is a hub and two devices as processes of their own: a has nothing but what the
// catalogue names, b has services of its own besides.
type pair struct {
	t          *testing.T
	dir        string
	hub, a, b  *process
	beta       *providertest.Provider // in the catalogue, behind the slot
	boxes      []*providertest.Provider
	aDir, bDir string
}

// newPair starts the three and waits until a's slot is filled by b. b has one service
// for each of boxes; more stands behind beta in the catalogue.
func newPair(t *testing.T, boxes []*providertest.Provider, more ...*providertest.Provider) *pair {
	t.Helper()
	t.Setenv("CHORDWHEEL_BUILTIN", "false")
	p := &pair{t: t, dir: t.TempDir(), beta: providertest.New(t, providertest.Healthy("beta")), boxes: boxes}
	p.aDir, p.bDir = filepath.Join(p.dir, "a"), filepath.Join(p.dir, "b")
	var catalogue, defaults strings.Builder
	catalogue.WriteString("providers:\n")
	for i, provider := range append([]*providertest.Provider{p.beta}, more...) {
		fmt.Fprintf(&catalogue, "  - {name: p%d, adapter: openai, endpoint: %s, models: [{name: small, primitives: [llm.chat], limits: {first_output: 20s, idle: 20s, total: 30s}}]}\n", i, provider.Endpoint())
		fmt.Fprintf(&defaults, ", p%d/small", i)
	}
	fmt.Fprintf(&catalogue, "primitives:\n  - name: llm.chat\n    order: fixed\n    default: [local, peer%s]\n    peer: {requires: [\"execute:llm.chat\"], tries: 2}\n", &defaults)
	p.write("catalogue.yaml", catalogue.String())
	p.write("a/config.yaml", "name: a\n")
	config := "name: b\nadapters:\n"
	for i, box := range boxes {
		config += fmt.Sprintf("  - {name: box%d, adapter: openai, endpoint: %s, models: [{name: m, primitives: [llm.chat], limits: {first_output: 20s, idle: 20s, total: 30s}}]}\n", i, box.Endpoint())
	}
	p.write("b/config.yaml", config)
	hubDir := filepath.Join(p.dir, "hub")
	p.hub = start(t, "orchestrator", "--dir", hubDir, "--web", "127.0.0.1:0", "--listen", "/ip4/127.0.0.1/tcp/0", "--catalog", filepath.Join(p.dir, "catalogue.yaml"))
	for _, dir := range []string{p.aDir, p.bDir} {
		good(t, "join", "--dir", dir, strings.TrimSpace(good(t, "invite", "--dir", hubDir)))
	}
	p.a = p.device(p.aDir)
	p.startB()
	p.untilFilled()
	return p
}

func (p *pair) write(name, text string) {
	p.t.Helper()
	file := filepath.Join(p.dir, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		p.t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		p.t.Fatal(err)
	}
}

func (p *pair) device(dir string) *process {
	p.t.Helper()
	return start(p.t, "daemon", "--dir", dir, "--edge", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--listen", "/ip4/127.0.0.1/tcp/0")
}

func (p *pair) startB() {
	p.t.Helper()
	p.b = p.device(p.bDir)
}

// untilFilled waits until a sees that b could fill the slot. It asks for no work.
func (p *pair) untilFilled() {
	p.t.Helper()
	until(p.t, "a could hand work to b", func() bool {
		out, _, code := command(p.t, "chain", "show", "--dir", p.aDir, "--json")
		return code == 0 && strings.Contains(out, `"eligible":true`)
	})
}

// calls counts what all of these were asked for.
func calls(providers ...*providertest.Provider) int {
	n := 0
	for _, p := range providers {
		n += len(p.Requests())
	}
	return n
}

// A chat through a runs on b, whose model a lacks, under one request id in headers and
// both logs; and b is used again as soon as it is back from the dead.
func TestAPeerRunsWhatThisDeviceLacks(t *testing.T) {
	box := providertest.New(t, providertest.Healthy("box"))
	p := newPair(t, []*providertest.Provider{box})
	runsOnB := func(id string) {
		t.Helper()
		status, text, h := ask(t, p.a.ready.Device, "X-Chordwheel-Request-Id", id)
		if status != http.StatusOK || text != "box" || h.Get("X-Chordwheel-Option") != "peer" || !strings.HasPrefix(h.Get("X-Chordwheel-Peer"), "b/") || h.Get("X-Chordwheel-Request-Id") != id {
			t.Fatalf("answer %d %q, headers %v", status, text, h)
		}
	}
	runsOnB("hand-over-1")
	for name, log := range map[string]*logBuffer{"a": p.a.log, "b": p.b.log} {
		until(t, name+"'s log names b under the request's id", func() bool {
			for line := range strings.Lines(log.String()) {
				if strings.Contains(line, "hand-over-1") && (name == "b" || strings.Contains(line, string(p.b.ready.Device.PeerID))) {
					return true
				}
			}
			return false
		})
	}
	for name, dir := range map[string]string{"a": p.aDir, "b": p.bDir} { // the trace: on a the slot and who filled it, on b what ran
		var v struct {
			Traces []control.Trace `json:"traces"`
		}
		if err := json.Unmarshal([]byte(good(t, "trace", "hand-over-1", "--dir", dir, "--json")), &v); err != nil {
			t.Fatal(err)
		}
		if len(v.Traces) != 1 || len(v.Traces[0].Attempts) != 1 || v.Traces[0].End != "answered" {
			t.Fatalf("the trace on %s: %+v", name, v)
		}
		by, forWhom := v.Traces[0].Attempts[0].Name, v.Traces[0].ForName
		if name == "a" && (by != "b" || forWhom != "") || name == "b" && (by != "" || forWhom != "a") {
			t.Errorf("the trace on %s: %+v", name, v)
		}
	}
	was := p.b.ready.Device.PeerID

	// Dead in mid-wait: the next option answers.
	box.Script((*providertest.Exchange).Hang)
	dead := make(chan struct{})
	go func() {
		defer close(dead)
		box.Wait(2)
		p.b.kill()
	}()
	if status, text, h := ask(t, p.a.ready.Device); status != http.StatusOK || text != "beta" || h.Get("X-Chordwheel-Option") != "p0/small" {
		t.Errorf("b died in mid-wait: %d %q, headers %v", status, text, h)
	}
	<-dead
	if status, text, h := ask(t, p.a.ready.Device); status != http.StatusOK || text != "beta" || h.Get("X-Chordwheel-Attempts") != "1" {
		t.Errorf("after b's death: %d %q, headers %v", status, text, h)
	}
	box.Script(providertest.Healthy("box"))
	p.startB()
	if p.b.ready.Device.PeerID != was {
		t.Fatal("b came back as another")
	}
	p.untilFilled()
	runsOnB("hand-over-2")

	// Dead in mid-answer: an error event, then [DONE]; no other option's text.
	box.Script(func(x *providertest.Exchange) {
		x.Open()
		x.Event(x.Request.Role())
		x.Event(x.Request.Said("half an"))
		x.Hang()
	})
	said := p.stream(func(line string) {
		if strings.Contains(line, "half an") {
			p.b.kill()
		}
	})
	if !strings.Contains(said, "half an") || !strings.Contains(said, `"error"`) || !strings.HasSuffix(said, "data: [DONE]\n\n") || strings.Contains(said, "beta") {
		t.Errorf("b died in mid-answer:\n%s", said)
	}
	box.Script(providertest.Healthy("box"))
	p.startB()
	p.untilFilled()
	runsOnB("hand-over-3")
}

// stream asks a for a streamed chat and gives each line to see, and all of them back.
func (p *pair) stream(see func(line string)) string {
	p.t.Helper()
	r, err := http.NewRequest(http.MethodPost, p.a.ready.Device.Edge+"/chat/completions", strings.NewReader(streamedChat))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+p.a.ready.Device.Key)
	response, err := (&http.Client{Timeout: patience}).Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	defer response.Body.Close()
	var all strings.Builder
	for in := bufio.NewReader(response.Body); ; {
		line, err := in.ReadString('\n')
		all.WriteString(line)
		see(line)
		if err == io.EOF {
			return all.String()
		}
		if err != nil {
			p.t.Fatal(err)
		}
	}
}

// A caller who leaves is told to the provider behind the peer, before the first word
// and in mid-answer: long before any limit of the service would end it.
func TestACallerWhoLeavesIsToldToThePeersProvider(t *testing.T) {
	box := providertest.New(t)
	p := newPair(t, []*providertest.Provider{box})
	for i, play := range []providertest.Play{(*providertest.Exchange).Hang, func(x *providertest.Exchange) {
		x.Open()
		x.Event(x.Request.Said("half an"))
		x.Hang()
	}} {
		box.Script(play)
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan time.Time, 1)
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.a.ready.Device.Edge+"/chat/completions", strings.NewReader(streamedChat))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Authorization", "Bearer "+p.a.ready.Device.Key)
		if i == 0 {
			go func() {
				box.Wait(1)
				left <- time.Now()
				leave()
			}()
		}
		response, err := http.DefaultClient.Do(r)
		if i == 1 {
			if err != nil {
				t.Fatal(err)
			}
			if _, err := bufio.NewReader(response.Body).ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			left <- time.Now()
			leave()
			response.Body.Close()
		}
		took := box.WaitClosed(i + 1).Sub(<-left)
		if t.Logf("the peer's provider saw it after %s", took); took > 10*time.Second {
			t.Error("that was a limit of the service, not the caller")
		}
		leave()
	}
}

// Attempts do not multiply: a may make 8, and all that b has fails, and so does all that a
// has.
func TestAttemptsDoNotMultiplyOverPeers(t *testing.T) {
	failing := func(n int) (all []*providertest.Provider) {
		for range n {
			all = append(all, providertest.New(t, providertest.Refusal(503, `{"error":{"message":"down"}}`)))
		}
		return all
	}
	boxes, more := failing(5), failing(6)
	p := newPair(t, boxes, more...)
	p.beta.Script(providertest.Refusal(503, `{"error":{"message":"down"}}`))
	status, text, h := ask(t, p.a.ready.Device)
	atB, atA := calls(boxes...), calls(append(more, p.beta)...)
	if status == http.StatusOK || atB == 0 || atA == 0 || atA+atB > 8 || h.Get("X-Chordwheel-Attempts") != fmt.Sprint(atA+atB) {
		t.Errorf("%d calls at b and %d at a, said to be %s; %d %s", atB, atA, h.Get("X-Chordwheel-Attempts"), status, text)
	}
}
