package edge

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/chordwheel/chordwheel/chain/walk"
)

// What arrives on the wire, byte for byte, as no client library would send it.
func TestRawRequests(t *testing.T) {
	const auth = "Host: localhost\r\nAuthorization: Bearer " + testKey + "\r\n"
	const post = "POST /v1/chat/completions HTTP/1.1\r\n" + auth + "Content-Type: application/json\r\n"
	for _, c := range []struct {
		name, request string
		status        int
		code          string // "" on success
	}{
		{"two slashes", "GET //v1/models HTTP/1.1\r\n" + auth + "\r\n", 404, "not_found"},
		{"dots", "GET /v1/../v1/models HTTP/1.1\r\n" + auth + "\r\n", 404, "not_found"},
		{"encoded dots", "GET /v1/%2e%2e/v1/models HTTP/1.1\r\n" + auth + "\r\n", 404, "not_found"},
		{"encoded slash in a model", "GET /v1/models/alpha%2Fsmall HTTP/1.1\r\n" + auth + "\r\n", 200, ""},
		{"backslash", "GET /v1\\models HTTP/1.1\r\n" + auth + "\r\n", 404, "not_found"},
		{"absolute form", "GET http://localhost/v1/models HTTP/1.1\r\n" + auth + "\r\n", 200, ""},
		{"absolute form of a foreign host", "GET http://evil.example/v1/models HTTP/1.1\r\n" + auth + "\r\n", 400, "invalid_request"},
		{"asterisk", "OPTIONS * HTTP/1.1\r\n" + auth + "\r\n", 404, "not_found"},
		{"tunnel", "CONNECT localhost:80 HTTP/1.1\r\n" + auth + "\r\n", 404, "not_found"},
		{"method in small letters", "get /v1/models HTTP/1.1\r\n" + auth + "\r\n", 405, "method_not_allowed"},
		{"HTTP/1.0 without a host", "GET /v1/models HTTP/1.0\r\nAuthorization: Bearer " + testKey + "\r\n\r\n", 400, "invalid_request"},
		{"two hosts", "GET /v1/models HTTP/1.1\r\nHost: evil.example\r\n" + auth + "\r\n", 400, "invalid_request"},
		{"broken escape", "GET /v1/models/%zz HTTP/1.1\r\n" + auth + "\r\n", 400, "invalid_request"},
		{"two lengths", post + "Content-Length: 5\r\nContent-Length: 6\r\n\r\n{}", 400, "invalid_request"},
		{"folded header", "GET /v1/models HTTP/1.1\r\nX-A: b\r\n c\r\n" + auth + "\r\n", 200, ""},
		{"chunks", post + "Transfer-Encoding: chunked\r\n\r\n" + chunks(helloReq) + "0\r\n\r\n", 200, ""},
		{"broken chunks", post + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", 400, "invalid_request"},
		{"body that ends early", post + "Content-Length: 100\r\n\r\n{", 400, "invalid_request"},
		{"unknown transfer encoding", post + "Transfer-Encoding: gzip\r\n\r\n", 400, "invalid_request"},
		{"chunked twice", post + "Transfer-Encoding: chunked, chunked\r\n\r\n", 400, "invalid_request"},
		{"chunked, hidden", post + "Transfer-Encoding: xchunked\r\n\r\n", 400, "invalid_request"},
		{"a length with a sign", post + "Content-Length: +5\r\n\r\n{}", 400, "invalid_request"},
		{"a length that is none", post + "Content-Length: 5,6\r\n\r\n{}", 400, "invalid_request"},
		{"a blank before a colon", "GET /v1/models HTTP/1.1\r\nX-A : b\r\n" + auth + "\r\n", 400, "invalid_request"},
		{"a line feed in a header", "GET /v1/models HTTP/1.1\r\nX-A: b\x00c\r\n" + auth + "\r\n", 400, "invalid_request"},
		{"no host", "GET /v1/models HTTP/1.1\r\nAuthorization: Bearer " + testKey + "\r\n\r\n", 400, "invalid_request"},
		{"another version", "GET /v1/models HTTP/3.7\r\n" + auth + "\r\n", 400, "invalid_request"},
		{"HTTP/2 without being asked", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "invalid_request"},
		{"no HTTP at all", "hello\r\n\r\n", 400, "invalid_request"},
		{"an expectation", post + "Expect: miracles\r\nContent-Length: 2\r\n\r\n{}", 400, "invalid_request"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, answering().do)
				r.edge.worker = answering()
				defer r.close()
				conn := r.raw(c.request)
				defer conn.Close()
				res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: strings.Fields(c.request)[0]})
				if err != nil {
					t.Fatal(err)
				}
				body, _ := io.ReadAll(io.LimitReader(res.Body, 4096))
				if res.StatusCode != c.status || c.code != "" && !strings.Contains(string(body), `"code":"`+c.code+`"`) {
					t.Errorf("%s %s", res.Status, body)
				}
				if res.StatusCode != http.StatusOK {
					w := httptest.NewRecorder()
					w.Code, w.Body = res.StatusCode, bytes.NewBuffer(body)
					maps.Copy(w.Header(), res.Header)
					errorOf(t, w)
				}
				if res.Header.Get("Location") != "" {
					t.Errorf("a redirect to %s", res.Header.Get("Location"))
				}
			})
		})
	}
}

