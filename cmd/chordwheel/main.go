// Command chordwheel is the mesh of one's own devices and paid services in one
// binary: `up` runs a hub and devices here, `orchestrator` and `daemon` run one
// part each, the other verbs speak to them. This package owns flags,
// configuration, wiring and shutdown, and no rule of the product: whatever needs a
// test of logic belongs below.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// version is stamped by the build.
var version = "dev"

// Exit codes that scripts may rely on.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitUnreachable = 3
	exitRefused     = 4
)

// exit is an error that decides the exit code.
type exit struct {
	code int
	err  error
}

func (e *exit) Error() string { return e.err.Error() }
func (e *exit) Unwrap() error { return e.err }

func usage(format string, args ...any) error { return &exit{exitUsage, fmt.Errorf(format, args...)} }

func unreachable(format string, args ...any) error {
	return &exit{exitUnreachable, fmt.Errorf(format, args...)}
}

func refused(format string, args ...any) error {
	return &exit{exitRefused, fmt.Errorf(format, args...)}
}

func main() {
	release := leaveHeadroom(os.Getenv)
	code := run(os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr)
	release()
	os.Exit(code)
}

// run is the whole program with its surroundings as arguments. The first
// signal ends it in order, a second one at once.
func run(args, environ []string, stdin io.Reader, stdout, stderr io.Writer) int {
	leaveNoCore()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal meets the default handler
	a := &app{environ: environ, in: stdin, out: stdout, err: stderr}
	root := a.root()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	for line := range strings.Lines(strings.TrimSpace(err.Error())) {
		fmt.Fprintf(stderr, "chordwheel: %s\n", strings.TrimSpace(line))
	}
	var e *exit
	if errors.As(err, &e) {
		return e.code
	}
	return exitFailed
}

// app is what every command shares.
type app struct {
	environ  []string
	in       io.Reader
	out, err io.Writer
	dir      string // --dir
	json     bool   // --json
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "chordwheel",
		Short: "One local address for all your devices and paid services",
		Long: `chordwheel makes one mesh of your devices and the services you pay for.
Applications talk to one local address in the OpenAI dialect; the work runs where
your policy says, with failover, and goes on when the hub is away.

Start here:

  chordwheel up                       a hub and a device on this machine
  chordwheel chat "what can you do?"  ask through the edge`,
		SilenceUsage: true, SilenceErrors: true,
		Version: version,
		Args:    verb,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.PersistentFlags().StringVar(&a.dir, "dir", a.getenv("CHORDWHEEL_DIR"), "data `DIR` of the node (default: a folder of its own below the user's data directory)")
	root.PersistentFlags().BoolVar(&a.json, "json", false, "print JSON")
	root.SetVersionTemplate("chordwheel {{.Version}}\n")
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return usage("%w; see: %s --help", wrongFlag(err), c.CommandPath())
	})
	root.AddCommand(a.up(), a.orchestrator(), a.daemon(), a.invite(), a.join(), a.revoke(), a.approve(), a.status(), a.doctor(), a.models(), a.peers(), a.chords(), a.trace(), a.jobs(), a.ping(), a.netcheck(), a.operations(), a.pause(), a.resume(), a.chain(), a.run(), a.chat(), a.catalog(), a.keys(), a.key(), a.apps(), a.usage(),
		a.receipts(), a.gate(), a.hash(), a.did(), a.versionCommand(), a.simulate(), a.checkStore())
	explainCompletion(root)
	strictArgs(root)
	return root
}

// verb refuses an unknown verb below c, with those that look like it.
func verb(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	c.SuggestionsMinimumDistance = 2
	if like := c.SuggestionsFor(args[0]); len(like) > 0 {
		return fmt.Errorf("unknown command %q for %q; did you mean %s?", args[0], c.CommandPath(), strings.Join(like, " or "))
	}
	return fmt.Errorf("unknown command %q for %q", args[0], c.CommandPath())
}

// explainCompletion has the generated command refuse shells that it does not know, and
// say how each script is used.
func explainCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	c, _, err := root.Find([]string{"completion"})
	if err != nil {
		return
	}
	c.Args = verb
	c.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	c.Example = "  source <(chordwheel completion bash)\n  chordwheel completion fish > ~/.config/fish/completions/chordwheel.fish"
}

// strictArgs gives wrong arguments of any command the exit code of wrong use.
func strictArgs(c *cobra.Command) {
	if inner := c.Args; inner != nil {
		c.Args = func(c *cobra.Command, args []string) error {
			if err := inner(c, args); err != nil {
				return usage("%w; see: %s --help", wrongArguments(c, args, err), c.CommandPath())
			}
			return nil
		}
	}
	for _, sub := range c.Commands() {
		strictArgs(sub)
	}
}

func (a *app) getenv(name string) string {
	value := ""
	for _, e := range a.environ {
		if k, v, ok := strings.Cut(e, "="); ok && k == name {
			value = v // the last one holds, as for exec
		}
	}
	return value
}
