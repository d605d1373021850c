package edge

import (
	"fmt"
	"time"
)

// Limits bound what a caller can cost. A zero field means the default.
type Limits struct {
	Body        int64         // bytes of a request's body; 4 MiB
	Outlet      int64         // bytes of an outlet's body, which holds a whole answer; 32 MiB
	Messages    int           // of one chat; 512
	Depth       int           // of nested JSON arrays and objects; 64
	InFlight    int           // requests worked on at once; more get 503; 256
	Conns       int           // open connections; for one more the longest without a request goes; 1024
	HeaderBytes int           // of a request's header; 64 KiB
	Header      time.Duration // until a request's header has arrived; 5 s
	BodyRead    time.Duration // until a request's body has arrived; 30 s
	Idle        time.Duration // an unused connection is kept; 60 s
	Write       time.Duration // one write may take, never the whole answer; 30 s
	KeepAlive   time.Duration // a stream may be silent before a comment; 10 s
}

// The reasons: a body of 4 MiB holds a context of a million tokens; no chat
// nests deeper than tool schemas do, and the recursion of the scanner needs an
// end; 10 s is the least after which common proxies cut a silent stream, and
// a comment fixes the status at 200, so it comes as late as it may.
var defaultLimits = Limits{
	Body: 4 << 20, Outlet: 32 << 20, Messages: 512, Depth: 64, InFlight: 256, Conns: 1024, HeaderBytes: 64 << 10,
	Header: 5 * time.Second, BodyRead: 30 * time.Second, Idle: time.Minute, Write: 30 * time.Second, KeepAlive: 10 * time.Second,
}

// writePiece is the most that one write deadline covers, so that a slow but
// steady reader of a large answer is not cut: 256 KiB in 30 s is 70 kbit/s.
const writePiece = 256 << 10

// linger is how long an unwanted body is taken after the answer to it.
const linger = time.Second

func (l Limits) withDefaults() (Limits, error) {
	d := defaultLimits
	or(&l.Body, d.Body)
	or(&l.Outlet, d.Outlet)
	or(&l.Messages, d.Messages)
	or(&l.Depth, d.Depth)
	or(&l.InFlight, d.InFlight)
	or(&l.Conns, d.Conns)
	or(&l.HeaderBytes, d.HeaderBytes)
	or(&l.Header, d.Header)
	or(&l.BodyRead, d.BodyRead)
	or(&l.Idle, d.Idle)
	or(&l.Write, d.Write)
	or(&l.KeepAlive, d.KeepAlive)
	switch {
	case l.Body < 0 || l.Body > 64<<20:
		return l, fmt.Errorf("edge: limit of a body must be 1 B to 64 MiB, is %d", l.Body)
	case l.Outlet < 0 || l.Outlet > 64<<20:
		return l, fmt.Errorf("edge: limit of an outlet must be 1 B to 64 MiB, is %d", l.Outlet)
	case l.Messages < 0 || l.Depth < 2 || l.Depth > 512:
		return l, fmt.Errorf("edge: limits of messages and depth must be positive, depth 2 to 512")
	case l.InFlight < 0 || l.Conns < 0 || l.HeaderBytes < 0 || l.Header < 0 || l.BodyRead < 0 || l.Idle < 0 || l.Write < 0 || l.KeepAlive < 0:
		return l, fmt.Errorf("edge: a limit is negative")
	}
	return l, nil
}

func or[T comparable](field *T, fallback T) {
	var zero T
	if *field == zero {
		*field = fallback
	}
}
