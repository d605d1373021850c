package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// shape is one way to ask.
type shape struct {
	streamed bool
	conns    int // how many callers ask at once, each on a connection of its own
}

func (s shape) String() string {
	what := "plain chat"
	if s.streamed {
		what = "first chunk of a stream"
	}
	if s.conns == 1 {
		return what + ", one caller"
	}
	return fmt.Sprintf("%s, %d callers at once", what, s.conns)
}

var (
	errCut      = errors.New("the stream was cut")
	errTooShort = errors.New("the answer has no content")
)

// caller asks one target over and over on one connection. The request is made
// once and the answer read with as little as possible, so that the caller's own
// cost does not drown what is measured.
type caller struct {
	addr    string
	request []byte
	want    []byte // a part of every answer
	conn    net.Conn
	in      *bufio.Reader
}

func newCaller(t target, streamed bool) *caller {
	path, body := "/v1/chat/completions", fmt.Sprintf(`{"model":%q,%s,"temperature":0.2,"stream":%t}`, t.model, messages, streamed)
	if t.path != "" {
		path, body = t.path, t.body
	}
	want := t.want
	if want == "" {
		want = answer
	}
	host := strings.TrimPrefix(t.base, "http://")
	var b bytes.Buffer
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n", path, host, len(body))
	if t.key != "" {
		fmt.Fprintf(&b, "Authorization: Bearer %s\r\n", t.key)
	}
	b.WriteString("\r\n" + body)
	return &caller{addr: host, request: b.Bytes(), want: []byte(want)}
}

// messages are what is asked: about 2 KB.
var messages = fmt.Sprintf(`"messages":[{"role":"system","content":"Answer in one paragraph."},{"role":"user","content":%q}]`,
	strings.Repeat("which of the spokes is the shortest way to the rim? ", 40))

// ask sends the request and reads the whole answer. It returns the time to the
// figure of interest: the end of a plain answer, the first content of a stream.
func (c *caller) ask(streamed bool) (time.Duration, error) {
	if c.conn == nil {
		conn, err := net.DialTimeout("tcp", c.addr, 5*time.Second)
		if err != nil {
			return 0, err
		}
		c.conn, c.in = conn, bufio.NewReaderSize(conn, 16<<10)
	}
	start := time.Now()
	took, err := c.exchange(streamed, start)
	if err != nil {
		c.close()
	}
	return took, err
}

func (c *caller) exchange(streamed bool, start time.Time) (time.Duration, error) {
	if err := c.conn.SetDeadline(start.Add(30 * time.Second)); err != nil {
		return 0, err
	}
	if _, err := c.conn.Write(c.request); err != nil {
		return 0, err
	}
	res, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return 0, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(res.Body, 300))
		return 0, fmt.Errorf("status %d: %s", res.StatusCode, bytes.TrimSpace(text))
	}
	if streamed {
		return readStream(res.Body, start)
	}
	text, err := io.ReadAll(res.Body)
	if err == nil && !bytes.Contains(text, c.want) {
		err = errTooShort
	}
	return time.Since(start), err
}

// readStream reads events to the end of the body. A stream is whole if it has
// a finish reason, [DONE] as its last event, and an orderly end.
func readStream(body io.Reader, start time.Time) (first time.Duration, err error) {
	lines := bufio.NewReaderSize(body, 8<<10)
	finished, done := false, false
	for {
		line, err := lines.ReadSlice('\n')
		if len(line) > 1 {
			done = bytes.Equal(line, []byte("data: [DONE]\n"))
			finished = finished || bytes.Contains(line, []byte(`"finish_reason":"stop"`))
			if first == 0 && bytes.Contains(line, []byte(`"content":"`)) {
				first = time.Since(start)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			if !finished || !done || first == 0 {
				return first, errCut
			}
			return first, nil
		case err != nil:
			return first, fmt.Errorf("%w: %w", errCut, err)
		}
	}
}

func (c *caller) close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// crowd are the callers of one target.
type crowd struct {
	callers  []*caller
	streamed bool
}

func newCrowd(t target, s shape) *crowd {
	c := &crowd{streamed: s.streamed}
	for range s.conns {
		c.callers = append(c.callers, newCaller(t, s.streamed))
	}
	return c
}

func (c *crowd) close() {
	for _, one := range c.callers {
		one.close()
	}
}

// tally is what a crowd saw.
type tally struct {
	took   []time.Duration // ascending
	failed int
	last   error // one of the failures
}

// drive lets the crowd ask until more says no or the context ends.
func (c *crowd) drive(ctx context.Context, more func() bool) tally {
	var all tally
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, one := range c.callers {
		wg.Go(func() {
			var mine tally
			for ctx.Err() == nil && more() {
				took, err := one.ask(c.streamed)
				if err != nil {
					mine.failed++
					mine.last = err
					continue
				}
				mine.took = append(mine.took, took)
			}
			mu.Lock()
			defer mu.Unlock()
			all.took = append(all.took, mine.took...)
			all.failed += mine.failed
			if mine.last != nil {
				all.last = mine.last
			}
		})
	}
	wg.Wait()
	slices.Sort(all.took)
	return all
}

// during says yes for a while.
func during(d time.Duration) func() bool {
	end := time.Now().Add(d)
	return func() bool { return time.Now().Before(end) }
}

// times says yes so often.
func times(n int) func() bool {
	var left atomic.Int64
	left.Store(int64(n))
	return func() bool { return left.Add(-1) >= 0 }
}

// countCut sends n streams through a target and counts those that did not
// arrive whole.
func countCut(ctx context.Context, t target, n int) (int, error) {
	c := newCrowd(t, shape{streamed: true, conns: 16})
	defer c.close()
	got := c.drive(ctx, times(n))
	if err := ctx.Err(); err != nil {
		return 0, err
	}
	return got.failed, nil
}
