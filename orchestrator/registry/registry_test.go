package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

// fleet is a source that can be changed.
type fleet struct {
	mu      sync.Mutex
	version uint64
	agents  []Agent
	reads   int
	fault   error
}

func (f *fleet) Version() uint64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.version
}

func (f *fleet) Agents(context.Context) ([]Agent, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads++
	return slices.Clone(f.agents), f.fault
}

func (f *fleet) set(agents []Agent) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.agents = agents
	f.version++
}

func some(n int) []Agent {
	var out []Agent
	for i := range n {
		out = append(out, Agent{DID: fmt.Sprintf("did:key:z%04d", i), Capability: "llm.chat", Status: Active, Class: Class(i % 2)})
	}
	rand.Shuffle(n, func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

type answer struct {
	status int
	etag   string
	Agents []Agent `json:"agents"`
	Next   string  `json:"next_cursor"`
	Error  struct{ Code string }
	body   string
}

func get(t interface{ Fatalf(string, ...any) }, s *Server, query, etag string) answer {
	r := httptest.NewRequest(http.MethodGet, "/registry/v1/agents"+query, nil)
	if etag != "" {
		r.Header.Set("If-None-Match", etag)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	a := answer{status: w.Code, etag: w.Header().Get("ETag"), body: w.Body.String()}
	if w.Code == http.StatusNotModified {
		if a.body != "" {
			t.Fatalf("304 with a body")
		}
		return a
	}
	if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil {
		t.Fatalf("%s: %d %s", query, w.Code, w.Body)
	}
	return a
}

func server(t testing.TB, agents []Agent) (*Server, *fleet) {
	t.Helper()
	f := &fleet{agents: agents}
	s, err := New(f)
	if err != nil {
		t.Fatal(err)
	}
	return s, f
}

func TestPages(t *testing.T) {
	s, f := server(t, some(250))
	var dids []string
	pages, cursor := 0, ""
	for {
		a := get(t, s, "?page_size=100&cursor="+url.QueryEscape(cursor), "")
		if a.status != http.StatusOK || a.etag == "" || len(a.Agents) > 100 {
			t.Fatal(a)
		}
		for _, agent := range a.Agents {
			dids = append(dids, agent.DID)
		}
		if pages++; a.Next == "" || pages > 10 {
			break
		}
		cursor = a.Next
	}
	if pages != 3 || len(dids) != 250 || f.reads != 1 {
		t.Errorf("%d pages, %d agents, %d reads", pages, len(dids), f.reads)
	}
	if !slices.IsSorted(dids[:125]) || !slices.IsSorted(dids[125:]) || dids[0] != "did:key:z0000" || dids[125] != "did:key:z0001" {
		t.Error("providers first, each class in its order:", dids[0], dids[125])
	}
}

func TestEmptyAndExactPages(t *testing.T) {
	for n, next := range map[int]bool{0: false, 1: false, 100: false, 101: true} {
		s, _ := server(t, some(n))
		a := get(t, s, "", "")
		if len(a.Agents) != min(n, 100) || (a.Next != "") != next || !strings.HasPrefix(a.body, `{"agents":[`) {
			t.Errorf("%d agents: %d, next %q", n, len(a.Agents), a.Next)
		}
		if next {
			if b := get(t, s, "?cursor="+a.Next, ""); len(b.Agents) != 1 || b.Next != "" {
				t.Errorf("%d agents: %+v", n, b)
			}
		}
	}
}

// A suspension changes the ETag of its page, and of no other one.
func TestASuspensionChangesItsPage(t *testing.T) {
	agents := some(150)
	s, f := server(t, agents)
	first := get(t, s, "", "")
	second := get(t, s, "?cursor="+first.Next, "")
	for _, tag := range []string{first.etag, "W/" + first.etag, `"x", ` + first.etag, "*"} {
		if a := get(t, s, "", tag); a.status != http.StatusNotModified || a.etag != first.etag {
			t.Errorf("%s: %d", tag, a.status)
		}
	}
	changed := slices.Clone(agents)
	i := slices.IndexFunc(changed, func(a Agent) bool { return a.DID == first.Agents[7].DID })
	changed[i].Status = Suspended
	f.set(changed)
	a := get(t, s, "", first.etag)
	if a.status != http.StatusOK || a.etag == first.etag || a.Agents[7].Status != Suspended || a.Next != first.Next {
		t.Error(a.status, a.etag, a.Agents[7])
	}
	if b := get(t, s, "?cursor="+first.Next, second.etag); b.status != http.StatusNotModified {
		t.Error("the other page:", b.status)
	}
	f.set(agents)
	if a := get(t, s, "", first.etag); a.status != http.StatusNotModified {
		t.Error("the suspension is over:", a.status)
	}
}

func TestDoubles(t *testing.T) {
	s, _ := server(t, []Agent{
		{DID: "did:key:a", Capability: "llm.chat", Status: Active, Class: Device},
		{DID: "did:key:a", Capability: "llm.chat", Status: Suspended, Class: Provider},
		{DID: "did:key:a", Capability: "llm.t1", Status: Active, Class: Device},
		{DID: "did:key:b", Capability: "llm.chat", Status: Active, ModelID: "first"},
		{DID: "did:key:b", Capability: "llm.chat", Status: Active, ModelID: "second"},
	})
	a := get(t, s, "", "")
	if len(a.Agents) != 3 || a.Agents[0].Status != Suspended || a.Agents[1].ModelID != "first" || a.Agents[2].Capability != "llm.t1" {
		t.Error(a.Agents)
	}
}

func TestBadQueries(t *testing.T) {
	s, _ := server(t, some(3))
	for _, q := range []string{"?page_size=0", "?page_size=-1", "?page_size=x", "?page_size=", "?cursor=x", "?cursor=MGRpZA", "?cursor=OWRpZAph", "?cursor=" + strings.Repeat("A", 2000), "?cursor=%zz", "?" + strings.Repeat("a", 5000)} {
		if a := get(t, s, q, ""); a.status != http.StatusBadRequest || a.Error.Code != "invalid_request" || a.etag != "" {
			t.Errorf("%.40s: %d %s", q, a.status, a.body)
		}
	}
	if a := get(t, s, "?page_size=1000&x=y", ""); a.status != http.StatusOK || len(a.Agents) != 3 {
		t.Error(a.status)
	}
	if a := get(t, s, "?page_size=2", ""); len(a.Agents) != 2 || a.Next == "" {
		t.Error(a.Agents)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/registry/v1/agents", nil))
	if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != "GET" {
		t.Error(w.Code)
	}
	if _, err := New(nil); err == nil {
		t.Error("a registry of nothing")
	}
}

// Whoever walks while agents come and go sees each that was there all the time, and
// none twice.
func TestWalksWhileItChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stay := some(rapid.IntRange(1, 40).Draw(t, "stay"))
		f := &fleet{agents: stay}
		s, err := New(f)
		if err != nil {
			t.Fatal(err)
		}
		size := rapid.IntRange(1, 7).Draw(t, "size")
		seen := map[string]int{}
		for cursor, i := "", 0; ; i++ {
			a := get(t, s, fmt.Sprintf("?page_size=%d&cursor=%s", size, cursor), "")
			for _, agent := range a.Agents {
				seen[agent.DID]++
			}
			if cursor = a.Next; cursor == "" {
				break
			}
			if i > 500 {
				t.Fatal("a walk without an end")
			}
			guests := slices.Clone(stay)
			for j := range rapid.IntRange(0, 5).Draw(t, "guests") {
				guests = append(guests, Agent{DID: fmt.Sprintf("did:key:z%04d-%d-%d", rapid.IntRange(0, 40).Draw(t, "at"), i, j), Capability: "x", Status: Active})
			}
			f.set(guests)
		}
		for _, a := range stay {
			if seen[a.DID] != 1 {
				t.Errorf("%s was seen %d times", a.DID, seen[a.DID])
			}
		}
		for did, n := range maps.All(seen) {
			if n > 1 {
				t.Errorf("%s was seen %d times", did, n)
			}
		}
	})
}

func FuzzCursor(f *testing.F) {
	f.Add(cursor(Agent{DID: "did:key:a", Capability: "llm.chat", Class: Device}))
	f.Add("")
	f.Fuzz(func(t *testing.T, c string) {
		if a, err := readCursor(c); err == nil && cursor(*a) != strings.NewReplacer("\r", "", "\n", "").Replace(c) {
			t.Errorf("%q is also %q", c, cursor(*a))
		}
	})
}

// A source that does not know is no source without agents.
func TestASourceThatFailsIsNoEmptyPage(t *testing.T) {
	f := &fleet{agents: some(3)}
	s, err := New(f)
	if err != nil {
		t.Fatal(err)
	}
	f.fault = errors.New("the hub stops")
	if a := get(t, s, "", ""); a.status != http.StatusInternalServerError || a.Error.Code != "internal_error" || a.etag != "" {
		t.Errorf("%+v", a)
	}
	f.fault = nil
	if a := get(t, s, "", ""); a.status != http.StatusOK || len(a.Agents) != 3 {
		t.Errorf("%+v", a)
	}
}
