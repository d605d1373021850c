package providertest

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Exchange is one request and the raw connection on which to answer it.
// Its writing methods do nothing once the client is gone.
type Exchange struct {
	Request  Request
	provider *Provider
	conn     net.Conn
	in       *bufio.Reader
	broken   atomic.Bool // no other request can follow on this connection

	gone     chan struct{}
	goneOnce sync.Once
	watching sync.WaitGroup
}

// Gone is closed when the client has closed its connection.
func (x *Exchange) Gone() <-chan struct{} { return x.gone }

// watch sits on the read side, which shows a client that leaves.
func (x *Exchange) watch() {
	x.watching.Go(func() {
		if _, err := x.in.Peek(1); err != nil {
			if e, ok := err.(net.Error); !ok || !e.Timeout() {
				x.left()
			}
		}
	})
}

func (x *Exchange) unwatch() {
	_ = x.conn.SetReadDeadline(time.Unix(1, 0))
	x.watching.Wait()
	_ = x.conn.SetReadDeadline(time.Time{})
}

func (x *Exchange) left() {
	x.goneOnce.Do(func() {
		x.broken.Store(true)
		close(x.gone)
		x.provider.change(func() {
			if n := x.Request.N; n > 0 && !x.provider.over {
				x.provider.closed[n] = time.Now()
			}
		})
	})
}

// Alive reports whether the client and the test are still there.
func (x *Exchange) Alive() bool {
	select {
	case <-x.gone:
		return false
	case <-x.provider.stop:
		return false
	default:
		return true
	}
}

// pace is the time between the pieces of plays that trickle.
const pace = 2 * time.Millisecond

// Pause lets n paces pass. It reports whether the client is still there.
func (x *Exchange) Pause(n int) bool {
	t := time.NewTimer(time.Duration(n) * pace)
	defer t.Stop()
	select {
	case <-t.C:
	case <-x.gone:
	case <-x.provider.stop:
	}
	return x.Alive()
}

// Hang answers nothing more until the client has gone.
func (x *Exchange) Hang() {
	select {
	case <-x.gone:
	case <-x.provider.stop:
	}
	x.broken.Store(true)
}

// Raw writes bytes as they are.
func (x *Exchange) Raw(s string) {
	if !x.Alive() {
		return
	}
	if _, err := x.conn.Write([]byte(s)); err != nil {
		x.broken.Store(true)
	}
}

// Head writes a status line and headers, given as "Name: value" lines.
func (x *Exchange) Head(status int, headers ...string) {
	text := http.StatusText(status)
	if text == "" {
		text = "Odd"
	}
	x.Raw(fmt.Sprintf("HTTP/1.1 %d %s\r\n%s\r\n\r\n", status, text, strings.Join(headers, "\r\n")))
}

// Respond writes a whole answer of a known length.
func (x *Exchange) Respond(status int, contentType, body string, headers ...string) {
	if contentType != "" {
		headers = append(headers, "Content-Type: "+contentType)
	}
	x.Head(status, append(headers, fmt.Sprintf("Content-Length: %d", len(body)))...)
	x.Raw(body)
}

// Open begins an event stream. What follows goes out with Chunk or Event, and
// ends with End.
func (x *Exchange) Open(headers ...string) {
	x.Head(http.StatusOK, append(headers, "Content-Type: text/event-stream", "Transfer-Encoding: chunked")...)
}

// Chunk writes one piece of an open stream.
func (x *Exchange) Chunk(s string) {
	if s != "" {
		x.Raw(fmt.Sprintf("%x\r\n%s\r\n", len(s), s))
	}
}

// Event writes the data of one event to an open stream.
func (x *Exchange) Event(data string) { x.Chunk("data: " + data + "\n\n") }

// End ends an open stream well.
func (x *Exchange) End() { x.Raw("0\r\n\r\n") }

// Drop closes the connection, whatever was promised on it.
func (x *Exchange) Drop() {
	x.broken.Store(true)
	x.goneOnce.Do(func() {}) // what now looks like a leaving client is our own doing
	_ = x.conn.Close()
}

// Reset closes the connection with a reset.
func (x *Exchange) Reset() {
	if c, ok := x.conn.(*net.TCPConn); ok {
		_ = c.SetLinger(0)
	}
	x.Drop()
}
