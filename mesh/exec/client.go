package exec

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/protocol"
	"github.com/multiformats/go-multistream"

	"github.com/chordwheel/chordwheel/mesh/wire"
)

// together is how much of a payload goes out in one write with the opening frame.
const together = 64 << 10

// Do makes one attempt on stream, which it takes over and ends. emit is called for
// each chunk, from this goroutine, before the trailer is known; what it is given is
// the caller's. The trailer is as the executor sent it: nothing of it is verified.
//
// Errors: *wire.ExecRefusal, said before anything ran; the error of emit; the cause
// of ctx, whose end is told to the executor at once; or ErrBroken, after which the
// work may have run.
func Do(ctx context.Context, stream network.Stream, open *wire.ExecOpen, payload []byte, emit Emit) (wire.ExecTrailer, error) {
	frame, err := wire.Encode(open)
	if err == nil && len(frame) > wire.MaxExecOpen {
		err = fmt.Errorf("%w: an opening frame of %d bytes, at most %d", wire.ErrTooLarge, len(frame), wire.MaxExecOpen)
	}
	if err != nil {
		_ = stream.Reset()
		return wire.ExecTrailer{}, err
	}
	stop := context.AfterFunc(ctx, func() { _ = stream.ResetWithError(resetCanceled) })
	defer stop()
	n := min(len(payload), together)
	first := make([]byte, 0, binary.MaxVarintLen32+len(frame)+n)
	first = append(append(binary.AppendUvarint(first, uint64(len(frame))), frame...), payload[:n]...)
	_, err = stream.Write(first) // an earlier read would send the handshake alone
	in := newInbox(stream)
	var reader sync.WaitGroup
	if rest := payload[n:]; err == nil && len(rest) > 0 {
		reader.Go(in.read)
		_, _ = stream.Write(rest) // where it fails, the reader learns why
	} else if last := in.one(); !last { // no other goroutine is in the way of the first chunk
		reader.Go(in.read)
	}
	trailer, err := in.take(emit)
	if err == nil && stop() {
		_ = stream.SetDeadline(time.Now().Add(writeTimeout))
		_ = stream.Close()
	} else {
		_ = stream.ResetWithError(resetCanceled)
	}
	reader.Wait()
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return trailer, err
}

// inbox is what the executor sent and the caller did not take yet: at most Window
// bytes of data, and how it ended.
type inbox struct {
	stream network.Stream
	in     *bufio.Reader
	ready  chan struct{} // room for one

	mu    sync.Mutex
	queue []received
	cost  int64
	end   *wire.ExecReply // trailer or refusal
	err   error           // or why there is none
}

type received struct {
	data *wire.ExecData
	cost int64
}

var errOverCredit = fmt.Errorf("%w: it sent more than was granted", wire.ErrMessage)

func newInbox(stream network.Stream) *inbox {
	return &inbox{stream: stream, in: bufio.NewReaderSize(stream, 4096), ready: make(chan struct{}, 1)}
}

// read reads until the trailer, a refusal or the end of the stream, whatever the
// caller does meanwhile.
func (i *inbox) read() {
	for !i.one() {
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.err != nil && !isRemote(i.err) {
		_ = i.stream.ResetWithError(network.StreamProtocolViolation) // frees a writer that waits
	} else if i.end != nil {
		_ = i.stream.SetWriteDeadline(time.Now()) // what is left of the payload is of no more use
	}
}

// one reads one frame and reports whether it was the last.
func (i *inbox) one() (last bool) {
	var reply wire.ExecReply
	b, err := wire.ReadFrame(i.in, wire.MaxExecReply)
	if err == nil {
		err = wire.Decode(b, &reply)
	}
	return i.add(reply, len(b), err)
}

// add takes over what was read and reports whether it was the last.
func (i *inbox) add(reply wire.ExecReply, size int, err error) (last bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case err != nil:
		i.err = err
	case reply.Data == nil:
		i.end = &reply
	default:
		cost := int64(size + frameCost)
		i.queue, i.cost = append(i.queue, received{reply.Data, cost}), i.cost+cost
		if i.cost > Window {
			i.queue, i.err = nil, errOverCredit
		}
	}
	select {
	case i.ready <- struct{}{}:
	default:
	}
	return i.end != nil || i.err != nil
}

