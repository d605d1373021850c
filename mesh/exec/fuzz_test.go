package exec_test

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/exec"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// tape is a stream whose other end has said all it will.
type tape struct {
	network.Stream
	in  *bytes.Reader
	out bytes.Buffer
}

func (s *tape) Read(b []byte) (int, error)                   { return s.in.Read(b) }
func (s *tape) Write(b []byte) (int, error)                  { return s.out.Write(b) }
func (s *tape) CloseWrite() error                            { return nil }
func (s *tape) Close() error                                 { return nil }
func (s *tape) Reset() error                                 { return nil }
func (s *tape) ResetWithError(network.StreamErrorCode) error { return nil }
func (s *tape) SetDeadline(time.Time) error                  { return nil }
func (s *tape) SetReadDeadline(time.Time) error              { return nil }
func (s *tape) SetWriteDeadline(time.Time) error             { return nil }

// Whatever a submitter sends: no panic, a job runs with the payload that was
// named and no other, all room comes back, and what is answered can be read.
func FuzzSubmitter(f *testing.F) {
	hello, err := wire.Encode(opening(f, []byte("hello")))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(append(framed(hello), "hello"...))
	f.Add(append(framed(hello), "hellooooo\x05"...))
	f.Add(append(framed(hello), "hallo"...))
	f.Add([]byte{0x80, 0x80, 0x80})
	f.Fuzz(func(t *testing.T, b []byte) {
		d := &desk{run: echo}
		s := exec.NewServer(d, slog.New(slog.DiscardHandler))
		stream := &tape{in: bytes.NewReader(b)}
		err := s.ServeAs("peer", stream)
		s.Close()
		admitted, ran, released := d.counts()
		if ran > 0 && !bytes.Contains(b, d.got) {
			t.Fatal("the job ran with what was not sent")
		}
		if s.RoomUsed() != 0 || admitted != released {
			t.Fatalf("%d bytes are still taken, %d of %d were released", s.RoomUsed(), released, admitted)
		}
		if err != nil {
			return
		}
		for r := bytes.NewReader(stream.out.Bytes()); r.Len() > 0; {
			if err := wire.Read(r, wire.MaxExecReply, new(wire.ExecReply)); err != nil {
				t.Fatalf("an answer that nobody can read: %v", err)
			}
		}
	})
}

// Whatever an executor sends: no panic, and an answer has a trailer or an error.
func FuzzExecutor(f *testing.F) {
	var b bytes.Buffer
	for _, r := range []wire.ExecReply{{Data: &wire.ExecData{Bytes: []byte("a"), Part: true}}, {Data: &wire.ExecData{Bytes: []byte("b")}}, {Trailer: &wire.ExecTrailer{Class: chain.OK}}} {
		if err := wire.Write(&b, &r); err != nil {
			f.Fatal(err)
		}
		f.Add(bytes.Clone(b.Bytes()))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		size := 0
		trailer, err := exec.Take(&tape{in: bytes.NewReader(b)}, func(data []byte, _, _ bool) error { size += len(data); return nil })
		var no *wire.ExecRefusal
		if err == nil && !trailer.Class.Known() || err != nil && !errors.Is(err, exec.ErrBroken) && !errors.As(err, &no) {
			t.Fatalf("%+v, %v", trailer, err)
		}
		if size > len(b) {
			t.Fatalf("%d bytes came of %d", size, len(b))
		}
	})
}

// Whatever grants come, no more is granted than was sent.
func FuzzGrants(f *testing.F) {
	f.Add([]byte{1, 2, 3}, int64(10))
	f.Add([]byte{0x80, 0x80, 0x04}, int64(exec.Window))
	f.Fuzz(func(t *testing.T, b []byte, sent int64) {
		sent = min(max(sent, 0), exec.Window)
		ahead, err := exec.ReadGrants(bytes.NewReader(b), sent)
		if ahead < 0 || ahead > sent || err == nil || errors.Is(err, io.EOF) && len(b) == 0 && ahead != sent {
			t.Fatalf("%d ahead of %d, %v", ahead, sent, err)
		}
	})
}
