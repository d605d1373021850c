package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// maxDevices bounds `up`; beyond it the ports run out.
const maxDevices = 100

// readyWait is how long `up` waits for a device's first chain.
const readyWait = 10 * time.Second

// hubReady and deviceReady are what is printed with --json when all is ready.
// docs/commands.md fixes their names.
type hubReady struct {
	URL       string       `json:"url"`
	PeerID    chain.PeerID `json:"peer_id"`
	Addrs     []string     `json:"addrs"`
	Authority string       `json:"authority"`
}

type deviceReady struct {
	Name     string         `json:"name"`
	Edge     string         `json:"edge"`
	Admin    string         `json:"admin"`
	Key      string         `json:"key"`
	DataDir  string         `json:"data_dir"`
	DeviceID chain.DeviceID `json:"device_id"`
	PeerID   chain.PeerID   `json:"peer_id"`
}

func (h *hub) ready() hubReady {
	return hubReady{URL: h.url(), PeerID: h.node.PeerID(), Addrs: h.node.Addrs(), Authority: h.authorityURL()}
}

func (d *device) ready() deviceReady {
	return deviceReady{Name: d.options.config.Name, Edge: d.edgeURL(), Admin: d.adminURL(), Key: d.key.Reveal(), DataDir: d.options.dir, DeviceID: d.id, PeerID: d.peer}
}

func (a *app) up() *cobra.Command {
	var n int
	var lan bool
	var file string
	c := &cobra.Command{
		Use:   "up",
		Short: "Run a hub and devices on this machine",
		Long: `Run a hub and devices in one process, ready in a moment, with nothing to
configure. Without a catalogue the work goes to model servers found on this
machine, and to the small model that is built in. Stop with Ctrl-C.`,
		Example: "  chordwheel up\n  chordwheel up --devices 3 --catalog catalogue.yaml\n  chordwheel up --lan",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if n < 1 || n > maxDevices {
				return usage("--devices must be 1 to %d, is %d", maxDevices, n)
			}
			dir, err := a.dataDir("up")
			if err != nil {
				return err
			}
			if err := foreignDir(dir, "up"); err != nil {
				return err
			}
			host := "127.0.0.1"
			if lan {
				host = "0.0.0.0"
			}
			u := &upRun{app: a, dir: dir, host: host, catalog: file, began: time.Now()}
			if err := u.start(c.Context(), n); err != nil {
				return errors.Join(a.inUse(c.Context(), err, dir), u.close())
			}
			if err := u.announce(); err != nil {
				return errors.Join(err, u.close())
			}
			<-c.Context().Done()
			return u.close()
		},
	}
	c.Flags().IntVar(&n, "devices", 1, "how many devices `N` to run")
	c.Flags().BoolVar(&lan, "lan", false, "let other machines reach the mesh")
	c.Flags().StringVar(&file, "catalog", "", "catalogue `FILE` (default: what is found on this machine)")
	return c
}

// upRun is one `up` while it runs.
type upRun struct {
	*app
	dir, host, catalog string
	began              time.Time
	hub                *hub
	devices            []*device
	found              []wire.LocalOption // model servers on this machine
}

func (u *upRun) start(ctx context.Context, n int) error {
	if err := os.MkdirAll(u.dir, 0o700); err != nil {
		return fmt.Errorf("make the data directory: %w", err)
	}
	if err := u.settings(n); err != nil {
		return usage("%w", err)
	}
	found := make(chan []wire.LocalOption, 1)
	go func() { found <- discover(ctx) }() // ends within its own time limit
	if err := u.startHub(ctx); err != nil {
		<-found
		return err
	}
	u.found = <-found
	locals := u.found
	for i := range n {
		d, err := u.openDevice(i, locals)
		if err != nil {
			return fmt.Errorf("device %s: %w", deviceName(i), err)
		}
		u.devices = append(u.devices, d)
		locals = nil // what runs on this machine is the first device's
	}
	all, ctx := errgroup.WithContext(ctx)
	for i, d := range u.devices {
		all.Go(func() error {
			if err := u.startDevice(ctx, d); err != nil {
				return fmt.Errorf("device %s: %w", deviceName(i), err)
			}
			return nil
		})
	}
	return all.Wait()
}

// settings names everything that is wrong with the settings of the hub and of n devices,
// in one line: what the environment says to all of them once.
func (u *upRun) settings(n int) error {
	var wrong, texts []string
	add := func(who string, err error) {
		if err == nil {
			return
		}
		text := strings.TrimPrefix(err.Error(), wrongSettings)
		if !slices.Contains(texts, text) {
			wrong, texts = append(wrong, who+": "+text), append(texts, text)
		}
	}
	hub, err := u.hubConfig()
	if err == nil {
		err = hub.validate()
	}
	add("the hub", err)
	for i := range n {
		config, err := u.deviceConfig(i)
		if err == nil {
			err = (&device{options: deviceOptions{dir: filepath.Join(u.dir, deviceName(i)), config: config, makeKey: true}}).settings()
		}
		add("device "+deviceName(i), err)
	}
	return oneLine(wrong)
}

// hubConfig is the hub's configuration.
func (u *upRun) hubConfig() (hubConfig, error) {
	config := defaultHub(u.host)
	if err := load(&config, filepath.Join(u.dir, hubName), u.environ); err != nil {
		return config, err
	}
	if u.catalog != "" {
		config.Catalog = u.catalog
	}
	return config, nil
}