// next waits for a frame of data; without one, the answer is at its end.
func (i *inbox) next() (received, bool) {
	for {
		i.mu.Lock()
		if len(i.queue) > 0 {
			r := i.queue[0]
			i.queue = i.queue[1:]
			i.mu.Unlock()
			return r, true
		}
		over := i.end != nil || i.err != nil
		i.mu.Unlock()
		if over {
			return received{}, false
		}
		<-i.ready
	}
}

// taken notes that the caller has taken n bytes: they are granted anew.
func (i *inbox) taken(n int64) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.cost -= n
}

// take gives the caller chunk after chunk, and grants what was taken.
func (i *inbox) take(emit Emit) (wire.ExecTrailer, error) {
	var chunk []byte // of parts
	var owed int64
	began := false
	for {
		r, ok := i.next()
		if !ok {
			break
		}
		began = true
		data := r.data.Bytes
		if len(chunk) > 0 || r.data.Part {
			if len(chunk)+len(data) > wire.MaxExecChunk {
				return wire.ExecTrailer{}, fmt.Errorf("%w: %w: a chunk of over %d bytes", ErrBroken, wire.ErrTooLarge, wire.MaxExecChunk)
			}
			chunk = append(chunk, data...)
			data = chunk
		}
		if !r.data.Part {
			if err := emit(data, r.data.Meaningful, r.data.More); err != nil {
				return wire.ExecTrailer{}, err
			}
			chunk = nil
		}
		if owed += r.cost; owed >= grantAfter {
			i.taken(owed) // before it is said: the executor may use it at once
			_ = i.stream.SetWriteDeadline(time.Now().Add(writeTimeout))
			_, _ = i.stream.Write(binary.AppendUvarint(nil, uint64(owed))) // where it fails, the reader learns why
			owed = 0
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	switch {
	case i.err != nil:
		return wire.ExecTrailer{}, broken(i.err, began)
	case i.end.Refusal != nil && began:
		return wire.ExecTrailer{}, fmt.Errorf("%w: %w: a refusal after data", ErrBroken, wire.ErrMessage)
	case i.end.Refusal != nil:
		return wire.ExecTrailer{}, i.end.Refusal
	case len(chunk) > 0:
		return wire.ExecTrailer{}, fmt.Errorf("%w: %w: a trailer in the middle of a chunk", ErrBroken, wire.ErrMessage)
	}
	return *i.end.Trailer, nil
}

func isRemote(err error) bool {
	var reset *network.StreamError
	return errors.As(err, &reset) && reset.Remote
}

// broken turns the end of a stream into what it means. Before anything came of the
// stream, it may be that nobody listened to it.
func broken(err error, began bool) error {
	var unknown multistream.ErrNotSupported[protocol.ID]
	if !began && errors.As(err, &unknown) {
		return errNoProtocol
	}
	var reset *network.StreamError
	if !began && errors.As(err, &reset) && reset.Remote {
		switch reset.ErrorCode {
		case network.StreamProtocolNegotiationFailed:
			return errNoProtocol
		case network.StreamResourceLimitExceeded, network.StreamRateLimited:
			return wire.RefuseExec(wire.ExecBusy, "it has no room for another stream")
		}
	}
	if errors.Is(err, io.EOF) {
		return fmt.Errorf("%w: it ended without a trailer", ErrBroken)
	}
	return fmt.Errorf("%w: %w", ErrBroken, err)
}

var errNoProtocol = wire.RefuseExec(wire.ExecSharingOff, "this peer runs no work of others")
