// Package spoke owns the stream protocol between a device and its hub: the
// device's half, the hub's half, and what each refuses. A device opens a stream,
// says hello, and then asks as often as it likes; the hub answers each frame
// with one, in order, and never opens a stream. What a hello is worth, and every
// other decision, is the [Handler]'s. The package knows frames and deadlines; it
// does not know how connections come about, nor what is in a report.
package spoke

import (
	"errors"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// Protocol is the ID under which hubs serve.
const Protocol = "/chordwheel/spoke/1.0.0"

// Deadlines. A frame is at most a megabyte, so 30 s ask for 35 KB/s at worst
// and for next to nothing in the usual case; whoever is slower is not worth the
// memory that waits for it.
const (
	helloTimeout = 10 * time.Second // from the stream to the whole hello
	frameTimeout = 30 * time.Second // from a frame's first byte to its last, and for writing one
	idleTimeout  = 20 * time.Minute // between two requests of a session: over the usual report interval
	callTimeout  = 30 * time.Second // of one request and its reply, seen from the device
)

// Code says, for programs, why a hub refused. Handlers may use codes of their
// own; these are the ones that this package or more than one part needs.
const (
	CodeBusy       = "busy"       // no room: come back
	CodeProtocol   = "protocol"   // broken frame or message, or no hello first
	CodeUnknown    = "unknown"    // a request of a later version
	CodeInternal   = "internal"   // the hub failed; its log says why
	CodeNotMember  = "not_member" // no valid membership: join again
	CodeInvitation = "invitation" // the invitation is unknown, used up or over
	CodeRevoked    = "revoked"    // the membership was ended
	CodeConflict   = "conflict"   // the device ID is known under another peer ID
	CodeScope      = "scope"      // not a member of that scope
	CodeNoChain    = "no_chain"   // nothing is published for that slot
	CodeTooMany    = "too_many"   // rate limit
	CodeInvalid    = "invalid"    // well-formed, but impossible: a report that cannot be true
	CodeShutdown   = "shutdown"   // the hub is stopping: come back
)

// Refusal is a hub's no. A Handler returns one to send it; a [Client] returns
// the one that was sent. It is the answer to one request: the session goes on.
type Refusal struct {
	Code     string
	Message  string        // one line for people, without secrets
	ComeBack time.Duration // not before; 0: as the rules say
}

// Refuse makes a Refusal.
func Refuse(code, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Error implements error.
func (r *Refusal) Error() string { return "the hub refused: " + r.Message + " (" + r.Code + ")" }

// Is reports whether target is a Refusal with the same code, so that
// errors.Is(err, &Refusal{Code: CodeBusy}) asks for the class.
func (r *Refusal) Is(target error) bool {
	t, ok := target.(*Refusal)
	return ok && t.Code == r.Code
}

// longestSentence is what of a refusal's message travels, in bytes: with the
// ellipsis it is within what package wire allows.
const longestSentence = 1000

// wire gives r as it travels, cut to what the reader accepts.
func (r *Refusal) wire() *wire.Refusal {
	w := &wire.Refusal{Code: r.Code, Message: chain.ClipTo(r.Message, longestSentence), ComeBack: chain.MillisOf(r.ComeBack)}
	if w.Validate() != nil {
		w = &wire.Refusal{Code: CodeInternal, Message: "the hub refused with a message that cannot be sent"}
	}
	return w
}

func refusalOf(w *wire.Refusal) *Refusal {
	return &Refusal{Code: w.Code, Message: w.Message, ComeBack: w.ComeBack.Duration()}
}

// resetError turns a stream that the other side gave up into the refusal that
// the code of the reset stands for, or returns err as it is.
func resetError(err error) error {
	var reset *network.StreamError
	if errors.As(err, &reset) && reset.Remote {
		switch reset.ErrorCode {
		case network.StreamResourceLimitExceeded, network.StreamRateLimited:
			return &Refusal{Code: CodeBusy, Message: "too many sessions or connections: try later"}
		case network.StreamShutdown:
			return &Refusal{Code: CodeShutdown, Message: "it is stopping: try later"}
		case network.StreamProtocolViolation:
			return &Refusal{Code: CodeProtocol, Message: "it did not understand what was sent"}
		}
	}
	return err
}

func timedOut(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}
