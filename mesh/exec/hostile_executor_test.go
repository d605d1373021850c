package exec_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/exec"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

func sent(t *testing.T, replies ...wire.ExecReply) []byte {
	t.Helper()
	var b bytes.Buffer
	for i := range replies {
		if err := wire.Write(&b, &replies[i]); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

// An executor of another make sends what it likes: the submitter gets what was
// whole before, an error, and no trailer.
func TestHostileExecutors(t *testing.T) {
	data := wire.ExecReply{Data: &wire.ExecData{Bytes: []byte("a"), Meaningful: true}}
	part := wire.ExecReply{Data: &wire.ExecData{Bytes: []byte("a"), Part: true}}
	refusal := wire.ExecReply{Refusal: wire.RefuseExec(wire.ExecBusy, "full")}
	trailer := wire.ExecReply{Trailer: &wire.ExecTrailer{Class: chain.OK}}
	d := &desk{}
	simulated(t, d, func(t *testing.T, p *pair) {
		for name, c := range map[string]struct {
			sends  []byte
			end    func(network.Stream)
			chunks int
			want   error
		}{
			"no length":              {bytes.Repeat([]byte{0xff}, 12), nil, 0, wire.ErrFrame},
			"a large frame":          {binary.AppendUvarint(nil, wire.MaxExecReply+1), nil, 0, wire.ErrTooLarge},
			"no CBOR":                {framed([]byte("hello")), nil, 0, chain.ErrEncoding},
			"an unknown kind":        {framed([]byte{0xa1, 0x65, 'p', 'a', 'u', 's', 'e', 0xa0}), nil, 0, wire.ErrMessage},
			"a refusal after data":   {sent(t, data, refusal), nil, 1, wire.ErrMessage},
			"a trailer in a chunk":   {sent(t, data, part, trailer), nil, 1, wire.ErrMessage},
			"an end without trailer": {sent(t, data), func(s network.Stream) { _ = s.CloseWrite() }, 1, exec.ErrBroken},
			"an end at once":         {nil, func(s network.Stream) { _ = s.CloseWrite() }, 0, exec.ErrBroken},
			"an end in a frame":      {[]byte{50, 1}, func(s network.Stream) { _ = s.CloseWrite() }, 0, exec.ErrBroken},
			"a reset for no reason":  {nil, func(s network.Stream) { _ = s.Reset() }, 0, exec.ErrBroken},
			"busy after data": {sent(t, data), func(s network.Stream) {
				time.Sleep(time.Second)
				_ = s.ResetWithError(network.StreamResourceLimitExceeded)
			}, 1, exec.ErrBroken},
		} {
			p.executor.SetStreamHandler(exec.Protocol, func(s network.Stream) {
				_, _ = s.Write(c.sends)
				if c.end != nil {
					c.end(s)
				}
			})
			chunks, got, err := p.do(t.Context(), []byte("payload"))
			if !errors.Is(err, c.want) || !errors.Is(err, exec.ErrBroken) || got.Class != "" || len(chunks) != c.chunks {
				t.Errorf("%s: %d chunks, %+v, %v", name, len(chunks), got, err)
			}
			var no *wire.ExecRefusal
			if errors.As(err, &no) {
				t.Errorf("%s: passes for a refusal, after which nothing ran: %v", name, err)
			}
		}
		// What follows a trailer is of no interest.
		p.executor.SetStreamHandler(exec.Protocol, func(s network.Stream) { _, _ = s.Write(sent(t, data, trailer, data, refusal)) })
		if chunks, got, err := p.do(t.Context(), nil); err != nil || got.Class != chain.OK || len(chunks) != 1 {
			t.Errorf("after the trailer: %v", err)
		}
		// A peer that gives the protocol up, or the stream to its resource manager.
		p.executor.SetStreamHandler(exec.Protocol, func(s network.Stream) { _ = s.ResetWithError(network.StreamResourceLimitExceeded) })
		if _, _, err := p.do(t.Context(), nil); !errors.Is(err, &wire.ExecRefusal{Code: wire.ExecBusy}) {
			t.Errorf("no room for a stream: %v", err)
		}
		p.executor.RemoveStreamHandler(exec.Protocol)
		if _, _, err := p.do(t.Context(), nil); !errors.Is(err, &wire.ExecRefusal{Code: wire.ExecSharingOff}) {
			t.Errorf("no protocol: %v", err)
		}
	})
}

// An executor that does not wait for grants is hung up on, while its caller is
// busy: nothing piles up.
func TestAnExecutorThatGrantsItself(t *testing.T) {
	d := &desk{}
	simulated(t, d, func(t *testing.T, p *pair) {
		for name, reply := range map[string]wire.ExecReply{
			"large frames": {Data: &wire.ExecData{Bytes: make([]byte, wire.MaxExecData)}},
			"empty frames": {Data: &wire.ExecData{}},
		} {
			ended, wrote := make(chan error, 1), 0
			frame := sent(t, reply)
			p.executor.SetStreamHandler(exec.Protocol, func(s network.Stream) {
				for {
					n, err := s.Write(frame)
					if wrote += n; err != nil {
						ended <- err
						return
					}
				}
			})
			hung := make(chan struct{})
			done := make(chan error, 1)
			go func() {
				_, err := exec.Do(t.Context(), p.stream(), opening(t, nil), nil, func([]byte, bool, bool) error { <-hung; return nil })
				done <- err
			}()
			var reset *network.StreamError
			if err := <-ended; !errors.As(err, &reset) || !reset.Remote || reset.ErrorCode != network.StreamProtocolViolation {
				t.Errorf("%s: it sees %v", name, err)
			}
			if wrote > 2<<20 { // what the transport has on its way
				t.Errorf("%s: it got rid of %d bytes", name, wrote)
			}
			close(hung)
			if err := <-done; !errors.Is(err, exec.ErrBroken) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// One that answers and reads nothing does not hold the submitter at all: a large
// payload is not written to its end.
func TestAnExecutorThatAnswersWithoutReading(t *testing.T) {
	d := &desk{}
	simulated(t, d, func(t *testing.T, p *pair) {
		for name, reply := range map[string]wire.ExecReply{
			"a trailer": {Trailer: &wire.ExecTrailer{Class: chain.OK}},
			"a refusal": {Refusal: wire.RefuseExec(wire.ExecBusy, "full")},
		} {
			p.executor.SetStreamHandler(exec.Protocol, func(s network.Stream) { _, _ = s.Write(sent(t, reply)) })
			at := time.Now()
			_, trailer, err := p.do(t.Context(), make([]byte, 32<<20))
			if took := time.Since(at); took > time.Second || (err == nil) != (reply.Trailer != nil) || err == nil && trailer.Class != chain.OK {
				t.Errorf("%s: after %s, %+v, %v", name, took, trailer, err)
			}
		}
	})
}

// An executor that reads nothing holds the submitter no longer than it wants.
func TestAnExecutorThatReadsNothing(t *testing.T) {
	d := &desk{}
	simulated(t, d, func(t *testing.T, p *pair) {
		p.executor.SetStreamHandler(exec.Protocol, func(network.Stream) {})
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		at := time.Now()
		if _, _, err := p.do(ctx, make([]byte, 32<<20)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if took := time.Since(at); took.Round(time.Second) != 3*time.Second {
			t.Errorf("after %s", took)
		}
	})
}
