package exec_test

import (
	"bytes"
	"context"
	"io"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/exec"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// verifier admits what is signed, with the membership and head known from before, and
// signs what it answered: the least that an executor does.
type verifier struct {
	key   chain.Key
	known map[string]bool
}

func (v *verifier) Admit(_ context.Context, from chain.PeerID, open *wire.ExecOpen) (exec.Job, error) {
	signer, r, err := wire.OpenExecRequest(open.Request)
	if err != nil || signer != from {
		return nil, wire.RefuseExec(wire.ExecBadSignature, "%v", err)
	}
	for _, hash := range [][]byte{r.Membership, r.Head} {
		if !v.known[string(hash)] {
			return nil, wire.RefuseExec(wire.ExecNeed, "")
		}
	}
	return &verified{v, r}, nil
}

type verified struct {
	v *verifier
	r wire.ExecRequest
}

func (j *verified) Terms() exec.Terms {
	return exec.Terms{PayloadBytes: j.r.PayloadBytes, PayloadHash: j.r.PayloadHash}
}

func (j *verified) Run(ctx context.Context, payload []byte, emit exec.Emit) wire.ExecTrailer {
	return echo(ctx, payload, emit)
}

func (j *verified) Sign(t *wire.ExecTrailer) {
	t.Signature, _ = j.v.key.Private().Sign(append([]byte("chordwheel-exec-v1\n"), j.r.Nonce...))
}

func (j *verified) Release() {}

// BenchmarkExec measures, in one run and turn by turn: a raw echo of 1 KiB on a new
// stream; one signature and one verification; and an attempt that is an echo of the
// same bytes. The ratios are medians over the median of (echo + signature +
// verification), the least that a signed request can cost: x_payload from the first byte
// of the payload to the last of the answer, x_answer from before the request is signed,
// x_whole to the verified trailer.
func BenchmarkExec(b *testing.B) {
	for _, name := range []string{"tcp", "quic"} {
		b.Run(name, func(b *testing.B) { benchmark(b, transports[name]) })
	}
}

func benchmark(b *testing.B, address string) {
	submitter, executor := newKey(b), newKey(b)
	known := map[string]bool{string(wire.EnvelopeHash([]byte("membership"))): true, string(wire.EnvelopeHash([]byte("head"))): true}
	a, e := loopback(b, address, submitter), loopback(b, address, executor)
	p := link(b, &verifier{executor, known}, e, a)
	defer p.server.Close()
	p.serveOther()
	payload := bytes.Repeat([]byte("x"), 1024)
	r := wire.ExecRequest{Executor: executor.PeerID(), Membership: wire.EnvelopeHash([]byte("membership")), Head: wire.EnvelopeHash([]byte("head")),
		Body: chain.CIDOf([]byte("body")), Option: "peer", Scope: chain.DefaultScope, Primitive: chain.LLMChat, PayloadBytes: int64(len(payload)),
		TransactionID: "8b7c1a52-5a0c-4d0a-9a3e-0c5d4c1f6a11", Nonce: "0123456789abcdef", RequestHash: "sha256:" + string(bytes.Repeat([]byte("0"), 64)), RequestID: "r",
		Attempts: 8, Budget: 60_000, Hop: 1, Expires: chain.InstantOf(time.Now().Add(time.Hour))}
	var alone time.Duration // without signing and opening
	attempt := func() (answer, whole time.Duration) {
		at := time.Now()
		r.PayloadHash = wire.EnvelopeHash(payload)
		envelope, err := wire.SealExecRequest(submitter, r)
		if err != nil {
			b.Fatal(err)
		}
		s, err := a.NewStream(b.Context(), e.ID(), exec.Protocol)
		if err != nil {
			b.Fatal(err)
		}
		begun := time.Now()
		trailer, err := exec.Do(b.Context(), s, &wire.ExecOpen{Request: envelope}, payload, func([]byte, bool, bool) error {
			answer, alone = time.Since(at), time.Since(begun)
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
		if ok, err := executor.Private().GetPublic().Verify(append([]byte("chordwheel-exec-v1\n"), r.Nonce...), trailer.Signature); !ok || err != nil {
			b.Fatal("the signature does not fit")
		}
		return answer, time.Since(at)
	}
	signing := func() time.Duration {
		at := time.Now()
		envelope, err := submitter.Seal(chain.DomainExecRequest, payload[:600])
		if err != nil {
			b.Fatal(err)
		}
		if _, _, err := chain.Open(chain.DomainExecRequest, envelope); err != nil {
			b.Fatal(err)
		}
		return time.Since(at)
	}
	raw := func() time.Duration {
		at := time.Now()
		s, err := a.NewStream(b.Context(), e.ID(), other)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Write(payload); err != nil {
			b.Fatal(err)
		}
		_ = s.CloseWrite()
		if _, err := io.ReadFull(s, make([]byte, len(payload))); err != nil {
			b.Fatal(err)
		}
		took := time.Since(at)
		_ = s.Close()
		return took
	}
	for range 50 { // identify, windows, caches
		attempt()
		raw()
	}
	var raws, signs, payloads, answers, wholes []time.Duration
	var cpu, cpuRaw time.Duration
	for b.Loop() {
		c0 := processTime()
		raws = append(raws, raw())
		c1 := processTime()
		answer, whole := attempt()
		cpu, cpuRaw = cpu+processTime()-c1, cpuRaw+c1-c0
		payloads, answers, wholes = append(payloads, alone), append(answers, answer), append(wholes, whole)
		signs = append(signs, signing())
	}
	floor := median(raws) + median(signs)
	b.ReportMetric(float64(median(raws).Nanoseconds())/1e3, "us_raw")
	b.ReportMetric(float64(median(signs).Nanoseconds())/1e3, "us_sign+verify")
	b.ReportMetric(float64(median(payloads))/float64(floor), "x_payload")
	b.ReportMetric(float64(median(answers))/float64(floor), "x_answer")
	b.ReportMetric(float64(median(wholes))/float64(floor), "x_whole")
	b.ReportMetric(float64(cpu.Microseconds())/float64(len(raws)), "cpu_us")
	b.ReportMetric(float64(cpu)/float64(cpuRaw), "x_cpu_raw")
	in, out := p.bytes(attempt)
	b.ReportMetric(float64(out-len(payload)), "bytes_beside_payload")
	b.ReportMetric(float64(in-len(payload)), "bytes_beside_answer")
}

func median(all []time.Duration) time.Duration {
	slices.Sort(all)
	return all[len(all)/2]
}

// processTime is the CPU time of both ends: they share the process.
func processTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// bytes counts what one attempt puts on its stream, both ways, as the executor's
// side sees it.
func (p *pair) bytes(attempt func() (time.Duration, time.Duration)) (back, there int) {
	done := make(chan counted, 1)
	p.executor.SetStreamHandler(exec.Protocol, func(s network.Stream) {
		c := &counted{Stream: s}
		p.server.Serve(c)
		done <- *c
	})
	attempt()
	c := <-done
	return c.out, c.in
}

type counted struct {
	network.Stream
	in, out int
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Stream.Read(b)
	c.in += n
	return n, err
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.Stream.Write(b)
	c.out += n
	return n, err
}
