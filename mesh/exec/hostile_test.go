package exec_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/exec"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// raw is a submitter of another make: it writes what it likes.
type raw struct {
	network.Stream
	t  *testing.T
	in *bufio.Reader
}

func (p *pair) raw(t *testing.T) *raw {
	s := p.stream()
	return &raw{s, t, bufio.NewReader(s)}
}

func (r *raw) send(parts ...[]byte) *raw {
	if _, err := r.Write(bytes.Join(parts, nil)); err != nil {
		r.t.Error(err)
	}
	return r
}

// reply reads one frame; without one it gives the code of the reset.
func (r *raw) reply() (wire.ExecReply, network.StreamErrorCode) {
	var reply wire.ExecReply
	err := wire.Read(r.in, wire.MaxExecReply, &reply)
	var reset *network.StreamError
	switch {
	case errors.As(err, &reset) && reset.Remote:
		return reply, reset.ErrorCode
	case err != nil:
		r.t.Errorf("neither a frame nor a reset: %v", err)
	}
	return reply, 0
}

func framed(b []byte) []byte { return append(binary.AppendUvarint(nil, uint64(len(b))), b...) }

func openingFrame(t *testing.T, payload []byte) []byte {
	b, err := wire.Encode(opening(t, payload))
	if err != nil {
		t.Fatal(err)
	}
	return framed(b)
}

// announced is the frame of a request that declares size and the hash of payload.
func announced(t *testing.T, size int64, payload []byte) []byte {
	b, err := chain.Marshal(&terms{size, wire.EnvelopeHash(payload)})
	if err != nil {
		t.Fatal(err)
	}
	b, err = wire.Encode(&wire.ExecOpen{Request: b})
	if err != nil {
		t.Fatal(err)
	}
	return framed(b)
}

// What a stranger sends before anything is verified, and what becomes of it.
func TestOpeningsOfStrangers(t *testing.T) {
	d := &desk{run: echo}
	simulated(t, d, func(t *testing.T, p *pair) {
		nested := append(bytes.Repeat([]byte{0x81}, 60_000), 0x80)
		for name, c := range map[string]struct {
			bytes []byte
			code  wire.ExecCode           // of the refusal, or
			reset network.StreamErrorCode // of the reset
		}{
			"no length":             {bytes.Repeat([]byte{0xff}, 12), "", network.StreamProtocolViolation},
			"a length of two forms": {[]byte{0x80, 0x00}, "", network.StreamProtocolViolation},
			"over the limit":        {binary.AppendUvarint(nil, wire.MaxExecOpen+1), "", network.StreamProtocolViolation},
			"four gigabytes":        {binary.AppendUvarint(nil, math.MaxUint32), "", network.StreamProtocolViolation},
			"an empty frame":        {framed(nil), wire.ExecProtocol, 0},
			"an empty map":          {framed([]byte{0xa0}), wire.ExecProtocol, 0},
			"nested":                {framed(nested), wire.ExecProtocol, 0},
			"claims 2^32 entries":   {framed([]byte{0xba, 0xff, 0xff, 0xff, 0xff}), wire.ExecProtocol, 0},
			"endless map":           {framed([]byte{0xbf, 0xff}), wire.ExecProtocol, 0},
			"another message":       {framed([]byte{0xa1, 0x65, 'h', 'e', 'l', 'l', 'o', 0xa0}), wire.ExecProtocol, 0},
			"a payload of minus 1":  {announced(t, -1, nil), wire.ExecTooLarge, 0},
			"a payload of 2^62":     {announced(t, 1<<62, nil), wire.ExecTooLarge, 0},
			"over 64 MiB":           {announced(t, wire.MaxExecPayload+1, nil), wire.ExecTooLarge, 0},
			"another payload":       {append(announced(t, 5, []byte("hello")), "hallo"...), wire.ExecPayloadMismatch, 0},
		} {
			at := time.Now()
			reply, reset := p.raw(t).send(c.bytes).reply()
			if reset != c.reset || c.code != "" && (reply.Refusal == nil || reply.Refusal.Code != c.code) {
				t.Errorf("%s: %+v, reset with %#x", name, reply, reset)
			}
			if took := time.Since(at); took > 50*time.Millisecond {
				t.Errorf("%s: after %s", name, took)
			}
		}
		p.settled(10 * time.Second)
		if _, ran, _ := d.counts(); ran != 0 {
			t.Errorf("%d jobs ran", ran)
		}
		if admitted, _, released := d.counts(); admitted != released || admitted != 4 {
			t.Errorf("%d were admitted and %d released", admitted, released)
		}
	})
}

