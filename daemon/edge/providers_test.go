package edge

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/routers/gorillamux"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/job"
	"github.com/chordwheel/chordwheel/mesh/member"
)

const registration = `{"invitation":"chordwheel1:x","capabilities":["execute:text.keywords"],"worker_class":"browser"}`

// boarded is an edge with a board whose invitations are all good but for some.
func boarded(t testing.TB, change ...func(*Config)) (*Edge, *job.Board) {
	t.Helper()
	b := job.NewBoard(job.NewTable(nil), nil)
	admit := func(_ context.Context, invitation chain.Secret, _ job.Registration) (job.Grant, error) {
		switch invitation {
		case "used":
			return job.Grant{}, Refuse(Unauthorized, "the invitation was used up")
		case "away":
			return job.Grant{}, Refuse(HubUnreachable, "the hub is out of reach")
		}
		return job.Grant{Scope: chain.DefaultScope, Patterns: []member.Pattern{member.Everything}}, nil
	}
	change = append(change, func(c *Config) {
		c.Jobs, c.Origins = &Jobs{Board: b, Admit: admit}, []string{"http://app.example"}
	})
	return newEdge(t, answering(), change...), b
}

// registered is a provider of e.
func registered(t testing.TB, e *Edge) ProviderResponse {
	t.Helper()
	w := do(e, ask("POST", "/api/v1/providers", registration, "Authorization", ""))
	var p ProviderResponse
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return p
}

// offered puts a job on the board and gives its ID once the provider took it.
func offered(t testing.TB, b *job.Board, id string) (string, <-chan job.Answer) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	answers := make(chan job.Answer, 1)
	go func() {
		a, _ := b.Run(ctx, &job.Work{Scope: chain.DefaultScope, Primitive: "text.keywords", Body: []byte(`{"input":"a b"}`)}, nil, nil)
		answers <- a
	}()
	leases, err := b.Claim(ctx, id, 1, job.LongestWait)
	if err != nil || len(leases) != 1 {
		t.Fatal(leases, err)
	}
	return leases[0].Job, answers
}

// TestProvidersAreRefused: each no of the routes, as it is on the wire.
func TestProvidersAreRefused(t *testing.T) {
	e, b := boarded(t)
	p, other := registered(t, e), registered(t, e)
	doing, _ := offered(t, b, p.ID)
	over, answers := offered(t, b, p.ID)
	bearer := "Bearer " + p.Key
	if w := do(e, ask("POST", "/api/v1/jobs/"+over+"/result", `{"state":"done","output":1}`, "Authorization", bearer)); w.Code != 200 {
		t.Fatal(w.Body)
	}
	<-answers
	var out strings.Builder
	for _, c := range []struct{ name, method, path, body, auth string }{
		{"no class", "POST", "/api/v1/providers", `{"invitation":"x","capabilities":["execute:a.b"]}`, ""},
		{"no capabilities", "POST", "/api/v1/providers", `{"invitation":"x","capabilities":[],"worker_class":"agent"}`, ""},
		{"capabilities that are no list", "POST", "/api/v1/providers", `{"invitation":"x","capabilities":1,"worker_class":"agent"}`, ""},
		{"no invitation", "POST", "/api/v1/providers", `{"capabilities":["execute:a.b"],"worker_class":"agent"}`, ""},
		{"one that was used up", "POST", "/api/v1/providers", strings.Replace(registration, "chordwheel1:x", "used", 1), ""},
		{"the hub is away", "POST", "/api/v1/providers", strings.Replace(registration, "chordwheel1:x", "away", 1), ""},
		{"no JSON", "POST", "/api/v1/providers", `{"invitation":`, ""},
		{"a name twice", "POST", "/api/v1/providers", `{"invitation":"a","invitation":"b"}`, ""},
		{"no key", "GET", "/api/v1/providers/" + p.ID + "/jobs", "", ""},
		{"the edge's key", "GET", "/api/v1/providers/" + p.ID + "/jobs", "", "Bearer " + testKey},
		{"another's path", "GET", "/api/v1/providers/" + other.ID + "/jobs", "", bearer},
		{"another's events", "GET", "/api/v1/providers/" + other.ID + "/events", "", bearer},
		{"too many at once", "GET", "/api/v1/providers/" + p.ID + "/jobs?max=5", "", bearer},
		{"too long a wait", "GET", "/api/v1/providers/" + p.ID + "/jobs?wait=31", "", bearer},
		{"HEAD", "HEAD", "/api/v1/providers/" + p.ID + "/events", "", bearer},
		{"a heartbeat for an unknown job", "POST", "/api/v1/jobs/nobody/heartbeat", "", bearer},
		{"for another's", "POST", "/api/v1/jobs/" + doing + "/heartbeat", "", "Bearer " + other.Key},
		{"for one that is over", "POST", "/api/v1/jobs/" + over + "/heartbeat", "", bearer},
		{"a result without a state", "POST", "/api/v1/jobs/" + doing + "/result", `{}`, bearer},
		{"done with nothing", "POST", "/api/v1/jobs/" + doing + "/result", `{"state":"done"}`, bearer},
		{"another result", "POST", "/api/v1/jobs/" + over + "/result", `{"state":"done","output":2}`, bearer},
		{"for another's job", "POST", "/api/v1/jobs/" + over + "/result", `{"state":"done","output":1}`, "Bearer " + other.Key},
		{"a provider's key elsewhere", "GET", "/v1/models", "", bearer},
	} {
		w := do(e, ask(c.method, c.path, c.body, "Authorization", c.auth, headerRequestID, "r1"))
		fmt.Fprintf(&out, "%s\n  %d\n  %s\n\n", c.name, w.Code, sortedMembers(w.Body.String()))
	}
	golden(t, "providers.golden", out.String())
	if w := do(newEdge(t, answering()), ask("POST", "/api/v1/providers", registration)); w.Code != 404 {
		t.Errorf("an edge without a board: %d", w.Code)
	}
}

