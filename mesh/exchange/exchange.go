// Package exchange owns the stream protocol on which two devices meet: each
// shows its membership before anything else, and then the one that opened the
// stream asks for what the other caches: heads and bodies of the scopes they
// share, and the newest revocation list. It carries signed bytes and vouches for
// none of them. Whom to meet, how connections come about and what a membership
// is worth is decided by the [Party] that the node gives it.
//
// The opener sends its greeting and waits for the other's. Two echoes follow, by
// which both ends measure the way; then one answer for each question, in order.
// docs/wire.md has the bytes.
package exchange

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// Protocol is the ID under which devices serve.
const Protocol = "/chordwheel/chain/1.0.0"

// Deadlines and caps. A greeting is a few kilobytes and a stream lives as long
// as somebody asks.
const (
	greetTimeout = 10 * time.Second // from the stream to both greetings
	askTimeout   = 30 * time.Second // between two questions, and for one frame
	maxAsks      = 4096             // on one stream
	maxPerPeer   = 4                // streams of one peer at a time
	maxStreams   = 128

	answerRate, answerBurst = 8, 256 // chains, bodies and lists of heads for one peer, a second and at once
	maxBudgets              = 1024
)

// Codes of refusals.
const (
	CodeNotReady = "not_ready"  // the device has no membership of its own yet
	CodeNotHere  = "not_member" // the membership is missing, broken, of another mesh or of another peer
	CodeExpired  = "expired"    // the membership is over, or not yet begun
	CodeRevoked  = "revoked"    // the membership was ended
	CodeScope    = "scope"      // no common scope, or not one of the scope that was asked for
	CodeNone     = "none"       // not cached here
	CodeBusy     = "busy"       // too many streams
	CodeProtocol = "protocol"   // broken frame, or no greeting first
)

// Refusal is the other device's no, or this one's.
type Refusal struct {
	Code    string
	Message string // one line for people
}

// Refuse makes a Refusal.
func Refuse(code, format string, args ...any) *Refusal {
	return &Refusal{code, chain.ClipTo(fmt.Sprintf(format, args...), 512)}
}

// Error implements error.
func (r *Refusal) Error() string { return "refused: " + r.Message + " (" + r.Code + ")" }

// Is reports whether target is a Refusal with the same code.
func (r *Refusal) Is(target error) bool {
	t, ok := target.(*Refusal)
	return ok && t.Code == r.Code
}

// Chains is what a device caches. It is called from many goroutines; what it
// gives is not changed by anybody afterwards.
type Chains interface {
	// Heads gives the marks of the unexpired chains held for scope.
	Heads(scope chain.ScopeID) []wire.Held
	// Chain gives the signed head and the body held for slot, nil without one.
	Chain(slot chain.Slot) (head, body []byte)
	// Body gives a body that a chain of scope uses, nil if it is not held.
	Body(scope chain.ScopeID, body chain.CID) []byte
}

// Party is the device that meets others. It is called from many goroutines.
type Party interface {
	// Greeting is what the device says of itself now; the error is a *Refusal
	// while it has nothing to show.
	Greeting() (wire.Greeting, error)
	// Verify judges what the peer at the other end said. The error is a *Refusal.
	Verify(from chain.PeerID, g *wire.Greeting) (member.Membership, error)
	// Member reports whether m still holds in scope, which this device shares.
	Member(m *member.Membership, scope chain.ScopeID) bool
	// Met is told of a peer whose greeting was verified, and again when the way to
	// it was measured better. rtt 0: not measured.
	Met(from chain.PeerID, m member.Membership, g *wire.Greeting, rtt time.Duration)
	// Swap takes a revocation list over, if it is good and newer, and gives the
	// one held if that is newer than list.
	Swap(list []byte) []byte
	// Chains is what to give to members; nil: nothing.
	Chains() Chains
}

// Session is the opener's half of one stream. It is for one goroutine.
type Session struct {
	stream network.Stream
	reader *bufio.Reader

	Greeting   wire.Greeting // what the other said
	Membership member.Membership
}

// Open greets the peer at the other end of stream and judges its greeting. On
// an error the stream is gone. Party.Met is not told: that is the caller's, who
// knows when it is done measuring.
func Open(ctx context.Context, stream network.Stream, party Party) (*Session, error) {
	s := &Session{stream: stream, reader: bufio.NewReader(stream)}
	own, err := party.Greeting()
	if err != nil {
		_ = stream.Reset()
		return nil, err
	}
	answer, err := s.ask(ctx, greetTimeout, &wire.Ask{Greeting: &own})
	if err == nil && answer.Greeting == nil {
		err = wrongKind()
	}
	if err == nil {
		s.Greeting = *answer.Greeting
		s.Membership, err = party.Verify(chain.PeerID(stream.Conn().RemotePeer().String()), answer.Greeting)
	}
	if err != nil {
		_ = stream.Reset()
		return nil, err
	}
	return s, nil
}