// Whoever is slow is not waited for: each part of a request has its time.
func TestOneByteASecond(t *testing.T) {
	d := &desk{run: echo}
	simulated(t, d, func(t *testing.T, p *pair) {
		payload := make([]byte, 1000)
		for name, c := range map[string]struct {
			at once
			in time.Duration
		}{
			"the opening":     {once{slow: openingFrame(t, payload)}, 10 * time.Second},
			"the payload":     {once{openingFrame(t, payload), payload}, 10 * time.Second},
			"a large one":     {once{announced(t, 60<<20, nil), payload}, 10 * time.Second},
			"its second half": {once{append(announced(t, 60<<20, nil), make([]byte, 300<<10)...), payload}, 10 * time.Second},
			"silence":         {once{}, 10 * time.Second},
		} {
			r := p.raw(t).send(c.at.first)
			begun := time.Now()
			go func() {
				for i := range c.at.slow {
					if _, err := r.Write(c.at.slow[i : i+1]); err != nil {
						return
					}
					time.Sleep(time.Second)
				}
			}()
			if _, reset := r.reply(); reset != network.StreamProtocolViolation {
				t.Errorf("%s: reset with %#x", name, reset)
			}
			if took := time.Since(begun); took.Round(time.Second) != c.in {
				t.Errorf("%s: after %s", name, took)
			}
		}
		p.settled(time.Second)
		if _, ran, _ := d.counts(); ran != 0 {
			t.Errorf("%d jobs ran", ran)
		}
	})
}

type once struct{ first, slow []byte }

// What a submitter may not send while its job runs ends the job.
func TestBrokenGrantsEndTheJob(t *testing.T) {
	d := &desk{}
	simulated(t, d, func(t *testing.T, p *pair) {
		for name, bad := range map[string][]byte{
			"of nothing":            {0},
			"more than was sent":    binary.AppendUvarint(nil, exec.Window),
			"2^64-1":                binary.AppendUvarint(nil, math.MaxUint64),
			"over 64 bits":          bytes.Repeat([]byte{0xff}, 11),
			"more of the payload":   []byte("more of the payload"),
			"another opening frame": openingFrame(t, nil),
		} {
			ended := make(chan error, 1)
			d.answer(func(ctx context.Context, _ []byte, emit exec.Emit) wire.ExecTrailer {
				if err := emit([]byte("a"), true, false); err != nil {
					t.Error(err)
				}
				<-ctx.Done()
				ended <- emit([]byte("b"), true, false)
				return wire.ExecTrailer{Class: chain.Canceled}
			})
			r := p.raw(t).send(openingFrame(t, nil))
			if reply, _ := r.reply(); reply.Data == nil {
				t.Fatalf("%s: %+v", name, reply)
			}
			at := time.Now()
			r.send(bad)
			if err := <-ended; err == nil || time.Since(at) > 100*time.Millisecond {
				t.Errorf("%s: after %s, %v", name, time.Since(at), err)
			}
		}
		p.settled(time.Second)
	})
}

// A half-close would hide a later reset: it counts as one.
func TestAHalfCloseEndsTheJob(t *testing.T) {
	d := &desk{}
	simulated(t, d, func(t *testing.T, p *pair) {
		job := newSilent()
		d.answer(job.run)
		r := p.raw(t).send(openingFrame(t, nil))
		<-job.begun
		_ = r.CloseWrite()
		if err := <-job.ended; !errors.Is(err, io.EOF) {
			t.Errorf("%v", err)
		}
		p.settled(time.Second)
	})
}

// A payload that ends early never reaches the job.
func TestAPayloadCutShort(t *testing.T) {
	d := &desk{run: echo}
	simulated(t, d, func(t *testing.T, p *pair) {
		r := p.raw(t).send(openingFrame(t, make([]byte, 1000)), make([]byte, 999))
		_ = r.CloseWrite()
		if _, reset := r.reply(); reset != network.StreamProtocolViolation {
			t.Errorf("reset with %#x", reset)
		}
		p.settled(time.Second)
		if _, ran, released := d.counts(); ran != 0 || released != 1 {
			t.Errorf("%d ran, %d released", ran, released)
		}
	})
}

// Whoever takes the trailer or a refusal and stays is hung up on.
func TestNobodyStaysAfterTheEnd(t *testing.T) {
	d := &desk{run: echo}
	simulated(t, d, func(t *testing.T, p *pair) {
		r := p.raw(t).send(openingFrame(t, nil))
		if reply, _ := r.reply(); reply.Data == nil {
			t.Fatalf("%+v", reply)
		}
		p.settled(6 * time.Second)
		d.change(func() { d.refuse = wire.RefuseExec(wire.ExecBusy, "full") })
		p.raw(t).send(openingFrame(t, nil))
		p.settled(3 * time.Second)
	})
}

