package audit

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/chordwheel/chordwheel/daemon/authority"
	"github.com/chordwheel/chordwheel/store/spool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// ledgerThat answers each receipt with what a test says.
func ledgerThat(t *testing.T, answer http.HandlerFunc) *Client {
	t.Helper()
	s := httptest.NewServer(answer)
	c, err := authority.New(s.URL, authority.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close(); s.CloseClientConnections(); s.Close() })
	return New(c)
}

// What a ledger may say, and what that means for the line.
func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		status  int
		header  string // Retry-After
		body    string
		verdict spool.Verdict
		after   time.Duration
		reason  string
	}{
		{202, "", "{}", spool.Accepted, 0, ""},
		{202, "", "<html>", spool.Accepted, 0, ""}, // the status alone counts
		{200, "", "<html>", spool.Again, 0, "answered 200"},
		{204, "", "", spool.Again, 0, "answered 204"},
		{301, "", "", spool.Again, 0, "answered 301"}, // never followed
		{307, "", "", spool.Again, 0, "answered 307"},
		{400, "", `{"error":{"code":"invalid_request"}}`, spool.Rejected, 0, "answered 400 invalid_request"},
		{422, "", "", spool.Rejected, 0, "answered 422"},
		{409, "", `{"error":{"code":"conflict"}}`, spool.Conflict, 0, "answered 409 conflict"},
		{401, "", "", spool.Again, 0, "answered 401"},
		{403, "", "", spool.Again, 0, "answered 403"},
		{404, "", `{"error":{"code":"evil \n code"}}`, spool.Again, 0, "answered 404"},
		{429, "7", "", spool.Again, 7 * time.Second, "answered 429"},
		{429, "1.5", "", spool.Again, 1500 * time.Millisecond, "answered 429"},
		{429, "-7", "", spool.Again, 0, "answered 429"},
		{429, "soon", "", spool.Again, 0, "answered 429"},
		{429, "1e300", "", spool.Again, 0, "answered 429"},
		{503, "NaN", "", spool.Again, 0, "answered 503"},
		{403, "", `{"error":{"code":"unknown_sender"}}`, spool.Again, 0, "answered 403 unknown_sender: it takes nothing of the DID that signed; if that is a name which this device went by before, the hub's ledger_senders can list it"},
		{502, "", `{"error":{"code":"unresolvable_did"}}`, spool.Again, 0, "answered 502 unresolvable_did: it does not find the log of the DID that signed; chordwheel did show says where that has to be served, and in its own did/ the hub looks first"},
		{500, "", strings.Repeat("x", 1<<20), spool.Again, 0, "answered 500"},
	} {
		client := ledgerThat(t, func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodPost || r.URL.Path != "/audit/v1/receipts" {
				t.Errorf("%s %s", r.Method, r.URL.Path)
			}
			if c.header != "" {
				w.Header().Set("Retry-After", c.header)
			}
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(c.status)
			fmt.Fprint(w, c.body)
		})
		got := client.Send(t.Context(), []byte("{}"))
		if want := (spool.Outcome{Verdict: c.verdict, After: c.after, Reason: c.reason}); got != want {
			t.Errorf("%d %s: %+v, want %+v", c.status, c.header, got, want)
		}
	}
}

// A ledger that hangs, or never ends its answer, holds nobody for ever.
func TestALedgerThatHangs(t *testing.T) {
	hung := make(chan context.CancelFunc, 1)
	client := ledgerThat(t, func(w http.ResponseWriter, r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/receipts") {
			_, _ = io.Copy(io.Discard, r.Body)
			(<-hung)() // the caller gives up
			<-r.Context().Done()
			return
		}
		for {
			if _, err := w.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	hung <- cancel
	if got := client.Send(ctx, []byte("{}")); got.Verdict != spool.Again || got.Reason == "" {
		t.Errorf("%+v", got)
	}
	if _, err := client.Checkpoint(t.Context()); err == nil {
		t.Error("an answer without an end is one")
	}
}

// A real spool, a real client, and a ledger in every mood: each line is taken once, in order, but
// for the one that the ledger has other bytes of.
func TestALedgerInEveryMood(t *testing.T) {
	label := func(line []byte) (spool.Label, error) { return spool.Label{ID: string(line)}, nil }
	s, err := spool.Open(spool.Config{Dir: t.TempDir(), Label: label})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for n := range 5 {
		line := fmt.Sprintf(`{"n":%d}`, n)
		if err := s.Append(t.Context(), line, []byte(line)); err != nil {
			t.Fatal(err)
		}
	}
	ctx, enough := context.WithCancel(t.Context())
	defer enough()
	soon := http.Header{"Retry-After": {"0.01"}}
	moods := []func(w http.ResponseWriter, line string) bool{ // false: not taken
		func(w http.ResponseWriter, _ string) bool { w.WriteHeader(http.StatusTooManyRequests); return false },
		func(w http.ResponseWriter, _ string) bool {
			w.WriteHeader(http.StatusInternalServerError)
			return false
		},
		func(w http.ResponseWriter, _ string) bool { fmt.Fprint(w, "<html>welcome</html>"); return false },
		func(w http.ResponseWriter, _ string) bool { w.WriteHeader(http.StatusUnauthorized); return false },
		func(w http.ResponseWriter, _ string) bool { w.WriteHeader(http.StatusAccepted); return true },
		func(http.ResponseWriter, string) bool { panic(http.ErrAbortHandler) }, // the connection breaks
		func(w http.ResponseWriter, _ string) bool { w.WriteHeader(http.StatusConflict); return false },
		func(w http.ResponseWriter, _ string) bool {
			w.WriteHeader(http.StatusAccepted)
			fmt.Fprint(w, "\x00garbage")
			return true
		},
		func(w http.ResponseWriter, _ string) bool {
			w.Header().Set("Location", "/audit/v1/receipts")
			w.WriteHeader(307)
			return false
		},
	}
	var mu sync.Mutex // the spool sends no two at once, but a handler whose connection breaks ends when it ends
	var taken, asked []string
	client := ledgerThat(t, func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		asked = append(asked, string(b))
		w.Header()["Retry-After"] = soon["Retry-After"]
		mood := func(w http.ResponseWriter, _ string) bool { w.WriteHeader(http.StatusAccepted); return true }
		if n := len(asked) - 1; n < len(moods) {
			mood = moods[n]
		}
		if mood(w, string(b)) {
			taken = append(taken, string(b))
		}
	})
	if err := s.Drain(ctx, untilAll{client, s, enough}); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	if got := strings.Join(taken, ""); got != `{"n":0}{"n":2}{"n":3}{"n":4}` {
		t.Errorf("taken: %s", got)
	}
	if got := strings.Join(asked, ""); got != strings.Repeat(`{"n":0}`, 5)+`{"n":1}{"n":1}{"n":2}{"n":3}{"n":3}{"n":4}` {
		t.Errorf("asked: %s", got)
	}
	if st := s.Status(); st.Depth != 0 || st.Sent != 4 || st.Rejected != 1 || st.Reason != "" {
		t.Errorf("status %+v", st)
	}
}

// untilAll ends a drain with the last line.
type untilAll struct {
	*Client
	spool *spool.Spool
	end   func()
}

func (u untilAll) Send(ctx context.Context, line []byte) spool.Outcome {
	out := u.Client.Send(ctx, line)
	if out.Verdict == spool.Accepted && u.spool.Status().Depth == 1 {
		u.end()
	}
	return out
}
