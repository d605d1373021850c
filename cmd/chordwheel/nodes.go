package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"net/url"
	"os"

	"github.com/spf13/cobra"

	"github.com/chordwheel/chordwheel/mesh/member"
)

// daemon is `chordwheel daemon`: one device in the foreground.
func (a *app) daemon() *cobra.Command {
	var listen []string
	var edgeAddress, admin string
	c := &cobra.Command{
		Use:   "daemon",
		Short: "Run one device",
		Long: `Run one device: its edge for applications and its spoke to the hub. It joins
a mesh with CHORDWHEEL_INVITE, or once with: chordwheel join INVITATION`,
		Example: "  chordwheel daemon\n  CHORDWHEEL_INVITE=chordwheel1:… chordwheel daemon --dir /data --edge 127.0.0.1:0",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			o, err := a.deviceOptions()
			if err == nil {
				err = foreignDir(o.dir, "device")
			}
			if err != nil {
				return err
			}
			override(&o.config.Edge, edgeAddress)
			override(&o.config.Admin, admin)
			if len(listen) > 0 {
				o.config.Listen, o.outside = listen, nil
			}
			d, err := openDevice(o)
			if err != nil {
				return a.inUse(c.Context(), err, o.dir)
			}
			if err := d.start(c.Context()); err != nil {
				return err
			}
			if text := o.config.Invite; text != "" && !d.Daemon.Status().Hub.Joined {
				if err := d.Join(c.Context(), text.Reveal()); err != nil {
					return errors.Join(joinError(err), d.close())
				}
			}
			if err := a.announceDevice(d); err != nil {
				return errors.Join(err, d.close())
			}
			<-c.Context().Done()
			return d.close()
		},
	}
	c.Flags().StringVar(&edgeAddress, "edge", "", "`HOST:PORT` for applications (default 127.0.0.1:7420)")
	c.Flags().StringVar(&admin, "admin", "", "`HOST:PORT` of the device's own page (default 127.0.0.1:7421)")
	c.Flags().StringArrayVar(&listen, "listen", nil, "`MULTIADDR` for other devices; may be repeated")
	return c
}

// deviceOptions are those of a device of its own, as against one of `up`.
func (a *app) deviceOptions() (deviceOptions, error) {
	dir, err := a.dataDir("device")
	if err != nil {
		return deviceOptions{}, err
	}
	config := defaultDevice(0, "127.0.0.1")
	inside, outside := config.Listen, defaultDevice(0, "0.0.0.0").Listen
	config.Listen = nil
	if err := load(&config, dir, a.environ); err != nil {
		return deviceOptions{}, usage("%w", err)
	}
	if config.Listen == nil {
		config.Listen = inside
	} else {
		outside = nil
	}
	if config.Name == "" {
		if config.Name, err = os.Hostname(); err != nil {
			config.Name = "device"
		}
	}
	log := a.logger(config.Log)
	a.warnOfVariables(log)
	return deviceOptions{dir: dir, config: config, outside: outside, environ: a.environ, log: log, say: a.err}, nil
}

func (a *app) announceDevice(d *device) error {
	ready := d.ready()
	if a.json {
		return oneLineJSON(a.out, map[string]any{"device": ready})
	}
	fmt.Fprintf(a.out, "%s\n\n  edge  %s\n  page  %s\n  data  %s\n", a.paint(green, "device "+ready.Name+" is ready"), ready.Edge, ready.Admin, ready.DataDir)
	if !d.Daemon.Status().Hub.Joined {
		fmt.Fprintf(a.out, "\nIt has not joined a mesh: run chordwheel join INVITATION --dir %s\n", ready.DataDir)
	}
	fmt.Fprintln(a.out)
	return nil
}

// orchestrator is `chordwheel orchestrator`: one hub in the foreground.
func (a *app) orchestrator() *cobra.Command {
	var listen []string
	var web, file, services string
	c := &cobra.Command{
		Use:   "orchestrator",
		Short: "Run the hub of a mesh",
		Long: `Run the hub: it holds the policy of a mesh, signs chains and takes reports in. It
is never in the path of a request. Devices join with what "chordwheel invite" prints.`,
		Example: "  chordwheel orchestrator --catalog catalogue.yaml\n  chordwheel orchestrator --listen /ip4/0.0.0.0/tcp/7411 --authority 0.0.0.0:7443",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			dir, err := a.dataDir("hub")
			if err != nil {
				return err
			}
			if err := foreignDir(dir, "hub"); err != nil {
				return err
			}
			config := defaultHub("127.0.0.1")
			if err := load(&config, dir, a.environ); err != nil {
				return usage("%w", err)
			}
			override(&config.Web, web)
			override(&config.Catalog, file)
			override(&config.Authority, services)
			if len(listen) > 0 {
				config.Listen = listen
			}
			log := a.logger(config.Log)
			a.warnOfVariables(log)
			h, err := openHub(hubOptions{dir: dir, config: config, log: log, say: a.err})
			if err != nil {
				return a.inUse(c.Context(), err, dir)
			}
			if err := h.start(c.Context()); err != nil {
				return err
			}
			if err := a.announceHub(h); err != nil {
				return errors.Join(err, h.close())
			}
			<-c.Context().Done()
			return h.close()
		},
	}
	c.Flags().StringVar(&web, "web", "", "`HOST:PORT` of the dashboard (default 127.0.0.1:7400)")
	c.Flags().StringVar(&services, "authority", "", "`HOST:PORT` of the ledger and the other services for devices (default 127.0.0.1:7443, or the next free one)")
	c.Flags().StringVar(&file, "catalog", "", "catalogue `FILE` (default: only what devices offer)")
	c.Flags().StringArrayVar(&listen, "listen", nil, "`MULTIADDR` for devices; may be repeated")
	return c
}

func (a *app) announceHub(h *hub) error {
	ready := h.ready()
	if a.json {
		return oneLineJSON(a.out, map[string]any{"hub": ready})
	}
	fmt.Fprintf(a.out, "%s\n\n  dashboard  %s\n  peer ID    %s\n", a.paint(green, "the hub is ready"), ready.URL, ready.PeerID)
	for _, address := range ready.Addrs {
		fmt.Fprintf(a.out, "  listens    %s\n", address)
	}
	fmt.Fprintf(a.out, "  services   %s\n", ready.Authority)
	switch {
	case member.OnlyLoopback(ready.Addrs):
		fmt.Fprintf(a.out, "\nOnly this machine can reach it; for others: --listen /ip4/0.0.0.0/tcp/%d --authority 0.0.0.0:%d\n", hubMeshPort, authorityPort)
	case loopbackURL(ready.Authority):
		fmt.Fprintf(a.out, "\n%s\n", a.paint(yellow, fmt.Sprintf("! only this machine can reach the services: devices elsewhere keep their receipts; for them: --authority 0.0.0.0:%d", authorityPort)))
	}
	fmt.Fprintf(a.out, "\nInvite a device with: chordwheel invite --dir %s\n\n", h.options.dir)
	return nil
}

// loopbackURL reports whether a URL leads to no other machine.
func loopbackURL(s string) bool {
	u, err := url.Parse(s)
	if err != nil {
		return false
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return u.Hostname() == "localhost" || err == nil && ip.IsLoopback()
}

// override lays a flag that was given over a setting.
func override(setting *string, flag string) {
	if flag != "" {
		*setting = flag
	}
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version", Example: "  chordwheel version --json", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
		return a.print(map[string]string{"version": version}, func(w io.Writer) { fmt.Fprintln(w, "chordwheel", version) })
	}}
}
