package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon"
	"github.com/chordwheel/chordwheel/daemon/adapter"
	"github.com/chordwheel/chordwheel/daemon/adapter/builtin"
	"github.com/chordwheel/chordwheel/daemon/adapter/openai"
	"github.com/chordwheel/chordwheel/daemon/audit"
	"github.com/chordwheel/chordwheel/daemon/authority"
	"github.com/chordwheel/chordwheel/daemon/control"
	"github.com/chordwheel/chordwheel/daemon/edge"
	"github.com/chordwheel/chordwheel/daemon/snapshot"
	"github.com/chordwheel/chordwheel/daemon/token"
	"github.com/chordwheel/chordwheel/mesh/wire"
	"github.com/chordwheel/chordwheel/orchestrator/catalog"
	"github.com/chordwheel/chordwheel/store"
	"github.com/chordwheel/chordwheel/store/datadir"
	"github.com/chordwheel/chordwheel/store/keyring"
	"github.com/chordwheel/chordwheel/store/spool"
)

// drain is how long requests in work may take to end after a signal.
const drain = 20 * time.Second

// deviceOptions is what differs between `daemon`, `join` and the devices of `up`.
type deviceOptions struct {
	dir      string
	config   deviceConfig
	outside  []string // where to listen instead if the hub is not on this machine; nil: the owner said where
	environ  []string
	ownID    bool               // keep the device ID in dir: the devices of `up` share one machine
	makeKey  bool               // make an edge key where none is configured
	nextPort bool               // a taken port is no error: the next free one is used, and said
	locals   []wire.LocalOption // found on this machine, beside the configured ones
	hubs     func() []string    // where the hub is now; nil: where it was when the device joined
	log      *slog.Logger
	say      io.Writer
}

// device is a daemon with everything around it. openDevice makes it, start
// brings it to life, close ends it in the reverse order.
type device struct {
	*daemon.Daemon
	options  deviceOptions
	log      *slog.Logger
	dir      *datadir.Dir
	db       *store.Store
	edge     *edge.Edge
	key      chain.Secret
	id       chain.DeviceID
	peer     chain.PeerID
	upstream *openai.Adapter
	ring     *keyring.Ring
	spool    *spool.Spool
	ledger   *audit.Client
	ways     []*authority.Client // to ledger, registry and trust server
	agents   *snapshot.Keeper
	tokens   *token.Client

	edgeListener, adminListener, socket net.Listener
	admin, control                      *http.Server
	group                               sync.WaitGroup
}

// Status adds what only the wiring knows.
func (d *device) Status() control.Status {
	s := d.Daemon.Status()
	s.DataDir = d.options.dir
	s.Edge, s.Admin = d.edgeURL(), d.adminURL()
	if s.Receipts != nil {
		s.Receipts.Inlets, s.Receipts.Unreported = d.edge.Inlets(time.Now())
	}
	return s
}

// Network adds the interfaces of this machine, and the verdict on all of it.
func (d *device) Network(ctx context.Context) control.Network {
	n := d.Daemon.Network(ctx)
	n.Interfaces = interfaces()
	n.Judge()
	return n
}

// Keys tells which keys this process has, and from where.
func (d *device) Keys() []control.Key {
	var all []control.Key
	for _, k := range d.ring.Names() {
		all = append(all, control.Key{Name: k.Name, Source: string(k.Source)})
	}
	return all
}

// dialled is the address at which this machine reaches a listener: one on all of its
// addresses (0.0.0.0, [::]) is at none that a browser or a client can be given.
func dialled(listener net.Addr) string {
	if at, ok := listener.(*net.TCPAddr); ok && at.IP.IsUnspecified() {
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(at.Port))
	}
	return listener.String()
}

func (d *device) edgeURL() string {
	if d.edgeListener == nil {
		return ""
	}
	return "http://" + dialled(d.edgeListener.Addr()) + "/v1"
}

func (d *device) adminURL() string {
	if d.adminListener == nil {
		return ""
	}
	return "http://" + dialled(d.adminListener.Addr())
}