// Close ends the session.
func (s *Session) Close() { _ = s.stream.Close() }

// Measure sends two echoes and gives the shorter way there and back.
func (s *Session) Measure(ctx context.Context) (time.Duration, error) {
	var best time.Duration
	for n := range uint64(2) {
		begin := time.Now()
		answer, err := s.ask(ctx, greetTimeout, &wire.Ask{Echo: &wire.Echo{N: n}})
		if err != nil {
			return 0, err
		}
		if answer.Echo == nil || answer.Echo.N != n {
			return 0, wrongKind()
		}
		if took := max(time.Since(begin), time.Microsecond); best == 0 || took < best {
			best = took
		}
	}
	return best, nil
}

// Heads asks which chains the other caches for scope.
func (s *Session) Heads(ctx context.Context, scope chain.ScopeID) ([]wire.Held, error) {
	answer, err := s.ask(ctx, askTimeout, &wire.Ask{Heads: &wire.Heads{Scope: scope}})
	if err != nil {
		return nil, err
	}
	if answer.Heads == nil {
		return nil, wrongKind()
	}
	return answer.Heads.Held, nil
}

// Fetch asks for a chain. The reply is not verified; it is the same as the
// hub's.
func (s *Session) Fetch(ctx context.Context, f wire.Fetch) (wire.FetchReply, error) {
	answer, err := s.ask(ctx, askTimeout, &wire.Ask{Fetch: &f})
	if err != nil {
		return wire.FetchReply{}, err
	}
	if answer.Fetch == nil {
		return wire.FetchReply{}, wrongKind()
	}
	return *answer.Fetch, nil
}

// Body asks for a body by its address, and compares it.
func (s *Session) Body(ctx context.Context, scope chain.ScopeID, body chain.CID) ([]byte, error) {
	answer, err := s.ask(ctx, askTimeout, &wire.Ask{Body: &wire.Body{Scope: scope, Body: body}})
	if err != nil {
		return nil, err
	}
	if answer.Body == nil {
		return nil, wrongKind()
	}
	if chain.CIDOf(answer.Body.Bytes) != body {
		return nil, fmt.Errorf("%w: a body with another address than the one asked for", wire.ErrMessage)
	}
	return answer.Body.Bytes, nil
}

// Swap offers the list held here and gives the other's if that is newer, not
// verified.
func (s *Session) Swap(ctx context.Context, list []byte) ([]byte, error) {
	answer, err := s.ask(ctx, askTimeout, &wire.Ask{Revocations: &wire.Revocations{List: list}})
	if err != nil {
		return nil, err
	}
	if answer.Revocations == nil {
		return nil, wrongKind()
	}
	return answer.Revocations.List, nil
}

func wrongKind() error {
	return fmt.Errorf("%w: an answer of another kind than the question", wire.ErrMessage)
}

// ask sends one question and reads its answer. A stream that broke is reset.
func (s *Session) ask(ctx context.Context, most time.Duration, q *wire.Ask) (a wire.Answer, err error) {
	if err := ctx.Err(); err != nil {
		return a, err
	}
	deadline := time.Now().Add(most)
	if d, ok := ctx.Deadline(); ok && d.Before(deadline) {
		deadline = d
	}
	_ = s.stream.SetDeadline(deadline)
	stop := context.AfterFunc(ctx, func() { _ = s.stream.Reset() })
	defer stop()
	if err = wire.Write(s.stream, q); err == nil {
		err = wire.Read(s.reader, wire.MaxControl, &a)
	}
	if err != nil {
		_ = s.stream.Reset()
		return a, broken(ctx, err)
	}
	if no := a.Refusal; no != nil {
		return a, &Refusal{no.Code, no.Message}
	}
	return a, nil
}

// broken says what the end of a stream means.
func broken(ctx context.Context, err error) error {
	var reset *network.StreamError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.As(err, &reset) && reset.Remote && (reset.ErrorCode == network.StreamResourceLimitExceeded || reset.ErrorCode == network.StreamRateLimited):
		return Refuse(CodeBusy, "too many streams: try later")
	case errors.Is(err, io.EOF):
		return fmt.Errorf("the peer ended the exchange: %w", io.ErrUnexpectedEOF)
	}
	return fmt.Errorf("exchange: %w", err)
}
