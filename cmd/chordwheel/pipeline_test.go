package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/chordwheel/chordwheel/daemon/adapter/providertest"
	"github.com/chordwheel/chordwheel/daemon/job"
)

// hardQuestion is one that the classifier finds complex.
const hardQuestion = `Compare three database engines for a small web shop. First, list their licences. Second, weigh their cost and their operational risk against each other. Third, design a migration plan with a rollback for each step, and finally recommend one and justify the trade-offs in detail.`

// tiers is a hub and three devices as processes of their own: a asks and supervises, b
// and c are workers, each with a model of its own.
type tieredMesh struct {
	t      *testing.T
	dir    string
	device map[string]*process
	model  map[string]*providertest.Provider
}

func newTieredMesh(t *testing.T) *tieredMesh {
	t.Helper()
	t.Setenv("CHORDWHEEL_BUILTIN", "false")
	m := &tieredMesh{t: t, dir: t.TempDir(), device: map[string]*process{}, model: map[string]*providertest.Provider{}}
	p := &pair{t: t, dir: m.dir}
	var catalogue strings.Builder
	catalogue.WriteString("primitives:\n")
	for _, primitive := range []string{"llm.chat", "llm.t1", "llm.t2", "llm.t3"} {
		fmt.Fprintf(&catalogue, "  - {name: %s, default: [local, peer], peer: {requires: [\"execute:%s\"], tries: 2}}\n", primitive, primitive)
	}
	p.write("catalogue.yaml", catalogue.String())
	hubDir := filepath.Join(m.dir, "hub")
	start(t, "orchestrator", "--dir", hubDir, "--web", "127.0.0.1:0", "--listen", "/ip4/127.0.0.1/tcp/0", "--catalog", filepath.Join(m.dir, "catalogue.yaml"))
	for name, primitives := range map[string]string{"a": "llm.chat, llm.t3", "b": "llm.t1, llm.t2", "c": "llm.t1, llm.t2"} {
		m.model[name] = providertest.New(t, says(name))
		p.write(name+"/config.yaml", fmt.Sprintf("name: %s\npipeline: {enabled: true, hedge_after: 1s, hedge_budget: 1}\nadapters:\n  - {name: box%s, adapter: openai, endpoint: %s, models: [{name: m%s, primitives: [%s], limits: {first_output: 20s, idle: 20s, total: 30s}}]}\n",
			name, name, m.model[name].Endpoint(), name, primitives))
		good(t, "join", "--dir", filepath.Join(m.dir, name), strings.TrimSpace(good(t, "invite", "--dir", hubDir)))
		m.device[name] = start(t, "daemon", "--dir", filepath.Join(m.dir, name), "--edge", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--listen", "/ip4/127.0.0.1/tcp/0")
	}
	until(t, "a could hand work to both", func() bool {
		out, _, code := command(t, "chain", "show", "workspace:home", "llm.t2", "--dir", filepath.Join(m.dir, "a"), "--json")
		return code == 0 && strings.Count(out, `"eligible":true`) == 2
	})
	return m
}

// says answers what each stage of the pipeline asks for; parts are done by the model of
// that name.
func says(name string) providertest.Play {
	return func(x *providertest.Exchange) {
		body := string(x.Request.Body)
		text := "words of " + name
		switch {
		case strings.Contains(body, "depends_on"):
			text = "A plan:\n```json\n" + `{"subtasks":[{"id":"x","type":"research","prompt":"licences","tier":1},{"id":"y","type":"analysis","prompt":"risk","tier":2}],"synthesis":"supervisor"}` + "\n```\n"
		case strings.Contains(body, "issues"):
			text = `{"score": 0.9, "issues": []}`
		}
		providertest.Healthy(text)(x)
	}
}

// chat asks a the hard question.
func (m *tieredMesh) chat() (status int, text string, jobs []job.Record) {
	m.t.Helper()
	body, _ := json.Marshal(map[string]any{"model": "auto", "messages": []map[string]string{{"role": "user", "content": hardQuestion}}})
	r, err := http.NewRequest(http.MethodPost, m.device["a"].ready.Device.Edge+"/chat/completions", strings.NewReader(string(body)))
	if err != nil {
		m.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	response, err := (&http.Client{Timeout: 2 * patience}).Do(r)
	if err != nil {
		m.t.Fatal(err)
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		m.t.Fatal(err)
	}
	if c := response.Header.Get("X-Chordwheel-Complexity"); !strings.HasPrefix(c, "complex") && !strings.HasPrefix(c, "agentic") {
		m.t.Errorf("complexity %q", c)
	}
	var v jobList
	if id := response.Header.Get("X-Chordwheel-Job"); id == "" {
		m.t.Errorf("no job: %d %s", response.StatusCode, b)
	} else if err := json.Unmarshal([]byte(good(m.t, "jobs", "show", id, "--dir", filepath.Join(m.dir, "a"), "--json")), &v); err != nil {
		m.t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		return response.StatusCode, string(b), v.Jobs
	}
	return response.StatusCode, plainOutput(b), v.Jobs
}

// where gives the devices that the parts of a request ran on, "" for a itself.
func where(jobs []job.Record) map[string]bool {
	on := map[string]bool{}
	for _, r := range jobs {
		if r.ID != r.Root && r.State == job.Done {
			on[r.Device] = true
		}
	}
	return on
}

// hedged gives a second copy that won, and the first copy that lost against it. On a slow
// machine parts that nobody holds up may have a second copy as well, which loses or wins.
func hedged(jobs []job.Record) (winner, loser *job.Record) {
	for i := range jobs {
		for j := range jobs {
			if jobs[i].Hedge == job.Winner && jobs[j].Hedge == job.Loser && jobs[i].CopyOf == jobs[j].ID {
				return &jobs[i], &jobs[j]
			}
		}
	}
	return nil, nil
}

// A hard question at one device is worked on by others as well. What becomes of them
// changes how, and not that there is an answer, until nobody is left.
func TestAHardQuestionOverThreeDevices(t *testing.T) {
	m := newTieredMesh(t)
	status, text, jobs := m.chat()
	if on := where(jobs); status != http.StatusOK || text == "" || !on[""] || !on["b"] && !on["c"] {
		t.Fatalf("%d %q, ran on %v: %+v", status, text, on, jobs)
	}

	// One worker is silent: a second copy of its part runs on the other, and wins.
	var slow sync.Mutex
	held := false
	for _, name := range []string{"b", "c"} {
		m.model[name].Script(func(x *providertest.Exchange) {
			slow.Lock()
			first := !held
			held = true
			slow.Unlock()
			if first {
				<-x.Gone()
				return
			}
			says(name)(x)
		})
	}
	status, text, jobs = m.chat()
	if winner, loser := hedged(jobs); status != http.StatusOK || winner == nil || loser == nil || winner.Rung == 0 || loser.State != job.Superseded || loser.Device == winner.Device || !jobs[0].AtLeast {
		t.Errorf("no hedge won: %d %q %+v", status, text, jobs)
	} else if shown := good(t, "jobs", "show", jobs[0].ID, "--dir", filepath.Join(m.dir, "a")); !strings.Contains(shown, "superseded (loser)") || !strings.Contains(shown, "done (winner)") || !strings.Contains(shown, "cost         at least ") {
		t.Errorf("%s", shown)
	}

	// Both workers are asked and say nothing; the first that was asked dies, the other goes on.
	asked, released, once := make(chan string, 16), make(chan struct{}), sync.Once{}
	for _, name := range []string{"b", "c"} {
		m.model[name].Script(func(x *providertest.Exchange) {
			asked <- name
			select {
			case <-released:
				says(name)(x)
			case <-x.Gone():
			}
		})
	}
	dead := make(chan string, 1)
	go func() {
		name := <-asked
		m.device[name].kill()
		once.Do(func() { close(released) })
		dead <- name
	}()
	status, text, jobs = m.chat()
	gone := <-dead
	left := map[string]string{"b": "c", "c": "b"}[gone]
	if on := where(jobs); status != http.StatusOK || text == "" || on[gone] || !on[left] {
		t.Errorf("%s died: %d %q, ran on %v: %+v", gone, status, text, on, jobs)
	}

	// One model is left, which supervises.
	m.device[left].kill()
	status, text, jobs = m.chat()
	if on := where(jobs); status != http.StatusOK || text == "" || len(on) != 1 || !on[""] {
		t.Errorf("a alone: %d %q, ran on %v: %+v", status, text, on, jobs)
	}

	// None is.
	m.model["a"].Script(providertest.Refusal(503, `{"error":{"message":"down"}}`))
	status, text, jobs = m.chat()
	if status != http.StatusServiceUnavailable || !strings.Contains(text, "no_models") || len(jobs) == 0 || jobs[0].Reason != "no_models" {
		t.Errorf("nobody: %d %q: %+v", status, text, jobs)
	}
}

// What examples/pipeline tells a newcomer to use is in order.
func TestTheExampleOfThePipeline(t *testing.T) {
	good(t, "catalog", "check", "../../examples/pipeline/catalogue.yaml")
	b, err := os.ReadFile("../../examples/pipeline/config.yaml")
	if err != nil {
		t.Fatal(err)
	}
	c := defaultDevice(0, "127.0.0.1")
	if wrong := decodeConfig(b, &c); len(wrong) > 0 || !c.Pipeline.Enabled {
		t.Errorf("%v, %+v", wrong, c.Pipeline)
	}
	if _, err := c.Pipeline.settings(); err != nil {
		t.Error(err)
	}
}