// identify opens the data directory and says who this device is.
func (d *device) identify() (key chain.Key, err error) {
	o := d.options
	if d.dir, err = datadir.Open(o.dir); err != nil {
		return key, fmt.Errorf("open the data directory: %w", err)
	}
	if key, err = d.dir.Identity(); err != nil {
		return key, err
	}
	d.peer = key.PeerID()
	idFile := filepath.Join(o.dir, "device-id")
	if !o.ownID {
		if idFile, err = o.config.deviceIDFile(); err != nil {
			return key, err
		}
	}
	d.id, err = d.dir.DeviceID(idFile)
	return key, err
}

// adapters are what runs work on a device. Tests put faults between.
var adapters = func(upstream *openai.Adapter) map[string]adapter.Adapter {
	return map[string]adapter.Adapter{"openai": upstream, "builtin": builtin.Adapter{}}
}

// settings names every setting that is wrong or contradicts another, in one line.
func (d *device) settings() error {
	wrong := d.options.config.wrong()
	if _, err := d.services(); err != nil {
		wrong = append(wrong, err.Error())
	}
	if !d.options.makeKey && isPublic(d.options.config.Edge) {
		if key, err := d.edgeKey(); err == nil && key == "" { // another error is told when the key is wanted
			wrong = append(wrong, edge.ErrNoKey.Error())
		}
	}
	return oneLine(wrong)
}

// openDevice opens the data directory and builds the parts over it. Nothing
// listens or speaks yet.
func openDevice(o deviceOptions) (d *device, err error) {
	opening := &device{options: o, log: o.log}
	d = opening
	if err := d.settings(); err != nil {
		return nil, usage("%w", err)
	}
	defer func() {
		if err != nil { // d is nil then
			err = errors.Join(err, opening.release())
		}
	}()
	key, err := d.identify()
	if err != nil {
		return nil, err
	}
	c := daemon.Config{Key: key, DeviceID: d.id, Version: version, Sensors: newSensors(o.config.Metered), Connect: connector(key, o), Log: o.log, Random: newRandom()}
	if err := d.openStored(&c); err != nil {
		return nil, err
	}
	if err := d.configure(&c); err != nil {
		return nil, err
	}
	if err := d.openReceipts(); err != nil {
		return nil, err
	}
	c.Spool, c.Ledger, c.Proofs = d.spool, d.ledger, d.proofs()
	if c.Gating, err = d.openGating(key); err != nil {
		return nil, err
	}
	d.upstream = openai.New(openai.Config{ConnectTimeout: o.config.ConnectWait, Log: o.log})
	c.Adapters = adapters(d.upstream)
	if c.DID, err = identitiesIn(o.dir).signer(key, time.Now()); err != nil {
		return nil, err
	}
	if d.Daemon, err = daemon.New(c); err != nil {
		return nil, err
	}
	return d, d.openEdge()
}

// configure fills in what the owner set.
func (d *device) configure(c *daemon.Config) (err error) {
	o := &d.options.config
	c.Name, c.Metered, c.Explore, c.Backpressure = o.Name, o.Metered, o.Explore && !o.Metered, o.Backpressure == "on"
	c.Defaults = chain.Limits{FirstOutput: chain.MillisOf(o.FirstOutput), Idle: chain.MillisOf(time.Minute), Total: chain.MillisOf(o.Total)}
	if c.Locals, err = d.services(); err != nil {
		return err
	}
	if c.Sharing, err = o.Sharing.policy(); err != nil {
		return usage("%w", err)
	}
	if c.Selection, err = o.selection(); err != nil {
		return usage("%w", err)
	}
	if c.Pipeline, err = o.Pipeline.settings(); err != nil {
		return usage("%w", err)
	}
	return nil
}

// openEdge makes what applications talk to.
func (d *device) openEdge() (err error) {
	o := &d.options.config
	if d.key, err = d.edgeKey(); err != nil {
		return err
	}
	desk, err := d.Daemon.Desk()
	if err != nil {
		return err
	}
	d.edge, err = edge.New(edge.Config{Desk: desk, Jobs: d.Providers(), Apps: d.Applications(), Worker: d.Daemon, Key: d.key, NextKey: o.NextKey, Hosts: o.Hosts, Origins: o.Origins,
		ListAgents: o.ListAgents, Log: d.log})
	return err
}

