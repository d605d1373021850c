package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chordwheel/chordwheel/daemon/control"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/store/datadir"
)

// joinPatience is how long a join may take, all addresses together.
const joinPatience = 40 * time.Second

func (a *app) join() *cobra.Command {
	return &cobra.Command{
		Use:   "join INVITATION",
		Short: "Join a mesh with an invitation",
		Long: `Join a mesh with the line that "chordwheel invite" printed on the hub's machine. It
works on a running device, and before one first starts. The invitation may also
stand in CHORDWHEEL_INVITE, or come on standard input where the argument is "-".`,
		Example: "  chordwheel join chordwheel1:…\n  ssh hub chordwheel invite | chordwheel join -",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			text, err := a.invitation(args)
			if err != nil {
				return err
			}
			ctx, cancel := context.WithTimeout(c.Context(), joinPatience)
			defer cancel()
			s, running, err := a.joinDevice(ctx, text)
			if err != nil {
				return err
			}
			return a.print(s.Hub, func(w io.Writer) {
				fmt.Fprintf(w, "joined mesh %s as %s; scopes: %s\n", s.Hub.Mesh, s.Name, join(s.Hub.Scopes))
				if !running {
					command := "chordwheel daemon"
					if a.dir != "" {
						command += " --dir " + a.dir
					}
					fmt.Fprintln(w, "start the device with:", command)
				}
			})
		},
	}
}

func (a *app) invitation(args []string) (string, error) {
	text := a.getenv("CHORDWHEEL_INVITE")
	if len(args) == 1 {
		text = args[0]
	}
	if text == "-" {
		b, err := io.ReadAll(io.LimitReader(a.in, 64<<10))
		if err != nil {
			return "", fmt.Errorf("read the invitation: %w", err)
		}
		text = string(b)
	}
	if strings.TrimSpace(text) == "" {
		return "", usage("there is no invitation; get one on the hub's machine with: chordwheel invite")
	}
	return strings.TrimSpace(text), nil
}

// joinDevice joins through the running daemon if there is one, else in this process.
func (a *app) joinDevice(ctx context.Context, text string) (s control.Status, running bool, err error) {
	o, err := a.deviceOptions()
	if err != nil {
		return s, false, err
	}
	n, err := reach(ctx, "device", []string{o.dir})
	var no *exit
	switch {
	case err == nil:
		return s, true, n.call(ctx, http.MethodPost, "/api/v1/join", map[string]string{"invitation": text}, &s)
	case errors.As(err, &no) && no.code != exitUnreachable:
		return s, false, err
	}
	if err := checkInvitation(text); err != nil {
		return s, false, err
	}
	o.config.Listen, o.outside, o.config.MDNS = nil, nil, false // nobody needs to find a device that leaves at once
	d, err := openDevice(o)
	if errors.Is(err, datadir.ErrLocked) {
		return s, false, fmt.Errorf("%w; it does not answer on its control socket", err)
	}
	if err != nil {
		return s, false, err
	}
	if err = d.Daemon.Start(ctx); err == nil {
		if err = d.Join(ctx, text); err == nil {
			s = d.Status()
		}
	}
	return s, false, errors.Join(joinError(err), d.close())
}

// checkInvitation refuses what can only fail, before a data directory is made
// for it.
func checkInvitation(text string) error {
	i, err := member.ParseInvitation(text)
	if err == nil {
		err = i.Current(time.Now())
	}
	if err != nil {
		return refused("refused: %w", err)
	}
	return nil
}

// joinError gives a failed join its exit code.
func joinError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, control.ErrRefused):
		return &exit{exitRefused, err}
	}
	return &exit{exitUnreachable, err}
}
