package sim

import (
	"context"

	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
)

// Stream is one end of a stream that a tap is told of.
type Stream struct {
	Node     int    // whose end it is
	Protocol string // of those that Node offers, or the first that it asked for
	Opened   bool   // Node opened it
}

// Tap is asked once for each end of a stream and gives what is to see its bytes, in
// the clear and in order, as Node reads and writes them; the bytes are not to be kept or
// changed. nil for no interest. It is called from many goroutines. Streams of the
// library's own (identify, ping) are not seen.
type Tap func(s Stream) (read, written func(b []byte))

// tapped is a host whose streams are seen.
type tapped struct {
	host.Host
	node int
	tap  Tap
}

func (h *tapped) SetStreamHandler(id protocol.ID, handler network.StreamHandler) {
	h.Host.SetStreamHandler(id, h.wrap(handler))
}

func (h *tapped) SetStreamHandlerMatch(id protocol.ID, match func(protocol.ID) bool, handler network.StreamHandler) {
	h.Host.SetStreamHandlerMatch(id, match, h.wrap(handler))
}

func (h *tapped) wrap(handler network.StreamHandler) network.StreamHandler {
	return func(s network.Stream) { handler(h.see(s, s.Protocol(), false)) }
}

func (h *tapped) NewStream(ctx context.Context, p peer.ID, ids ...protocol.ID) (network.Stream, error) {
	s, err := h.Host.NewStream(ctx, p, ids...)
	if err != nil {
		return nil, err
	}
	return h.see(s, ids[0], true), nil
}

func (h *tapped) see(s network.Stream, id protocol.ID, opened bool) network.Stream {
	read, written := h.tap(Stream{Node: h.node, Protocol: string(id), Opened: opened})
	return &seen{s, read, written}
}

type seen struct {
	network.Stream
	read, written func([]byte)
}

func (s *seen) Read(b []byte) (int, error) {
	n, err := s.Stream.Read(b)
	if s.read != nil && n > 0 {
		s.read(b[:n])
	}
	return n, err
}

func (s *seen) Write(b []byte) (int, error) {
	if s.written != nil {
		s.written(b)
	}
	return s.Stream.Write(b)
}
