package spoke

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/streams"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// Handler is the hub behind the protocol. from is the peer that the transport
// authenticated. A *Refusal goes to the device as it is; any other error is
// logged here and crosses as CodeInternal. Methods are called from many
// goroutines, at most one at a time per session, and after a Hello of that
// session succeeded (but for Hello itself). ctx ends with the hub.
type Handler interface {
	Hello(ctx context.Context, from chain.PeerID, h wire.Hello) (wire.Welcome, error)
	Report(ctx context.Context, from chain.PeerID, r wire.Report) (wire.ReportReply, error)
	Fetch(ctx context.Context, from chain.PeerID, f wire.Fetch) (wire.FetchReply, error)
	Protest(ctx context.Context, from chain.PeerID, p wire.Protest) (wire.ProtestReply, error)
	Lease(ctx context.Context, from chain.PeerID, l wire.Lease) (wire.LeaseReply, error)
	Provider(ctx context.Context, from chain.PeerID, p wire.Provider) (wire.ProviderReply, error)
}

// Caps on sessions and on what they hold. A session has one frame at a time;
// frames over 16 KiB (enough for nearly every one) take room from a budget, one
// for members and a smaller one for those who have not proved that they are.
const (
	SessionsPerPeer = 4
	Sessions        = 2048
	requests        = 100_000 // of one session; then the device opens another
	maxStrikes      = 3       // refused hellos of one session
	small           = 16 << 10
	memberRoom      = 64 << 20
	strangerRoom    = 16 << 20
)

// Server is the hub's half. Give its Serve to the host as the stream handler.
type Server struct {
	handler Handler
	log     *slog.Logger
	ctx     context.Context // of the handlers; ends with Close
	cancel  context.CancelFunc

	sessions *streams.Set
	refused  atomic.Uint64

	members, strangers *wire.Room // for frames on their way
}

// NewServer makes a server. It starts nothing.
func NewServer(handler Handler, log *slog.Logger) *Server {
	ctx, cancel := context.WithCancel(context.Background())
	return &Server{handler: handler, log: log, ctx: ctx, cancel: cancel,
		sessions: streams.New(Sessions, SessionsPerPeer), members: wire.NewRoom(memberRoom), strangers: wire.NewRoom(strangerRoom)}
}

// Serve runs one session to its end.
func (s *Server) Serve(stream network.Stream) {
	from := stream.Conn().RemotePeer()
	if code := s.sessions.Enter(stream); code != network.StreamNoError {
		s.refused.Add(1)
		_ = stream.ResetWithError(code)
		return
	}
	defer s.sessions.Leave(stream)
	if err := s.session(stream, chain.PeerID(from.String())); err != nil {
		code := network.StreamErrorCode(network.StreamProtocolViolation)
		switch {
		case s.ctx.Err() != nil:
			code = network.StreamShutdown
		case errors.Is(err, errNoRoom):
			s.refused.Add(1)
			code = network.StreamResourceLimitExceeded
		}
		s.log.Debug("spoke session broken off", "peer", from.String(), "error", err)
		_ = stream.ResetWithError(code)
		return
	}
	_ = stream.Close()
}

// Open gives the number of sessions, and how many streams were refused for
// want of room since the start.
func (s *Server) Open() (sessions int, refused uint64) {
	return s.sessions.Len(), s.refused.Load()
}

// Close resets every session and waits for their handlers.
func (s *Server) Close() {
	s.cancel()
	s.sessions.Close()
}

// session answers requests until the device ends the stream (nil) or breaks a
// rule.
func (s *Server) session(stream network.Stream, from chain.PeerID) error {
	in := bufio.NewReaderSize(stream, 4096)
	greeted, strikes := false, 0
	wait := helloTimeout
	for range requests {
		_ = stream.SetReadDeadline(time.Now().Add(wait))
		if _, err := in.Peek(1); err != nil {
			if errors.Is(err, io.EOF) || greeted && timedOut(err) {
				return nil
			}
			return err
		}
		if greeted {
			_ = stream.SetReadDeadline(time.Now().Add(frameTimeout))
		}
		budget := s.strangers
		if greeted {
			budget = s.members
		}
		request, err := read(in, budget)
		if err != nil && !errors.Is(err, wire.ErrMessage) {
			return err // what follows cannot be read
		}
		reply := s.answer(from, request, err, &greeted)
		_ = stream.SetWriteDeadline(time.Now().Add(frameTimeout))
		if err := wire.Write(stream, &reply); err != nil {
			return err
		}
		wait = idleTimeout
		if !greeted {
			wait = helloTimeout
			if strikes++; strikes == maxStrikes {
				return nil // said why each time
			}
		}
	}
	return nil
}

var errNoRoom = errors.New("no room for a frame of this size now")

// read reads one request, with room for it taken from the budget.
func read(in *bufio.Reader, budget *wire.Room) (request wire.Request, err error) {
	size, err := wire.PeekLength(in)
	if err != nil {
		return request, err
	}
	if size > small && size <= wire.MaxControl { // what is larger is refused below
		if !budget.Take(size) {
			return request, errNoRoom
		}
		defer budget.Give(size)
	}
	return request, wire.Read(in, wire.MaxControl, &request)
}

// answer makes the reply to one request that was read with err.
func (s *Server) answer(from chain.PeerID, q wire.Request, err error, greeted *bool) wire.Reply {
	switch {
	case errors.Is(err, wire.ErrUnknown):
		return refuse(Refuse(CodeUnknown, "this hub does not know that kind of request"))
	case err != nil:
		return refuse(&Refusal{Code: CodeProtocol, Message: err.Error()})
	case !*greeted && q.Hello == nil:
		return refuse(Refuse(CodeProtocol, "a session begins with hello"))
	}
	var reply wire.Reply
	switch {
	case q.Hello != nil:
		var w wire.Welcome
		if w, err = s.handler.Hello(s.ctx, from, *q.Hello); err == nil {
			*greeted = true
			reply.Welcome = &w
		} else {
			*greeted = false // a member that lost its membership says no more here
		}
	case q.Report != nil:
		var r wire.ReportReply
		r, err = s.handler.Report(s.ctx, from, *q.Report)
		reply.Report = &r
	case q.Fetch != nil:
		var r wire.FetchReply
		r, err = s.handler.Fetch(s.ctx, from, *q.Fetch)
		reply.Fetch = &r
	case q.Protest != nil:
		var r wire.ProtestReply
		r, err = s.handler.Protest(s.ctx, from, *q.Protest)
		reply.Protest = &r
	case q.Lease != nil:
		var r wire.LeaseReply
		r, err = s.handler.Lease(s.ctx, from, *q.Lease)
		reply.Lease = &r
	case q.Provider != nil:
		var r wire.ProviderReply
		r, err = s.handler.Provider(s.ctx, from, *q.Provider)
		reply.Provider = &r
	}
	if err == nil {
		err = reply.Validate()
	}
	if err != nil {
		return refuse(s.refusal(from, err))
	}
	return reply
}

func refuse(r *Refusal) wire.Reply { return wire.Reply{Refusal: r.wire()} }

// refusal turns a handler's error into what the device may know of it.
func (s *Server) refusal(from chain.PeerID, err error) *Refusal {
	var r *Refusal
	if errors.As(err, &r) {
		return r
	}
	if s.ctx.Err() != nil {
		return Refuse(CodeShutdown, "it is stopping: try later")
	}
	s.log.Error("answering a device failed", "peer", string(from), "error", err)
	return Refuse(CodeInternal, "it failed to answer; its log says why")
}
