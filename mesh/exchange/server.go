package exchange

import (
	"bufio"
	"errors"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"golang.org/x/time/rate"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/streams"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// Server is the half that answers. Give its Serve to the host as the stream
// handler.
type Server struct {
	party Party
	log   *slog.Logger

	streams *streams.Set

	mu      sync.Mutex
	budgets map[peer.ID]*rate.Limiter // of chains and bodies; outlives the streams
}

// NewServer makes a server. It starts nothing.
func NewServer(party Party, log *slog.Logger) *Server {
	return &Server{party: party, log: log, streams: streams.New(maxStreams, maxPerPeer), budgets: map[peer.ID]*rate.Limiter{}}
}

// Serve answers on one stream to its end.
func (s *Server) Serve(stream network.Stream) {
	from := stream.Conn().RemotePeer()
	if code := s.streams.Enter(stream); code != network.StreamNoError {
		_ = stream.ResetWithError(code)
		return
	}
	defer s.streams.Leave(stream)
	v := visit{Server: s, stream: stream, reader: bufio.NewReader(stream), from: chain.PeerID(from.String())}
	if err := v.run(); err != nil {
		s.log.Debug("exchange broken off", "peer", from.String(), "error", err)
		_ = stream.ResetWithError(network.StreamProtocolViolation)
		return
	}
	_ = stream.Close()
}

// Close ends every stream and waits for them.
func (s *Server) Close() { s.streams.Close() }

// affords reports whether from may have one more chain or body. A device that
// lacks everything asks once for each of its slots.
func (s *Server) affords(from peer.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	budget := s.budgets[from]
	if budget == nil {
		if len(s.budgets) >= maxBudgets {
			clear(s.budgets)
		}
		budget = rate.NewLimiter(answerRate, answerBurst)
		s.budgets[from] = budget
	}
	return budget.Allow()
}

// visit is one stream of one peer.
type visit struct {
	*Server
	stream network.Stream
	reader *bufio.Reader
	from   chain.PeerID

	greeting wire.Greeting
	member   member.Membership
	answered time.Time // when the last answer went out
	rtt      time.Duration
	asked    int // questions after the greeting
}

// run greets and answers. The error says what the peer did wrong; a peer that
// hangs up does nothing wrong.
func (v *visit) run() error {
	_ = v.stream.SetDeadline(time.Now().Add(greetTimeout))
	var first wire.Ask
	if err := wire.Read(v.reader, wire.MaxAsk, &first); err != nil {
		return err
	}
	if first.Greeting == nil {
		return v.refuse(Refuse(CodeProtocol, "the first frame must be a greeting"))
	}
	v.greeting = *first.Greeting
	var err error
	if v.member, err = v.party.Verify(v.from, &v.greeting); err != nil {
		return v.refuse(err)
	}
	own, err := v.party.Greeting()
	if err != nil {
		return v.refuse(err)
	}
	if err := v.send(&wire.Answer{Greeting: &own}); err != nil {
		return err
	}
	for v.asked = 1; v.asked <= maxAsks; v.asked++ {
		_ = v.stream.SetDeadline(time.Now().Add(askTimeout))
		var q wire.Ask
		err := wire.Read(v.reader, wire.MaxAsk, &q)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		v.measure(&q)
		if err := v.answer(&q); err != nil {
			return err
		}
	}
	return nil
}

// measure uses that the opener asks at once when it has an answer. The first
// question also says that it took our greeting: only then both have met. A
// slower second echo is no news.
func (v *visit) measure(q *wire.Ask) {
	if v.asked > 2 {
		return
	}
	took := max(time.Since(v.answered), time.Microsecond)
	if q.Echo == nil {
		took = 0
	}
	if v.asked == 1 || took > 0 && (v.rtt == 0 || took < v.rtt) {
		v.rtt = took
		v.party.Met(v.from, v.member, &v.greeting, v.rtt)
	}
}

// answer answers one question.
func (v *visit) answer(q *wire.Ask) error {
	switch {
	case q.Echo != nil:
		return v.send(&wire.Answer{Echo: q.Echo})
	case q.Revocations != nil:
		return v.send(&wire.Answer{Revocations: &wire.Revocations{List: v.party.Swap(q.Revocations.List)}})
	case q.Heads != nil:
		if err := v.shares(q.Heads.Scope); err != nil {
			return v.refuse(err)
		}
		held := v.party.Chains().Heads(q.Heads.Scope)
		return v.send(&wire.Answer{Heads: &wire.Offers{Held: held[:min(len(held), wire.MaxOffers)]}})
	case q.Fetch != nil:
		if err := v.shares(q.Fetch.Slot.Scope); err != nil {
			return v.refuse(err)
		}
		head, body := v.party.Chains().Chain(q.Fetch.Slot)
		if head == nil {
			return v.refuse(Refuse(CodeNone, "no chain of %s is cached here", q.Fetch.Slot))
		}
		if q.Fetch.Body == chain.CIDOf(body) {
			body = nil
		}
		return v.send(&wire.Answer{Fetch: &wire.FetchReply{Head: head, Body: body}})
	case q.Body != nil:
		if err := v.shares(q.Body.Scope); err != nil {
			return v.refuse(err)
		}
		body := v.party.Chains().Body(q.Body.Scope, q.Body.Body)
		if body == nil {
			return v.refuse(Refuse(CodeNone, "that body is not cached here"))
		}
		return v.send(&wire.Answer{Body: &wire.BodyBytes{Bytes: body}})
	}
	return v.refuse(Refuse(CodeProtocol, "one greeting is enough"))
}

// shares reports whether the peer is a member of scope now, and there is
// anything to give.
func (v *visit) shares(scope chain.ScopeID) error {
	if !v.party.Member(&v.member, scope) {
		return Refuse(CodeScope, "not a member of %s here", scope)
	}
	if v.party.Chains() == nil {
		return Refuse(CodeNone, "nothing is cached here")
	}
	if !v.affords(v.stream.Conn().RemotePeer()) {
		return Refuse(CodeBusy, "asked for too much: try later")
	}
	return nil
}

func (v *visit) send(a *wire.Answer) error {
	err := wire.Write(v.stream, a)
	v.answered = time.Now()
	return err
}

// refuse sends err; what is not a Refusal stays here.
func (v *visit) refuse(err error) error {
	var no *Refusal
	if !errors.As(err, &no) {
		return err
	}
	return v.send(&wire.Answer{Refusal: &wire.Refusal{Code: no.Code, Message: no.Message}})
}