// TestProvidersAnswersAreTheDocuments: requests and answers are what openapi.yaml says.
func TestProvidersAnswersAreTheDocuments(t *testing.T) {
	router, err := gorillamux.NewRouter(document(t))
	if err != nil {
		t.Fatal(err)
	}
	e, b := boarded(t)
	p := registered(t, e)
	bearer := "Bearer " + p.Key
	doing, _ := offered(t, b, p.ID)
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"POST", "/api/v1/providers", registration, 200},
		{"GET", "/api/v1/providers/" + p.ID + "/jobs?max=4&wait=0", "", 200},
		{"POST", "/api/v1/jobs/" + doing + "/heartbeat", "", 200},
		{"POST", "/api/v1/jobs/" + doing + "/result", `{"state":"running","text":"a"}`, 200},
		{"POST", "/api/v1/jobs/" + doing + "/result", `{"state":"done","output":["a"]}`, 200},
		{"POST", "/api/v1/jobs/" + doing + "/result", `{"state":"failed","reason":"x"}`, 409},
		{"GET", "/api/v1/providers/" + p.ID + "x/jobs", "", 404},
	} {
		check(t, router, e, func() *http.Request { return ask(c.method, c.path, c.body, "Authorization", bearer) }, c.status)
	}
}

// TestAProviderOverHTTP: a page of a listed origin registers, is told of a job,
// takes it, says that it works on it, and answers; the edge's end ends its stream.
func TestAProviderOverHTTP(t *testing.T) {
	e, b := boarded(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- e.Serve(l) }()
	base := "http://" + l.Addr().String()
	p := registered(t, e)
	call := func(method, path, body string) *http.Response {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, base+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+p.Key)
		r.Header.Set("Origin", "http://app.example")
		if body != "" {
			r.Header.Set("Content-Type", "application/json")
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		if answer.StatusCode != 200 || answer.Header.Get("Access-Control-Allow-Origin") != "http://app.example" {
			t.Fatalf("%s %s: %s %v", method, path, answer.Status, answer.Header)
		}
		return answer
	}
	stream := call("GET", "/api/v1/providers/"+p.ID+"/events", "")
	lines := bufio.NewScanner(stream.Body)
	answers := make(chan job.Answer, 1)
	go func() {
		a, _ := b.Run(context.Background(), &job.Work{Scope: chain.DefaultScope, Primitive: "text.keywords", Body: []byte(`{"input":"a b"}`)}, nil, nil)
		answers <- a
	}()
	var notice job.Notice
	for event := ""; lines.Scan() && notice.Job == ""; {
		if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			event = name
		}
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok && event == "job" {
			if err := json.Unmarshal([]byte(data), &notice); err != nil {
				t.Fatal(err)
			}
		}
	}
	var list JobList
	taken := call("GET", "/api/v1/providers/"+p.ID+"/jobs?wait=5", "")
	if err := json.NewDecoder(taken.Body).Decode(&list); err != nil || len(list.Jobs) != 1 || list.Jobs[0].ID != notice.Job || string(list.Jobs[0].Request) != `{"input":"a b"}` {
		t.Fatalf("%+v, %v", list, err)
	}
	call("POST", "/api/v1/jobs/"+notice.Job+"/heartbeat", "").Body.Close()
	for range 2 {
		call("POST", "/api/v1/jobs/"+notice.Job+"/result", `{"state":"done","output":["a"]}`).Body.Close()
	}
	if a := <-answers; string(a.Output) != `["a"]` || a.Provider != p.ID {
		t.Errorf("%+v", a)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	http.DefaultClient.CloseIdleConnections()
	if err := e.Shutdown(ctx); err != nil || ctx.Err() != nil {
		t.Errorf("shutdown: %v", err)
	}
	if _, err := io.Copy(io.Discard, stream.Body); err != nil {
		t.Errorf("the stream did not end well: %v", err)
	}
	stream.Body.Close()
	<-served
}

// TestRegistrationsAreLimited: each of them costs a visit at the hub.
func TestRegistrationsAreLimited(t *testing.T) {
	e, _ := boarded(t)
	limited := 0
	for range 2 * registrations {
		if w := do(e, ask("POST", "/api/v1/providers", registration)); w.Code == http.StatusTooManyRequests {
			limited++
		}
	}
	if limited == 0 {
		t.Error("nobody was refused")
	}
}
