package exec

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/streams"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// Caps of one server. How many jobs run is the [Executor]'s; these bound what
// streams cost that are no jobs yet, or never.
const (
	StreamsPerPeer = 64
	Streams        = 256
	small          = 16 << 10  // opening frames up to here need no room
	openRoom       = 16 << 20  // for larger ones, together
	payloadRoom    = 192 << 20 // for payloads of admitted jobs, together
	peerPayloads   = 128 << 20 // of these, for the jobs of one peer: others have payloads too
)

// Server is the executor's half. Give its Serve to the host as the stream handler.
type Server struct {
	executor Executor
	log      *slog.Logger
	ctx      context.Context // of the jobs; ends with Close
	cancel   context.CancelFunc
	opening  *wire.Room
	payloads *wire.Room

	streams *streams.Set // idle until the request is admitted, and after the job is done

	mu      sync.Mutex
	holding map[peer.ID]int64 // bytes of payloads, by peer; nothing at 0

	refused atomic.Uint64
}

// NewServer makes a server; it starts nothing. A nil executor refuses everything.
func NewServer(executor Executor, log *slog.Logger) *Server {
	ctx, cancel := context.WithCancel(context.Background())
	return &Server{executor: executor, log: log, ctx: ctx, cancel: cancel, opening: wire.NewRoom(openRoom), payloads: wire.NewRoom(payloadRoom),
		streams: streams.New(Streams, StreamsPerPeer), holding: map[peer.ID]int64{}}
}

// Open gives the number of streams, and how many were refused for want of room
// since the start.
func (s *Server) Open() (open int, refused uint64) {
	return s.streams.Len(), s.refused.Load() + s.streams.GivenUp()
}

// Close ends every job, resets its stream, and waits for all of it. Streams that
// come later are reset.
func (s *Server) Close() {
	s.cancel()
	s.streams.Close()
}

// Serve runs one stream to its end.
func (s *Server) Serve(stream network.Stream) {
	if s.streams.Enter(stream) != network.StreamNoError {
		s.refused.Add(1)
		_ = stream.ResetWithError(network.StreamResourceLimitExceeded) // nothing ran, also where it stops
		return
	}
	defer s.streams.Leave(stream)
	s.streams.Idle(stream, true)
	from := stream.Conn().RemotePeer()
	err := s.serve(stream, from)
	if err == nil {
		_ = stream.Close()
		return
	}
	s.log.Debug("exec stream broken off", "peer", from.String(), "error", err)
	_ = stream.ResetWithError(s.resetCode(err))
}

// resetCode is what a submitter is told of err.
func (s *Server) resetCode(err error) network.StreamErrorCode {
	switch {
	case s.ctx.Err() != nil:
		return network.StreamShutdown
	case errors.Is(err, errNoRoom):
		s.refused.Add(1)
		return network.StreamResourceLimitExceeded
	}
	return network.StreamProtocolViolation
}

var errNoRoom = errors.New("no room for a frame of this size now")

// serve does what Serve promises; after an error the stream is to be reset.
func (s *Server) serve(stream network.Stream, peer peer.ID) error {
	from := chain.PeerID(peer.String())
	if s.executor == nil {
		return s.refuse(stream, nil, from, wire.RefuseExec(wire.ExecSharingOff, "this device runs no work of others"))
	}
	in := bufio.NewReaderSize(stream, 4096)
	_ = stream.SetReadDeadline(time.Now().Add(openTimeout))
	open, err := s.readOpen(in)
	if errors.Is(err, wire.ErrMessage) || errors.Is(err, chain.ErrEncoding) {
		return s.refuse(stream, in, from, wire.RefuseExec(wire.ExecProtocol, "%s", chain.ClipTo(err.Error(), 200)))
	}
	if err != nil {
		return err
	}
	job, err := s.executor.Admit(s.ctx, from, open)
	if err != nil {
		return s.refuse(stream, in, from, err)
	}
	s.streams.Idle(stream, false)
	err = s.run(peer, stream, in, job)
	job.Release() // before the submitter is waited for: it may take its time
	s.streams.Idle(stream, true)
	var refusal *wire.ExecRefusal
	switch {
	case errors.As(err, &refusal):
		return s.refuse(stream, in, from, refusal)
	case err != nil:
		return err
	}
	// Reading ends with the stream: in order where the submitter has the trailer.
	_ = stream.SetReadDeadline(time.Now().Add(lingerTimeout))
	if err := drain(in); !errors.Is(err, io.EOF) {
		_ = stream.Reset()
	}
	return nil
}

// readOpen reads the opening frame, with room for it where it is large.
func (s *Server) readOpen(in *bufio.Reader) (*wire.ExecOpen, error) {
	size, err := wire.PeekLength(in)
	if err != nil {
		return nil, err
	}
	if size > small && size <= wire.MaxExecOpen { // what is larger is refused below
		if !s.opening.Take(size) {
			return nil, errNoRoom
		}
		defer s.opening.Give(size)
	}
	open := new(wire.ExecOpen)
	return open, wire.Read(in, wire.MaxExecOpen, open)
}

// take reserves room for a payload, as much as it was announced with: a job that
// began to read must not run out of it. A peer that announces and does not send
// keeps no more from others than its part.
func (s *Server) take(from peer.ID, n int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.holding[from]+n > peerPayloads || !s.payloads.Take(n) {
		return false
	}
	s.holding[from] += n
	return true
}

