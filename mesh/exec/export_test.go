package exec

import (
	"bufio"
	"io"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/chordwheel/chordwheel/mesh/streams"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// RoomUsed gives the bytes that opening frames and payloads hold.
func (s *Server) RoomUsed() int64 { return s.opening.Used() + s.payloads.Used() }

// SetStreams makes the server small enough for a test.
func (s *Server) SetStreams(n int) { s.streams = streams.New(n, StreamsPerPeer) }

// ServeAs serves a stream that has no connection.
func (s *Server) ServeAs(from peer.ID, stream network.Stream) error {
	return s.serve(stream, from)
}

// Take gives emit what an executor's bytes hold, as [Do] does.
func Take(stream network.Stream, emit Emit) (wire.ExecTrailer, error) {
	in := newInbox(stream)
	in.read()
	return in.take(emit)
}

// ReadGrants takes grants after sent bytes went out, and gives how many are ahead
// in the end.
func ReadGrants(r io.Reader, sent int64) (ahead int64, err error) {
	c := newCredit()
	c.try(sent)
	err = readGrants(bufio.NewReader(r), c)
	return c.ahead, err
}

// Size gives how many peers are remembered, and the most envelopes of one.
func (s *Sent) Size() (peers, most int) {
	for _, has := range s.peers {
		most = max(most, len(has))
	}
	return len(s.peers), most
}
