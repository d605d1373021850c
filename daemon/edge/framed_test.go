package edge_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/chordwheel/chordwheel/daemon/edge"
)

// A request in chunks may have had a length that is seen no more: its answer is the last on the
// connection, of whatever listener.
func TestAnAnswerToChunksEndsTheConnection(t *testing.T) {
	s := httptest.NewServer(edge.Framed(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })))
	defer s.Close()
	for name, c := range map[string]struct {
		body io.Reader
		ends bool
	}{"chunks": {io.MultiReader(strings.NewReader("{}")), true}, "a length": {strings.NewReader("{}"), false}} {
		response, err := s.Client().Post(s.URL, "application/json", c.body)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.Close != c.ends {
			t.Errorf("%s: ends the connection %t, want %t", name, response.Close, c.ends)
		}
	}
}
