package edge

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
)

// net/http answers what it cannot parse by itself, in plain text, before any handler
// is asked. Each such answer is one write that begins like one of these. No answer of a handler
// does: its headers are others, and no piece of a body of ours has line ends within, which
// neither a text of JSON nor the data of an event can have.
var (
	ownStatus  = []byte("HTTP/1.1 ")
	ownHeaders = []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")
	noExpected = []byte("HTTP/1.1 417 Expectation Failed\r\n")
)

// Shaped gives l with connections on which those answers too have the shape of errors,
// for other servers of this program. What is said on them must be HTTP as it is: TLS
// lies below.
func Shaped(l net.Listener) net.Listener { return shaped{l} }

// Framed gives h with answers that end the connection where the request came in chunks, as those
// of the edge do.
func Framed(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		frame(w.Header(), r)
		h.ServeHTTP(w, r)
	})
}

// frame makes an answer the last on its connection where the request came in chunks: there may
// have been a length too, which net/http hides, and a proxy that went by it takes what follows
// for another request.
func frame(answer http.Header, r *http.Request) {
	if len(r.TransferEncoding) > 0 {
		answer["Connection"] = connClose
	}
}

type shaped struct{ net.Listener }

func (l shaped) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return shapedConn{c}, nil
}

type shapedConn struct{ net.Conn }

// CloseWrite lets the server end what it sends before what it receives, where that is possible.
func (c shapedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

func (c shapedConn) Write(b []byte) (int, error) {
	answer := inShape(b)
	if answer == nil {
		return c.Conn.Write(b)
	}
	if _, err := c.Conn.Write(answer); err != nil {
		return 0, err
	}
	return len(b), nil
}

// inShape gives the answer that stands for one of net/http's own, nil for all others.
func inShape(b []byte) []byte {
	if !bytes.HasPrefix(b, ownStatus) {
		return nil
	}
	line, _, _ := bytes.Cut(b[:min(len(b), 256)], []byte("\r\n"))
	if !bytes.HasPrefix(b[len(line):], ownHeaders) && !bytes.HasPrefix(b, noExpected) {
		return nil
	}
	var status int
	if _, err := fmt.Sscanf(string(line[len(ownStatus):]), "%d", &status); err != nil {
		return nil
	}
	no := invalid("this is no HTTP request that can be answered: %s", http.StatusText(status))
	switch status {
	case http.StatusRequestHeaderFieldsTooLarge:
		no = Refuse(RequestTooLarge, "the header is too large")
	case http.StatusNotImplemented:
		no = invalid("Transfer-Encoding: want chunked, or none and a Content-Length")
	case http.StatusExpectationFailed:
		no = invalid("Expect: want 100-continue, or none")
	}
	f, id := no.fail(), requestID(nil)
	body := f.body(id)
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n%s: %s\r\nX-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n%s",
		f.status, http.StatusText(f.status), len(body), headerRequestID, id, body)
}
