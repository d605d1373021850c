// Command bench measures what the edge costs: it drives one provider straight,
// through a lean proxy, through the standard library's reverse proxy, through the real
// chordwheel binary, through one device of it on another, and through a proxy with
// the same duties where one is named, in turn, and prints the ratios. Each of
// them is a process of its own, so that their processor time can be told apart.
// It meets the product from outside only: its command line, its HTTP, its
// processor time.
//
// It ends when the process that started it does, and so does all that it started.
//
// Figures of one machine swing; only the ratios within one run mean anything.
// Streams that do not arrive whole, and requests that fail, make it exit 1.
// Slow figures do not.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// settings are what the command line decides.
type settings struct {
	binary  string
	rounds  int
	slice   time.Duration
	streams int
	walk    string
	exec    string
	duties  string
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	var err error
	if len(os.Args) > 1 && os.Args[1] == "serve" {
		err = serveRole(ctx, os.Args[2:], os.Stdin, os.Stdout)
	} else {
		ctx, cancel := withParent(ctx)
		err = run(ctx, os.Args[1:], os.Stdout)
		cancel()
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var s settings
	fs := flag.NewFlagSet("bench", flag.ContinueOnError)
	fs.StringVar(&s.binary, "binary", "bin/chordwheel", "the chordwheel to measure")
	fs.IntVar(&s.rounds, "rounds", 5, "how often each target is driven")
	fs.DurationVar(&s.slice, "slice", 2*time.Second, "how long each target is driven per round; below 1s processor time is too coarse")
	fs.IntVar(&s.streams, "streams", 10_000, "streams sent through the edge to see that none is cut")
	fs.StringVar(&s.walk, "walk", "./chain/walk", "the package whose benchmark says what an attempt costs; empty to leave it out")
	fs.StringVar(&s.exec, "exec", "./mesh/exec", "the package whose benchmark compares an attempt at a peer with a raw echo; empty to leave it out")
	fs.StringVar(&s.duties, "duties", os.Getenv("DUTIES_PROXY"), "a proxy with the duties of the edge to compare it with: its program, or the folder of its Go code")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if s.rounds < 1 || s.slice <= 0 || s.streams < 0 {
		return errors.New("rounds and slice must be positive, streams not negative")
	}
	targets, stop, err := startTargets(ctx, s.binary, s.duties)
	if err != nil {
		return err
	}
	defer stop()
	sum := summary{duties: s.duties}
	var failed error
	for _, shape := range []shape{{streamed: false, conns: 1}, {streamed: false, conns: 16}, {streamed: true, conns: 1}, {streamed: true, conns: 16}} {
		figures, err := compare(ctx, targets, shape, s.rounds, s.slice)
		if err != nil {
			return errors.Join(failed, err)
		}
		printTable(out, shape, targets, figures)
		sum.add(shape, figures)
		failed = errors.Join(failed, faults(targets, figures))
	}
	if err := sum.account(ctx, targets, s); err != nil {
		return errors.Join(failed, err)
	}
	if sum.streams = s.streams; s.streams > 0 {
		if sum.cut, err = countCut(ctx, targets[edge], s.streams); err != nil {
			return errors.Join(failed, err)
		}
		if sum.cut > 0 {
			failed = errors.Join(failed, fmt.Errorf("%d streams were cut", sum.cut))
		}
	}
	if s.walk != "" {
		walk, err := measureWalk(ctx, s.walk)
		if err != nil {
			return errors.Join(failed, err)
		}
		sum.walk = &walk
	}
	if s.exec != "" {
		if sum.exec, err = measureExec(ctx, s.exec); err != nil {
			return errors.Join(failed, err)
		}
	}
	sum.print(out)
	return failed
}

// account measures the two routes of the edge that carry no chat.
func (sum *summary) account(ctx context.Context, targets []target, s settings) (err error) {
	beside := append([]target{targets[straight], inletOf(targets[edge])}, targets[min(duties, len(targets)):]...)
	sum.inletShapes = []shape{{conns: 1}, {conns: 16}}
	for _, shape := range sum.inletShapes {
		figures, err := compare(ctx, beside, shape, s.rounds, s.slice)
		if err == nil {
			err = faults(beside, figures)
		}
		if err != nil {
			return err
		}
		sum.inlet = append(sum.inlet, figures)
	}
	sum.outlet, err = measureOutlet(ctx, targets[edge], s.rounds, s.slice)
	return err
}

// serveRole runs one of the programs that the edge is compared with: it prints
// its address and serves until the context or its standard input ends, which
// happens at the latest when the process that started it is gone.
func serveRole(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("serve needs a role: provider, lean, reverse or bare")
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		io.Copy(io.Discard, in)
		stop()
	}()
	defer context.AfterFunc(ctx, func() { ln.Close() })()
	fmt.Fprintf(out, "http://%s\n", ln.Addr())

	upstream := ""
	if len(args) > 1 {
		upstream = args[1]
	}
	switch args[0] {
	case "provider":
		err = serveProvider(ln, provider{chunks: 20})
	case "lean":
		err = http.Serve(ln, newLean(upstream))
	case "reverse":
		err = http.Serve(ln, newReverse(upstream))
	case "bare":
		err = serveBare(ln, upstream) // the file of its lines
	default:
		return fmt.Errorf("role %q is none of provider, lean, reverse, bare", args[0])
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}
