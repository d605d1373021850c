package mesh

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/multiformats/go-multistream"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/exec"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// ErrNotConnected is the error of work for a peer that there is no connection to,
// and none could be made. Nothing was sent.
var ErrNotConnected = errors.New("no connection to the peer")

// streamTimeout bounds the opening of a stream on a connection that stands.
const streamTimeout = 5 * time.Second

// Exec has the peer to run one request: see [exec.Do] for what emit gets and what
// the errors after the opening of the stream mean. open has all envelopes; those
// that the peer is known to have are left out, and sent after all if it lacks them,
// which is no second attempt. Before it, ErrNotConnected: nothing was sent.
func (d *Device) Exec(ctx context.Context, to chain.PeerID, open wire.ExecOpen, payload []byte, emit exec.Emit) (wire.ExecTrailer, error) {
	p, err := peerID(to)
	if err != nil {
		return wire.ExecTrailer{}, fmt.Errorf("exec: %w", err)
	}
	lean := d.sent.Lean(to, open)
	for again := false; ; again = true {
		stream, err := d.execStream(ctx, p)
		if err != nil {
			return wire.ExecTrailer{}, err
		}
		trailer, err := exec.Do(ctx, stream, &lean, payload, emit)
		if !again && errors.Is(err, &wire.ExecRefusal{Code: wire.ExecNeed}) {
			d.sent.Forget(to)
			lean = open
			continue
		}
		if errors.Is(err, &wire.ExecRefusal{Code: wire.ExecStaleNonce}) {
			d.sent.Forget(to) // it was restarted as a rule, and knows no envelope any more
		}
		if err == nil {
			d.sent.Took(to, open)
		}
		return trailer, err
	}
}

// execStream opens a stream on a connection that stands, or on one made again
// to a contact whose link was closed for being idle.
func (d *Device) execStream(ctx context.Context, p peer.ID) (network.Stream, error) {
	opening, cancel := context.WithTimeout(ctx, streamTimeout)
	defer cancel()
	if d.host.Network().Connectedness(p) != network.Connected && (!d.peers.rests(p) || d.peers.arrive(opening, p) != nil) {
		return nil, fmt.Errorf("%w %s", ErrNotConnected, p)
	}
	stream, err := d.host.NewStream(network.WithNoDial(opening, "exec"), p, exec.Protocol)
	var unknown multistream.ErrNotSupported[protocol.ID]
	switch {
	case err == nil:
		return stream, nil
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.As(err, &unknown):
		return nil, wire.RefuseExec(wire.ExecSharingOff, "this peer runs no work of others")
	case errors.Is(err, network.ErrResourceLimitExceeded):
		return nil, wire.RefuseExec(wire.ExecBusy, "this device has too many streams open")
	}
	return nil, fmt.Errorf("%w %s: %s", ErrNotConnected, p, flat(err))
}
