package exec

import (
	"context"
	"encoding/binary"
	"errors"
	"log/slog"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// answer is what a job sends back. It is used by one goroutine at a time.
type answer struct {
	ctx    context.Context
	stream network.Stream
	credit *credit
	held   []byte // frames that More keeps back
	err    error  // of the first emit that failed
}

// maxHeld is how much is kept back at most.
const maxHeld = wire.MaxExecData

var errChunkTooLong = errors.New("a chunk is longer than the submitter takes")

// emit sends one chunk, in parts where it is long.
func (a *answer) emit(data []byte, meaningful, more bool) error {
	if a.err == nil && len(data) > wire.MaxExecChunk {
		a.err = errChunkTooLong
	}
	for a.err == nil && len(data) > wire.MaxExecData {
		a.err = a.frame(&wire.ExecData{Bytes: data[:wire.MaxExecData], Part: true})
		data = data[wire.MaxExecData:]
	}
	if a.err == nil && (len(data) > 0 || !more) {
		a.err = a.frame(&wire.ExecData{Bytes: data, Meaningful: meaningful, More: more})
	}
	if a.err == nil && !more {
		a.err = a.flush()
	}
	return a.err
}

// frame takes credit for one frame and holds it until there is enough to write.
func (a *answer) frame(d *wire.ExecData) error {
	if a.ctx.Err() != nil {
		return context.Cause(a.ctx)
	}
	b, err := wire.Encode(&wire.ExecReply{Data: d})
	if err != nil {
		return err
	}
	cost := int64(len(b) + frameCost)
	if !a.credit.try(cost) {
		if err := a.flush(); err != nil { // nobody grants what was not sent
			return err
		}
		if err := a.credit.take(a.ctx, cost); err != nil {
			return err
		}
	}
	a.held = append(binary.AppendUvarint(a.held, uint64(len(b))), b...)
	if len(a.held) >= maxHeld {
		return a.flush()
	}
	return nil
}

func (a *answer) flush() error {
	if len(a.held) == 0 {
		return nil
	}
	_ = a.stream.SetWriteDeadline(time.Now().Add(writeTimeout))
	_, err := a.stream.Write(a.held)
	a.held = a.held[:0]
	return err
}

// end sends what is held, and then the trailer: only now it is signed.
func (a *answer) end(job Job, t wire.ExecTrailer, log *slog.Logger) error {
	if a.err != nil {
		return a.err
	}
	if err := a.flush(); err != nil {
		return err
	}
	job.Sign(&t)
	if err := t.Validate(); err != nil {
		log.Error("a job's trailer cannot be sent", "error", err)
		t = wire.ExecTrailer{Class: chain.Internal, Used: min(max(t.Used, 0), 1)}
	}
	_ = a.stream.SetWriteDeadline(time.Now().Add(writeTimeout))
	return wire.Write(a.stream, &wire.ExecReply{Trailer: &t})
}
