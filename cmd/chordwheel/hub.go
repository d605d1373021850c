package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/edge"
	"github.com/chordwheel/chordwheel/did"
	"github.com/chordwheel/chordwheel/did/shelf"
	"github.com/chordwheel/chordwheel/mesh"
	"github.com/chordwheel/chordwheel/orchestrator"
	"github.com/chordwheel/chordwheel/orchestrator/audit"
	"github.com/chordwheel/chordwheel/orchestrator/catalog"
	"github.com/chordwheel/chordwheel/orchestrator/dashboard"
	"github.com/chordwheel/chordwheel/orchestrator/trust"
	"github.com/chordwheel/chordwheel/store"
	"github.com/chordwheel/chordwheel/store/datadir"
)

// hubOptions is what differs between `orchestrator` and the hub of `up`.
type hubOptions struct {
	dir      string
	config   hubConfig
	nextPort bool // a taken port is no error
	log      *slog.Logger
	say      io.Writer
}

// hub is an orchestrator with everything around it. openHub makes it, start
// brings it to life, close ends it in the reverse order.
type hub struct {
	*orchestrator.Hub
	options hubOptions
	log     *slog.Logger
	dir     *datadir.Dir
	db      *store.Store
	node    *mesh.Hub
	mesh    chain.MeshID
	content []byte // of the catalogue file, as it was read last
	usual   func() // lets as much garbage gather as usual

	audit       *audit.Service
	ledgerFault error        // why the ledger did not open
	shelf       *shelf.Shelf // of did:webvh that this hub serves
	documents   *did.Memory  // of any, whoever names them
	tokenKeys   *trust.Rotation
	certificate tls.Certificate
	pin         []byte // SHA-256 of certificate

	webListener, socket, authorityListener net.Listener
	web, control, authority                *http.Server
	cancel                                 context.CancelFunc
	group                                  sync.WaitGroup
}

// openHub opens the data directory and builds the parts over it. Nothing
// listens yet.
func openHub(o hubOptions) (h *hub, err error) {
	if err := o.config.validate(); err != nil {
		return nil, usage("%w", err)
	}
	opening := &hub{options: o, log: o.log, usual: spareMemory(os.Getenv)}
	h = opening
	defer func() {
		if err != nil { // h is nil then
			opening.usual()
			err = errors.Join(err, opening.release())
		}
	}()
	declared := catalog.Builtin(tiers...)
	if o.config.Catalog != "" {
		if declared, h.content, err = readCatalog(o.config.Catalog); err != nil {
			return nil, usage("%w", err)
		}
	}
	if h.dir, err = datadir.Open(o.dir); err != nil {
		return nil, fmt.Errorf("open the data directory: %w", err)
	}
	key, err := h.dir.Identity()
	if err != nil {
		return nil, err
	}
	if h.db, err = openStore(h.dir, o.log); err != nil {
		return nil, err
	}
	if h.mesh, err = orchestrator.MeshID(h.dir); err != nil {
		return nil, err
	}
	if err := h.openServices(key); err != nil {
		return nil, err
	}
	h.Hub, err = orchestrator.New(orchestrator.Config{
		Key: key, Mesh: h.mesh, Catalogue: declared, Log: o.log, Version: version, Name: o.config.Name,
		Storage: orchestrator.Storage{Bucket: func(name string) orchestrator.Bucket { return h.db.Bucket(name) }, Files: h.dir},
		Addrs:   func() []string { return h.node.Addrs() }, Authority: func() (string, []byte) { return h.authorityURL(), h.pin },
	})
	if err != nil {
		return nil, err
	}
	h.node, err = mesh.NewHub(mesh.HubConfig{Key: key, Mesh: h.mesh, Listen: o.config.Listen, Handler: h.Hub, Log: o.log, Version: version, OnChords: h.Hub.Adjacent, OnAnnounce: h.Hub.Announced, OnGone: h.Hub.Gone})
	return h, err
}

// start opens the listeners and begins to answer devices.
func (h *hub) start(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, h.close())
		}
	}()
	if h.webListener, err = listenTCP("web", h.options.config.Web, h.options.nextPort, h.options.say); err != nil {
		return err
	}
	if err := h.listenAuthority(); err != nil { // before devices come, who are told where it is
		return err
	}
	if h.socket, err = listenControl(h.options.dir); err != nil {
		return err
	}
	if err := h.node.Start(ctx); err != nil {
		return err
	}
	if err := h.Hub.Start(ctx, h.node); err != nil {
		return err
	}
	if o, err := h.Overview(ctx); err != nil || o.Devices < largeHub {
		h.usual()
	}
	pages := dashboard.New(overseen{h.Hub, h})
	h.web, h.control = httpServer(pages.Web(h.options.config.Hosts, h.options.config.Origins), h.log), httpServer(pages.Socket(), h.log)
	h.serve("dashboard", func() error { return h.web.Serve(edge.Shaped(h.webListener)) })
	h.serve("control socket", func() error { return h.control.Serve(h.socket) })
	if h.authority, err = h.services(); err != nil {
		return err
	}
	secure := tls.NewListener(h.authorityListener, h.authority.TLSConfig) // not ServeTLS: what the server itself refuses could not be put in the shape of errors
	h.serve("authority services", func() error { return h.authority.Serve(edge.Shaped(secure)) })
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	h.cancel = cancel
	h.serve("keys for tokens", func() error { return h.rotateKeys(run) })
	if file := h.options.config.Catalog; file != "" {
		if file, err = filepath.Abs(file); err != nil {
			return err
		}
		h.serve("catalogue", func() error {
			return watchCatalog(run, file, h.content, func(c catalog.Catalog) error { return h.Reload(run, c) }, func(why string) {
				if err := h.CatalogueRefused(run, why); err != nil {
					h.log.Warn("the refused catalogue is not shown", "error", err)
				}
			}, h.log)
		})
	}
	return nil
}

func (h *hub) serve(what string, run func() error) {
	h.group.Go(func() {
		if err := run(); err != nil && !errors.Is(err, http.ErrServerClosed) {
			h.log.Error("a part of the hub ended", "part", what, "error", err)
		}
	})
}

func (h *hub) url() string { return "http://" + dialled(h.webListener.Addr()) }

// close ends the hub: pages and devices first, then what it knows is kept.
func (h *hub) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var errs []error
	if h.cancel != nil {
		h.cancel()
	}
	for _, s := range []*http.Server{h.web, h.control, h.authority} {
		if s == nil {
			continue
		}
		if err := s.Shutdown(ctx); err != nil { // a page that follows the log live
			errs = append(errs, s.Close())
		}
	}
	for _, l := range []net.Listener{h.webListener, h.socket, h.authorityListener} {
		if l != nil {
			_ = l.Close() // most are closed by their servers
		}
	}
	h.group.Wait()
	if h.node != nil {
		errs = append(errs, h.node.Close())
	}
	if h.Hub != nil {
		errs = append(errs, h.Hub.Close())
	}
	return errors.Join(append(errs, h.release())...)
}

// release gives back what openHub took.
func (h *hub) release() error {
	var errs []error
	if h.audit != nil {
		errs = append(errs, h.audit.Close())
	}
	if h.db != nil {
		errs = append(errs, h.db.Close())
	}
	if h.dir != nil {
		errs = append(errs, h.dir.Close())
	}
	return errors.Join(errs...)
}