// deviceConfig is the configuration of device i.
func (u *upRun) deviceConfig(i int) (deviceConfig, error) {
	config := defaultDevice(i, u.host)
	config.Name = deviceName(i)
	if err := load(&config, filepath.Join(u.dir, config.Name), u.environ); err != nil {
		return config, err
	}
	config.Edge, config.Admin = apart(config.Edge, i, u.environ, "CHORDWHEEL_EDGE"), apart(config.Admin, i, u.environ, "CHORDWHEEL_ADMIN")
	if config.SpoolDir != "" {
		config.SpoolDir = filepath.Join(config.SpoolDir, deviceName(i)) // one for each device
	}
	return config, nil
}

func (u *upRun) startHub(ctx context.Context) (err error) {
	dir := filepath.Join(u.dir, hubName)
	config, err := u.hubConfig()
	if err != nil {
		return usage("%w", err)
	}
	if slices.Equal(config.Listen, defaultHub(u.host).Listen) {
		config.Listen = meshAddresses(u.host, meshPort(u.host, hubMeshPort, u.err))
	}
	log := u.logger(config.Log)
	u.warnOfVariables(log) // here once, for the devices too
	if u.hub, err = openHub(hubOptions{dir: dir, config: config, nextPort: true, log: log.With("node", hubName), say: u.err}); err != nil {
		return err
	}
	if err := u.hub.start(ctx); err != nil {
		u.hub = nil // it closed itself
		return err
	}
	return nil
}

func (u *upRun) openDevice(i int, locals []wire.LocalOption) (*device, error) {
	name := deviceName(i)
	dir := filepath.Join(u.dir, name)
	config, err := u.deviceConfig(i)
	if err != nil {
		return nil, usage("%w", err)
	}
	if slices.Equal(config.Listen, defaultDevice(i, u.host).Listen) {
		config.Listen = meshAddresses(u.host, meshPort(u.host, devMeshPort+10*i, u.err))
	}
	return openDevice(deviceOptions{dir: dir, config: config, environ: u.environ, ownID: true, makeKey: true, nextPort: true, locals: locals,
		hubs: u.hub.node.Addrs, log: u.logger(config.Log).With("node", name), say: u.err})
}

// apart gives device i a port of its own where the environment, which all devices share, has one:
// else they would change places from start to start, with who was quicker.
func apart(address string, i int, environ []string, name string) string {
	if !slices.Contains(environ, name+"="+address) {
		return address
	}
	host, port, err := net.SplitHostPort(address)
	n, err2 := strconv.Atoi(port)
	if err != nil || err2 != nil || n == 0 {
		return address
	}
	return net.JoinHostPort(host, strconv.Itoa(n+portStep*i))
}

// startDevice brings a device to life, enrols it the first time, and waits for
// its first chain or the reason why there is none.
func (u *upRun) startDevice(ctx context.Context, d *device) error {
	if err := d.start(ctx); err != nil {
		return err
	}
	if s := d.Daemon.Status(); !s.Hub.Joined || s.Hub.Mesh != u.hub.mesh {
		invitation, err := u.hub.Invite(ctx, inviteOnce())
		if err != nil {
			return err
		}
		if err := d.Join(ctx, invitation.Text); err != nil {
			return err
		}
	}
	select {
	case <-d.Visited(): // not when it holds a chain, which a device that comes again does before it found the hub
	case <-time.After(readyWait):
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// announce prints the ready line.
func (u *upRun) announce() error {
	var all struct {
		Hub     hubReady      `json:"hub"`
		Devices []deviceReady `json:"devices"`
	}
	all.Hub = u.hub.ready()
	for _, d := range u.devices {
		all.Devices = append(all.Devices, d.ready())
	}
	if u.json {
		return oneLineJSON(u.out, all)
	}
	w := u.out
	state := fmt.Sprintf("%s in %.2f s", u.paint(green, "chordwheel is ready"), time.Since(u.began).Seconds())
	for _, d := range u.devices {
		if d.Ready() != nil {
			state = u.paint(yellow, "chordwheel runs, but not every device can answer yet: see below")
		}
	}
	fmt.Fprintf(w, "\n%s\n\n", state)
	fmt.Fprintf(w, "  dashboard  %s\n", all.Hub.URL)
	for _, d := range all.Devices {
		fmt.Fprintf(w, "  device %-3s %s   key %s\n", d.Name, d.Edge, d.Key)
	}
	for _, l := range u.found {
		fmt.Fprintf(w, "  found      %s\n", l.Option.ID)
	}
	for _, d := range u.devices {
		for _, problem := range d.Status().Problems {
			fmt.Fprintf(w, "\n%s\n", u.paint(yellow, "! "+d.options.config.Name+": "+problem))
		}
	}
	fmt.Fprintf(w, "\nAsk something, in another terminal:\n\n  %s chat \"what can you do?\"\n\nor with any OpenAI client: base URL %s, model auto.\nStop with Ctrl-C.\n\n", u.self(), all.Devices[0].Edge)
	return nil
}

// self is how this program is started from where the user is: by its name where
// that finds it, else as it was started.
func (a *app) self() string {
	if found, err := exec.LookPath("chordwheel"); err == nil && found != "" {
		return "chordwheel"
	}
	return os.Args[0]
}

// oneLineJSON writes v on one line, for programs that wait for it.
func oneLineJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// close ends the devices side by side, then the hub.
func (u *upRun) close() error {
	var all errgroup.Group
	for _, d := range u.devices {
		all.Go(d.close)
	}
	err := all.Wait()
	if u.hub != nil {
		err = errors.Join(err, u.hub.close())
	}
	return err
}
