package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// startDuties starts the proxy to beat: a program of its own that owes what the edge owes,
// token, hashes, a signed receipt in a synced file, and nothing else. path is the program or
// a folder with its Go code; it takes -addr, -upstream, -duties all and -spool.
func startDuties(ctx context.Context, path, dir, provider string) (target, []*child, error) {
	dir = filepath.Join(dir, "duties")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return target{}, nil, err
	}
	if info, err := os.Stat(path); err != nil {
		return target{}, nil, fmt.Errorf("the proxy with duties: %w", err)
	} else if info.IsDir() {
		program := filepath.Join(dir, "program")
		build := exec.CommandContext(ctx, "go", "build", "-o", program, ".")
		build.Dir = path
		if out, err := build.CombinedOutput(); err != nil {
			return target{}, nil, fmt.Errorf("build the proxy with duties: %w: %s", err, out)
		}
		path = program
	}
	addr, err := freeAddress()
	if err != nil {
		return target{}, nil, err
	}
	c, err := startSilent(ctx, dir, path, "-addr", addr, "-upstream", provider, "-duties", "all", "-spool", filepath.Join(dir, "spool.jsonl"))
	if err != nil {
		return target{}, nil, err
	}
	t := target{name: "duties", base: "http://" + addr, model: "small", pid: c.cmd.Process.Pid, words: c.lastWords}
	if err := untilAnswered(ctx, t); err != nil {
		return target{}, []*child{c}, fmt.Errorf("the proxy with duties answers nothing: %w: %s", err, c.lastWords())
	}
	return t, []*child{c}, nil
}

// freeAddress gives one whose port nobody has, and which the system gives to no connection
// before the program has it: it lies below what Linux, macOS and Windows choose from.
func freeAddress() (addr string, err error) {
	for range 100 {
		addr = fmt.Sprintf("127.0.0.1:%d", 12000+rand.IntN(18000))
		var ln net.Listener
		if ln, err = net.Listen("tcp", addr); err == nil {
			return addr, ln.Close()
		}
	}
	return "", err
}

// outletSizes are how many callers report at once.
var outletSizes = []int{1, 8, 64}

// outletFigure compares reports of finished chats, each acknowledged when its receipt is
// synced, with a bare group commit of lines of that size at the same number of callers, and
// with the same commit behind a handler that reads the body and does nothing else.
type outletFigure struct {
	callers int
	rate    float64 // outlets a second
	bare    float64 // lines a second
	http    float64 // lines a second behind the handler
	ratio   float64 // of the rate to bare: median of the rounds, as all below
	fsync   float64 // p50 of an outlet over that of a bare append
	beside  float64 // of the rate to http
	slower  float64 // p50 of an outlet over that of the handler
}

// inletOf and outletOf are the other two routes of the edge that t is.
func inletOf(t target) target {
	t.name, t.path, t.want = "inlet", "/v1/inlet", `"transaction_id"`
	t.body = `{"mode":"auto","model":"auto",` + messages + `}`
	return t
}

func outletOf(t target) target {
	t.name, t.path, t.want = "outlet", "/v1/outlet", `"ack":true`
	t.body = fmt.Sprintf(`{"token_id":"","request_hash":"sha256:%064d","agent_model_id":"bench/small","status":"ok","response":%q}`, 7, answer+answer+answer+answer+answer+answer+answer)
	return t
}

// measureOutlet drives the floors and the outlet in turn.
func measureOutlet(ctx context.Context, t target, rounds int, slice time.Duration) (all []outletFigure, err error) {
	dir, err := os.MkdirTemp("", "chordwheel-bench-bare-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	floor, err := newBare(filepath.Join(dir, "bare"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, floor.close()) }()
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	handler, base, err := start(ctx, dir, self, "serve", "bare", filepath.Join(dir, "handled"))
	if err != nil {
		return nil, err
	}
	defer handler.stop()
	behind := outletOf(target{name: "handler", base: base, pid: handler.cmd.Process.Pid})
	for _, callers := range outletSizes {
		c := newCrowd(outletOf(t), shape{conns: callers})
		defer c.close()
		h := newCrowd(behind, shape{conns: callers})
		defer h.close()
		var taken [][]figure
		for range rounds {
			bare, handled, got := floor.drive(ctx, callers, during(slice)), measure(ctx, behind, h, slice), measure(ctx, t, c, slice)
			if failed := errors.Join(bare.last, handled.last, got.last); failed != nil {
				return nil, fmt.Errorf("an outlet or what it is compared with failed: %w", failed)
			}
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			taken = append(taken, []figure{bare, handled, got})
		}
		rate := func(i int) float64 { return median(taken, func(r []figure) float64 { return r[i].rate }) }
		all = append(all, outletFigure{
			callers: callers,
			rate:    rate(2),
			bare:    rate(0),
			http:    rate(1),
			ratio:   median(taken, func(r []figure) float64 { return r[2].rate / r[0].rate }),
			fsync:   median(taken, func(r []figure) float64 { return r[2].p50 / r[0].p50 }),
			beside:  median(taken, func(r []figure) float64 { return r[2].rate / r[1].rate }),
			slower:  median(taken, func(r []figure) float64 { return r[2].p50 / r[1].p50 }),
		})
	}
	return all, nil
}

func (s *summary) printDuties(out io.Writer) {
	if s.duties == "" {
		fmt.Fprintln(out, "no proxy with duties to compare with: name its folder or program with -duties or DUTIES_PROXY")
	} else {
		fmt.Fprintln(out, "the edge with all its duties, beside a proxy with the same (aim: 0.90x or less)")
		for i, rounds := range s.rounds {
			fmt.Fprintf(out, "  %s: added p50 %s, cpu %s, %s and %s MiB\n", s.shapes[i],
				ratio(median(rounds, func(r []figure) float64 { return share(added(r, edge), added(r, duties)) })),
				ratio(median(rounds, func(r []figure) float64 { return r[edge].cpu / r[duties].cpu })),
				number(median(rounds, func(r []figure) float64 { return r[edge].memory })),
				number(median(rounds, func(r []figure) float64 { return r[duties].memory })))
		}
	}
	for i, rounds := range s.inlet {
		fmt.Fprintf(out, "inlet, %s: added p50 %s ms", s.inletShapes[i], number(median(rounds, func(r []figure) float64 { return added(r, 1) })))
		if s.duties != "" {
			fmt.Fprintf(out, ", %s of what that proxy adds (aim: 1.00x or less)", ratio(median(rounds, func(r []figure) float64 { return share(added(r, 1), added(r, 2)) })))
		}
		fmt.Fprintln(out)
	}
	for _, o := range s.outlet {
		fmt.Fprintf(out, "outlet, %d at once: %s a second, %s of a bare group commit (%s a second); p50 %s of it", o.callers, number(o.rate), ratio(o.ratio), number(o.bare), ratio(o.fsync))
		switch o.callers {
		case 1:
			fmt.Fprint(out, " (aim: p50 2.00x or less)")
		case 64:
			fmt.Fprint(out, " (aim: rate 0.90x or more)")
		}
		fmt.Fprintf(out, "\n  beside that commit behind a bare handler (%s a second): rate %s, p50 %s\n", number(o.http), ratio(o.beside), ratio(o.slower))
	}
}