// give returns n bytes of what take reserved.
func (s *Server) give(from peer.ID, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.payloads.Give(n)
	if s.holding[from] -= n; s.holding[from] == 0 {
		delete(s.holding, from)
	}
}

// readPayload reads the payload and compares it with what was signed. The caller
// gives its room back, also after an error.
func (s *Server) readPayload(from peer.ID, stream network.Stream, in *bufio.Reader, terms Terms) ([]byte, error) {
	size := terms.PayloadBytes
	if size < 0 || size > wire.MaxExecPayload {
		return nil, wire.RefuseExec(wire.ExecTooLarge, "a payload of %d bytes, at most %d", size, wire.MaxExecPayload)
	}
	if !s.take(from, size) {
		return nil, wire.RefuseExec(wire.ExecBusy, "no room for a payload of %d bytes now", size)
	}
	payload, err := receive(stream, in, int(size))
	s.give(from, size-int64(cap(payload)))
	if err != nil {
		return payload, err
	}
	if sum := sha256.Sum256(payload); !bytes.Equal(sum[:], terms.PayloadHash) {
		return payload, wire.RefuseExec(wire.ExecPayloadMismatch, "the payload is not the one that was signed")
	}
	return payload, nil
}

// receive reads n bytes into memory that grows with what arrives. Each payloadStep
// of them has payloadTimeout.
func receive(stream network.Stream, in io.Reader, n int) ([]byte, error) {
	b, due := make([]byte, 0, min(n, small)), 0
	for len(b) < n {
		if len(b) >= due {
			_ = stream.SetReadDeadline(time.Now().Add(payloadTimeout))
			due = len(b) + payloadStep
		}
		if len(b) == cap(b) {
			grown := make([]byte, len(b), min(2*cap(b), n))
			copy(grown, b)
			b = grown
		}
		got, err := in.Read(b[len(b):cap(b)])
		b = b[:len(b)+got]
		if err != nil && len(b) < n {
			if errors.Is(err, io.EOF) {
				err = io.ErrUnexpectedEOF
			}
			return b, err
		}
	}
	return b, nil
}

// run reads the payload, runs the job and sends what it gives, while it reads
// grants. A *wire.ExecRefusal is an error from before the job ran.
func (s *Server) run(from peer.ID, stream network.Stream, in *bufio.Reader, job Job) error {
	terms := job.Terms()
	payload, err := s.readPayload(from, stream, in, terms)
	defer func() { s.give(from, int64(cap(payload))) }()
	if err != nil {
		return err
	}
	if terms.Until.IsZero() {
		terms.Until = time.Now().Add(longest)
	}
	left, leave := context.WithCancelCause(s.ctx)
	defer leave(nil)
	ctx, cancel := context.WithDeadline(left, terms.Until)
	defer cancel()
	_ = stream.SetReadDeadline(time.Time{})
	answer := &answer{ctx: ctx, stream: stream, credit: newCredit()}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		leave(readGrants(in, answer.credit))
	}()
	trailer := job.Run(ctx, payload, answer.emit)
	if err = s.ctx.Err(); err == nil || trailer.Class == chain.OK { // what Close broke off is no result
		err = answer.end(job, trailer, s.log)
	}
	if err == nil {
		err = stream.CloseWrite()
	}
	if err != nil {
		err = errors.Join(err, context.Cause(left)) // why the submitter's side ended, if that came first
		_ = stream.ResetWithError(s.resetCode(err))
	}
	_ = stream.SetReadDeadline(time.Now()) // somebody else reads on
	<-ended
	return err
}

// readGrants takes grants until the stream ends, one way or another: its error is
// why. An end in order, io.EOF, is one only after the trailer.
func readGrants(in *bufio.Reader, c *credit) error {
	for {
		n, err := binary.ReadUvarint(in)
		if err != nil {
			return err
		}
		if err := c.grant(n); err != nil {
			return err
		}
	}
}

// refuse says no and waits a little for the submitter to end the stream, so that
// the refusal is not overtaken by a reset. What still comes of the payload is read
// and dropped.
func (s *Server) refuse(stream network.Stream, in *bufio.Reader, from chain.PeerID, why error) error {
	var r *wire.ExecRefusal
	if !errors.As(why, &r) {
		s.log.Error("admitting a peer's work failed", "peer", string(from), "error", why)
		r = wire.RefuseExec(wire.ExecInternal, "it failed to decide; its log says why")
	}
	if s.ctx.Err() != nil {
		r = wire.RefuseExec(wire.ExecShutdown, "it is stopping")
	}
	if r.Validate() != nil {
		r = wire.RefuseExec(wire.ExecInternal, "it refused with a message that cannot be sent")
	}
	s.log.Debug("refused a peer's work", "peer", string(from), "code", string(r.Code), "reason", r.Message)
	_ = stream.SetDeadline(time.Now().Add(refuseTimeout))
	if err := wire.Write(stream, &wire.ExecReply{Refusal: r}); err != nil {
		return err
	}
	if err := stream.CloseWrite(); err != nil {
		return err
	}
	if in == nil {
		in = bufio.NewReaderSize(stream, 512)
	}
	if err := drain(in); !errors.Is(err, io.EOF) {
		_ = stream.Reset()
	}
	return nil
}

// drain reads and drops until the stream ends or its deadline passes.
func drain(in *bufio.Reader) error {
	for {
		if _, err := in.Discard(4096); err != nil {
			return err
		}
	}
}