func TestStreamsOfOnePeerAreFew(t *testing.T) {
	d := &desk{run: echo}
	simulated(t, d, func(t *testing.T, p *pair) {
		var open []*raw
		for range exec.StreamsPerPeer {
			open = append(open, p.raw(t).send([]byte{10}))
		}
		time.Sleep(time.Second)
		if _, _, err := p.do(t.Context(), nil); !errors.Is(err, &wire.ExecRefusal{Code: wire.ExecBusy}) {
			t.Errorf("%v", err)
		}
		for _, r := range open {
			_ = r.Reset()
		}
		p.settled(time.Second)
		if _, _, err := p.do(t.Context(), nil); err != nil {
			t.Errorf("the room did not come back: %v", err)
		}
	})
}

// Streams whose requests do not come make room for one that does, and jobs stay.
func TestAFullServerGivesUpWhoDoesNothing(t *testing.T) {
	d := &desk{}
	simulated(t, d, func(t *testing.T, p *pair) {
		p.server.SetStreams(4)
		job := newSilent()
		d.answer(job.run)
		ctx, cancel := context.WithCancel(t.Context())
		done := p.start(ctx)
		<-job.begun
		d.answer(echo)
		var idle []*raw
		for range 3 {
			idle = append(idle, p.raw(t).send([]byte{10}))
			time.Sleep(time.Second)
		}
		for range 2 {
			if _, _, err := p.do(t.Context(), nil); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Second)
		}
		if _, reset := idle[0].reply(); reset != network.StreamResourceLimitExceeded {
			t.Errorf("the oldest: reset with %#x", reset)
		}
		if len(job.ended) > 0 {
			t.Error("a job was given up")
		}
		cancel()
		<-done
		time.Sleep(10 * time.Second)
		p.settled(time.Second)
	})
}

// A full house of jobs is busy.
func TestAServerFullOfJobs(t *testing.T) {
	d := &desk{run: func(ctx context.Context, _ []byte, _ exec.Emit) wire.ExecTrailer {
		<-ctx.Done()
		return wire.ExecTrailer{Class: chain.Canceled}
	}}
	simulated(t, d, func(t *testing.T, p *pair) {
		p.server.SetStreams(3)
		ctx, cancel := context.WithCancel(t.Context())
		var all []chan error
		for range 3 {
			all = append(all, p.start(ctx))
		}
		time.Sleep(time.Second)
		if _, _, err := p.do(t.Context(), nil); !errors.Is(err, &wire.ExecRefusal{Code: wire.ExecBusy}) {
			t.Errorf("%v", err)
		}
		cancel()
		for _, done := range all {
			<-done
		}
		p.settled(time.Second)
	})
}

// A job's place is free as soon as its trailer is sent, whatever the submitter does
// with its stream.
func TestJobsAreReleasedBeforeTheSubmitterLeaves(t *testing.T) {
	d := &desk{run: echo}
	simulated(t, d, func(t *testing.T, p *pair) {
		p.raw(t).send(openingFrame(t, nil))
		p.raw(t).send(announced(t, 5, []byte("hello")), []byte("hallo"))
		time.Sleep(100 * time.Millisecond)
		if n, _ := p.server.Open(); n != 2 {
			t.Errorf("%d streams are open", n)
		}
		if _, ran, released := d.counts(); ran != 1 || released != 2 {
			t.Errorf("%d ran, %d released", ran, released)
		}
		p.settled(10 * time.Second)
	})
}

// Large opening frames that do not arrive share one budget.
func TestHalfSentOpenings(t *testing.T) {
	d := &desk{run: echo}
	simulated(t, d, func(t *testing.T, p *pair) {
		for range 16 << 20 / (700 << 10) {
			p.raw(t).send(binary.AppendUvarint(nil, 700<<10), []byte{1})
		}
		time.Sleep(time.Second)
		if _, reset := p.raw(t).send(binary.AppendUvarint(nil, 700<<10), []byte{1}).reply(); reset != network.StreamResourceLimitExceeded {
			t.Errorf("reset with %#x", reset)
		}
		if _, _, err := p.do(t.Context(), nil); err != nil {
			t.Errorf("a usual one: %v", err)
		}
		time.Sleep(10 * time.Second)
		p.settled(time.Second)
		if used := p.server.RoomUsed(); used != 0 {
			t.Errorf("%d bytes are still taken", used)
		}
	})
}