// openRing opens the key ring of the device in dir.
func openRing(dir string, config deviceConfig, environ []string, log *slog.Logger) (*keyring.Ring, error) {
	c := keyring.Config{Path: filepath.Join(dir, datadir.KeysFile), Environ: environ, Log: log}
	if config.KeyRing == "os" {
		c.System = keyring.OS()
	}
	return keyring.Open(c)
}

// keys shows a ring as the daemon sees it.
type keys struct{ *keyring.Ring }

func (k keys) Names() []string {
	var names []string
	for _, key := range k.Ring.Names() {
		names = append(names, key.Name)
	}
	return names
}

// newRandom seeds jitter and samples. Secrets and nonces come from crypto/rand.
func newRandom() *mathrand.Rand {
	var seed [32]byte
	_, _ = rand.Read(seed[:]) // it never fails
	return mathrand.New(mathrand.NewChaCha8(seed))
}

// services is what this device offers of its own: the builtin model, what its
// configuration names, and what was found on the machine.
func (d *device) services() ([]wire.LocalOption, error) {
	var locals []wire.LocalOption
	if d.options.config.Adapters != nil {
		services, err := catalog.Services(filepath.Join(d.options.dir, "config.yaml"), d.options.config.Adapters)
		if err != nil {
			return nil, usage("%w", err)
		}
		for _, s := range services {
			locals = append(locals, localOptions(s)...)
		}
	}
	var inside []wire.LocalOption
	if d.options.config.Builtin {
		inside = append(inside, builtinOption())
	}
	room := wire.MaxLocals - len(locals) - len(inside)
	if room < 0 {
		return nil, usage("%s: adapters: %d models are too many, a device declares at most %d: leave some out", filepath.Join(d.options.dir, "config.yaml"), len(locals), wire.MaxLocals-len(inside))
	}
	found := d.options.locals[:min(room, len(d.options.locals))] // what nobody asked for yields
	return slices.Concat(locals, found, inside), nil
}

// builtinOption offers the model inside the binary. Its quality is declared as
// what it is, so that anything else that can answer goes before it.
func builtinOption() wire.LocalOption {
	return wire.LocalOption{Primitives: []chain.Primitive{chain.LLMChat}, Option: chain.Option{
		ID: chain.BuiltinOption, Kind: chain.Local, Adapter: "builtin", Model: builtin.Model, Domain: "builtin",
		Cost: chain.Cost{Latency: 10, Reliability: chain.PPMOf(0.999), Quality: chain.PPMOf(0.02)},
	}}
}

// localOptions gives the options of a service on this device.
func localOptions(s catalog.Provider) []wire.LocalOption {
	var out []wire.LocalOption
	for _, m := range s.Models {
		out = append(out, wire.LocalOption{Primitives: m.Primitives, Option: chain.Option{
			ID: chain.OptionID("local/" + s.Name + "/" + m.Name), Kind: chain.Local, Adapter: s.Adapter, Model: m.Name, Endpoint: s.Endpoint, Keys: s.Keys,
			Domain: s.Domain, Limits: m.Limits, Cost: chain.Cost{
				InputPerMtok: m.Price.InputPerMtok, OutputPerMtok: m.Price.OutputPerMtok, PerCall: m.Price.PerCall,
				Latency: m.Prior.Latency, Reliability: chain.PPMOf(m.Prior.Reliability), Quality: chain.PPMOf(m.Prior.Quality),
			},
		}})
	}
	return out
}

// edgeKey is the configured key, else the one in the data directory, which is
// made where the options say so.
func (d *device) edgeKey() (chain.Secret, error) {
	if d.options.config.Key != "" {
		return d.options.config.Key, nil
	}
	key, err := readEdgeKey(d.options.dir)
	if err != nil || key != "" || !d.options.makeKey {
		return key, err
	}
	return makeSecret(d.dir, edgeKeyFile, "cw-", "the edge's key")
}

// adminToken is the configured one, else the one in the data directory, which is
// made where there is none.
func (d *device) adminToken() (chain.Secret, error) {
	const what = "the admin listener's token"
	if d.options.config.AdminToken != "" {
		return d.options.config.AdminToken, nil
	}
	token, err := readSecret(d.options.dir, adminTokenFile, what)
	if err != nil || token != "" {
		return token, err
	}
	return makeSecret(d.dir, adminTokenFile, "cwa-", what)
}