// A header that is too large is answered in the error shape as well, while it is still sent.
func TestAHeaderWithoutAnEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, answering().do)
		defer r.close()
		conn := r.raw("GET /v1/models HTTP/1.1\r\nHost: localhost\r\n")
		defer conn.Close()
		go io.WriteString(conn, "X-A: "+strings.Repeat("a", 1<<20))
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		w.Code, w.Body = res.StatusCode, bytes.NewBufferString(slurp(t, res.Body))
		maps.Copy(w.Header(), res.Header)
		if e := errorOf(t, w); w.Code != http.StatusRequestEntityTooLarge || e.Code != string(RequestTooLarge) {
			t.Errorf("%d %+v", w.Code, e)
		}
	})
}

// Words of an answer are words, wherever a write begins.
func TestOnlyNetHTTPsOwnAnswersAreReplaced(t *testing.T) {
	const own = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request"
	if inShape([]byte(own)) == nil {
		t.Error("an answer of net/http's is not replaced")
	}
	for _, s := range []string{"", "HTTP/1.1 ", "HTTP/1.1 417 Expectation Failed", "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n" + own, "x" + own, "HTTP/1.1 x" + own[9:]} {
		if got := inShape([]byte(s)); got != nil {
			t.Errorf("%q became %q", s, got)
		}
	}
}

func chunks(body string) string {
	var b strings.Builder
	for _, c := range body {
		b.WriteString("1\r\n" + string(c) + "\r\n")
	}
	return b.String()
}

// Where length and chunks are both given the chunks count, and what follows is
// not taken for another request: of such a connection nobody knows where a request ends.
func TestLengthAndChunks(t *testing.T) {
	const length = "Content-Length: 3\r\n"
	const hidden = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + testKey + "\r\nContent-Type: application/json\r\n"
	for name, headers := range map[string]string{"both": length + "Transfer-Encoding: chunked\r\n", "in the other order": "Transfer-Encoding: chunked\r\n" + length, "chunks alone": "Transfer-Encoding: chunked\r\n"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bodies := make(chan string, 8)
				r := newRig(t, func(_ context.Context, w *Work, deliver walk.Deliver) (walk.Result, error) {
					bodies <- string(w.Body)
					_ = deliver(attempt(1), event(whole))
					return answered()
				})
				defer r.close()
				conn := r.raw(hidden + headers + "\r\n" + chunks(helloReq) + "0\r\n\r\n" + hidden + "Content-Length: 63\r\n\r\n" + helloReq)
				defer conn.Close()
				answers, err := io.ReadAll(conn) // to its end: the edge closes it
				if err != nil {
					t.Fatal(err)
				}
				if n := strings.Count(string(answers), "HTTP/1.1 "); n != 1 || len(bodies) != 1 {
					t.Errorf("%d answers, %d requests of one: %q", n, len(bodies), answers)
				} else if got := <-bodies; got != helloReq {
					t.Errorf("body %q", got)
				}
			})
		})
	}
}

// Whatever net/http takes for a request gets one complete answer: ours, in the
// error shape where it is not a success, and never a panic.
func FuzzServe(f *testing.F) {
	const auth = "Host: localhost\r\nAuthorization: Bearer " + testKey + "\r\n"
	f.Add([]byte("GET //v1/models/%2e%2e?x HTTP/1.1\r\n" + auth + "\r\n"))
	f.Add([]byte("POST /v1/chat/completions HTTP/1.1\r\n" + auth + "Content-Type: application/json\r\nX-Chordwheel-Budget: 1s\r\nContent-Length: 63\r\n\r\n" + helloReq))
	f.Add([]byte("POST /v1/chat/completions HTTP/1.1\r\n" + auth + "Content-Type: application/json;charset=utf-8\r\nContent-Length: 77\r\n\r\n" + streamReq))
	f.Add([]byte("POST /api/v1/work/llm.chat HTTP/1.1\r\n" + auth + "Origin: null\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n3\r\n{}x\r\n0\r\n\r\n"))
	e := newEdge(f, answering(), func(c *Config) { c.Origins = []string{"https://app.example"} })
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := http.ReadRequest(bufio.NewReader(bytes.NewReader(raw)))
		if err != nil {
			return
		}
		w := httptest.NewRecorder()
		e.serve(w, r, len(raw)%2 == 0)
		if id := w.Header().Get(headerRequestID); !fitsRequestID(id) {
			t.Fatalf("request id %q", id)
		}
		if w.Code == http.StatusOK || w.Code == http.StatusNoContent || r.Method == http.MethodHead {
			return
		}
		if w.Code == http.StatusInternalServerError {
			t.Fatalf("a defect: %s", w.Body)
		}
		errorOf(t, w)
	})
}
