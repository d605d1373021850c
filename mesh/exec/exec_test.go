package exec_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/exec"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

func TestAnAttempt(t *testing.T) {
	d := &desk{run: echo, sign: func(t *wire.ExecTrailer) { t.Signature = []byte("signed") }}
	simulated(t, d, func(t *testing.T, p *pair) {
		for _, size := range []int{0, 1, 1024, 16 << 10, 16<<10 + 1, 300_000, 5 << 20} {
			payload := strings.Repeat("x", size)
			chunks, trailer, err := p.do(t.Context(), []byte(payload))
			if err != nil || len(chunks) != 1 || chunks[0] != payload {
				t.Fatalf("%d bytes: %d chunks, %v", size, len(chunks), err)
			}
			if trailer.Class != chain.OK || trailer.Used != 1 || string(trailer.Signature) != "signed" {
				t.Errorf("%+v", trailer)
			}
		}
		p.settled(time.Second)
		d.change(func() {
			if d.from != chain.PeerID(p.submitter.ID().String()) {
				t.Errorf("from %s", d.from)
			}
		})
		if a, r, z := d.counts(); a != 7 || r != 7 || z != 7 {
			t.Errorf("admitted %d, ran %d, released %d", a, r, z)
		}
	})
}

func TestARefusal(t *testing.T) {
	refusal := wire.ExecRefusal{Code: wire.ExecRevoked, Message: "the membership was ended", ComeBack: 5}
	d := &desk{refuse: &refusal}
	simulated(t, d, func(t *testing.T, p *pair) {
		for _, size := range []int{10, 8 << 20} {
			at := time.Now()
			chunks, _, err := p.do(t.Context(), make([]byte, size))
			var no *wire.ExecRefusal
			if !errors.As(err, &no) || *no != refusal || chunks != nil {
				t.Errorf("%v", err)
			}
			if took := time.Since(at); took > 50*time.Millisecond {
				t.Errorf("a refusal of %d bytes took %s", size, took)
			}
		}
		d.change(func() { d.refuse = errors.New("the database broke at page 7") })
		_, _, err := p.do(t.Context(), nil)
		if !errors.Is(err, &wire.ExecRefusal{Code: wire.ExecInternal}) || strings.Contains(err.Error(), "page") {
			t.Errorf("a defect crosses as %v", err)
		}
		p.settled(time.Second)
	})
}

func TestOnRealSockets(t *testing.T) {
	real(t, func() *desk { return &desk{run: echo} }, func(t *testing.T, p *pair) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		for _, size := range []int{0, 1024, 3 << 20} {
			payload := strings.Repeat("é", size/2)
			chunks, trailer, err := p.do(ctx, []byte(payload))
			if err != nil || trailer.Class != chain.OK || strings.Join(chunks, "") != payload {
				t.Fatalf("%d bytes: %d chunks, %+v, %v", size, len(chunks), trailer, err)
			}
		}
	})
}

func TestARefusalOnRealSockets(t *testing.T) {
	real(t, func() *desk { return &desk{refuse: wire.RefuseExec(wire.ExecBusy, "full")} }, func(t *testing.T, p *pair) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		if _, _, err := p.do(ctx, make([]byte, 8<<20)); !errors.Is(err, &wire.ExecRefusal{Code: wire.ExecBusy}) {
			t.Errorf("%v", err)
		}
	})
}

var _ exec.Executor = (*desk)(nil)