// start opens the listeners, brings the daemon to life and serves.
func (d *device) start(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	if d.edgeListener, err = d.listen("edge", d.options.config.Edge); err != nil {
		return err
	}
	if a, ok := d.edgeListener.Addr().(*net.TCPAddr); d.key == "" && ok && !a.IP.IsLoopback() {
		return usage("%w", edge.ErrNoKey)
	}
	if d.adminListener, err = d.listen("admin", d.options.config.Admin); err != nil {
		return err
	}
	token, err := d.adminToken()
	if err != nil {
		return err
	}
	if d.socket, err = listenControl(d.options.dir); err != nil {
		return err
	}
	if err := d.Daemon.Start(ctx); err != nil {
		return err
	}
	pages, service := control.Admin(d, d.edge.Guard), d.edge.Guard(control.Service(d, token))
	d.admin = httpServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { // a mux would redirect
		if strings.HasPrefix(r.URL.Path, "/admin/") {
			service.ServeHTTP(w, r)
			return
		}
		pages.ServeHTTP(w, r)
	}), d.log)
	d.control = httpServer(control.Socket(d, authenticated(d.edge, d.key)), d.log)
	d.serve("edge", func() error { return d.edge.Serve(d.edgeListener) })
	d.serve("admin page", func() error { return d.admin.Serve(edge.Shaped(d.adminListener)) })
	d.serve("control socket", func() error { return d.control.Serve(d.socket) })
	return nil
}

// serve runs one listener until it is closed.
func (d *device) serve(what string, run func() error) {
	d.group.Go(func() {
		if err := run(); err != nil && !errors.Is(err, http.ErrServerClosed) {
			d.log.Error("a listener ended", "listener", what, "error", err)
		}
	})
}

// httpServer makes the server of a listener that is no edge. No request of theirs has a body
// that takes long to send.
func httpServer(h http.Handler, log *slog.Logger) *http.Server {
	s := &http.Server{Handler: edge.Framed(h), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 30 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 64 << 10,
		DisableGeneralOptionsHandler: true, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
	edge.Bounded(s, maxConnections)
	return s
}

// maxConnections is how many connections a listener of httpServer has at most.
const maxConnections = 1024

// authenticated lets the owner's commands use the edge: whoever may open the
// socket may read the key beside it.
func authenticated(h http.Handler, key chain.Secret) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if key != "" {
			r.Header.Set("Authorization", "Bearer "+key.Reveal())
		}
		h.ServeHTTP(w, r)
	})
}

func (d *device) listen(what, address string) (net.Listener, error) {
	return listenTCP(what, address, d.options.nextPort, d.options.say)
}

// close ends the device: no new work, then what is in work, then the mesh, then
// the disk.
func (d *device) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), drain)
	defer cancel()
	var errs []error
	if d.Daemon != nil {
		if n := d.Daemon.Status().Requests.InFlight; n > 0 {
			d.log.Info("finishing what is in work; a second Ctrl-C stops at once", "requests", n, "at_most", drain)
		}
	}
	if d.edge != nil && d.edgeListener != nil {
		errs = append(errs, d.edge.Shutdown(ctx))
	}
	if d.Daemon != nil {
		d.Daemon.Drain(ctx)
	}
	for _, s := range []*http.Server{d.admin, d.control} {
		if s != nil {
			errs = append(errs, s.Shutdown(ctx))
		}
	}
	for _, l := range []net.Listener{d.edgeListener, d.adminListener, d.socket} {
		if l != nil {
			_ = l.Close() // most are closed by their servers
		}
	}
	d.group.Wait()
	if d.Daemon != nil {
		errs = append(errs, d.Daemon.Close())
	}
	return errors.Join(append(errs, d.release())...)
}

// release gives back what openDevice took.
func (d *device) release() error {
	var errs []error
	if d.upstream != nil {
		d.upstream.Close()
	}
	if d.spool != nil {
		errs = append(errs, d.spool.Close())
	}
	if d.agents != nil {
		d.agents.Close()
	}
	if d.tokens != nil {
		d.tokens.Close()
	}
	for _, way := range d.ways {
		way.Close()
	}
	if d.db != nil {
		errs = append(errs, d.db.Close())
	}
	if d.dir != nil {
		errs = append(errs, d.dir.Close())
	}
	return errors.Join(errs...)
}
