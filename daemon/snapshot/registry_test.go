package snapshot

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chordwheel/chordwheel/daemon/authority"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// reply is one answer of the scripted registry.
type reply struct {
	status int
	body   string
	header http.Header
	err    error         // instead of an answer
	cut    bool          // the body breaks off
	drip   time.Duration // between two bytes of the body
	delay  time.Duration // before the headers
	always bool          // the next request gets it too
}

// script plays replies in order, by cursor or for any. It serves over the real
// client, so that what HTTP itself does wrong is met where it is met in use.
type script struct {
	mu      sync.Mutex
	replies []reply
	asked   []string // cursor|If-None-Match
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.asked = append(s.asked, r.URL.Query().Get("cursor")+"|"+r.Header.Get("If-None-Match"))
	if r.URL.Path != "/registry/v1/agents" || r.URL.Query().Get("page_size") != "100" {
		s.mu.Unlock()
		return nil, fmt.Errorf("asked for %s", r.URL)
	}
	if len(s.replies) == 0 {
		s.mu.Unlock()
		return nil, errors.New("connection refused")
	}
	next := s.replies[0]
	if !next.always {
		s.replies = s.replies[1:]
	}
	s.mu.Unlock()
	if err := pause(r.Context(), next.delay); err != nil {
		return nil, err
	}
	if next.err != nil {
		return nil, next.err
	}
	if next.status == 0 {
		next.status = http.StatusOK
	}
	if next.header == nil {
		next.header = http.Header{}
	}
	if next.header.Get("Content-Type") == "" {
		next.header.Set("Content-Type", "application/json")
	}
	return &http.Response{StatusCode: next.status, Header: next.header, Body: &body{r.Context(), strings.NewReader(next.body), next.cut, next.drip}, Request: r}, nil
}

func (s *script) play(replies ...reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replies, s.asked = replies, nil
}

func (s *script) requests() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.asked, " ")
}

func pause(ctx context.Context, d time.Duration) error {
	if d == 0 {
		return nil
	}
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

type body struct {
	ctx  context.Context
	from *strings.Reader
	cut  bool
	drip time.Duration
}

func (b *body) Read(p []byte) (int, error) {
	if b.drip > 0 {
		p = p[:1]
	}
	if err := pause(b.ctx, b.drip); err != nil {
		return 0, err
	}
	n, err := b.from.Read(p)
	if err == io.EOF && b.cut {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

func (b *body) Close() error { return nil }

// listing makes a page; agents are written NAME or NAME=STATUS.
func listing(next string, agents ...string) string {
	var list []Agent
	for _, a := range agents {
		name, status, ok := strings.Cut(a, "=")
		if !ok {
			status = "active"
		}
		list = append(list, Agent{"did:web:" + name, "llm.chat", "https://" + name + ".example/v1", Status(status), name})
	}
	if list == nil {
		list = []Agent{}
	}
	b, err := json.Marshal(map[string]any{"agents": list, "next_cursor": next})
	if err != nil {
		panic(err)
	}
	return string(b)
}

func tagged(etag, next string, agents ...string) reply {
	return reply{body: listing(next, agents...), header: http.Header{"Etag": {etag}}}
}

func untagged(next string, agents ...string) reply { return reply{body: listing(next, agents...)} }

var unchanged = reply{status: http.StatusNotModified}

// memory is a store without a disk.
type memory struct {
	b     []byte
	err   error
	saves int
}

func (m *memory) Load(int64) ([]byte, error) { return m.b, m.err }
func (m *memory) Save(b []byte) error {
	if m.err == nil {
		m.b = bytes.Clone(b)
		m.saves++
	}
	return m.err
}
func (m *memory) Delete() error {
	if m.err == nil {
		m.b = nil
	}
	return m.err
}

const registryURL = "https://agents.example"

func keeper(t testing.TB, s *script, change func(*Config)) *Keeper {
	t.Helper()
	server, err := authority.New(registryURL, authority.Options{Transport: s})
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Server: server, Registry: registryURL}
	if change != nil {
		change(&cfg)
	}
	k, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(k.Close)
	return k
}

// names gives the agents that are published, or the error.
func names(k *Keeper) string {
	s, err := k.Current(time.Now())
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, a := range s.Agents() {
		name := strings.TrimPrefix(a.DID, "did:web:")
		if a.Status != StatusActive {
			name += "=" + string(a.Status)
		}
		out = append(out, name)
	}
	return strings.Join(out, " ")
}
