package testnet

import (
	"context"
	"errors"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh"
	"github.com/chordwheel/chordwheel/orchestrator"
	"github.com/chordwheel/chordwheel/orchestrator/catalog"
	"github.com/chordwheel/chordwheel/store"
	"github.com/chordwheel/chordwheel/store/datadir"
)

// hub is the orchestrator while it runs, and its data directory.
type hub struct {
	*orchestrator.Hub // nil while it does not run
	net               *Net
	dir               string
	catalogue         catalog.Catalog
	declared          time.Time // when catalogue came into force
	trust             chain.Trust

	node  *mesh.Hub
	data  *datadir.Dir
	db    *store.Store
	lives int // starts so far
}

// start opens the data directory and runs the hub over it, as the command does.
func (h *hub) start() (err error) {
	synctest.Wait() // the watch reads what is changed now
	if h.data, err = datadir.Open(h.dir); err != nil {
		return err
	}
	key, err := h.data.Identity()
	if err != nil {
		return err
	}
	log := h.net.log.With("device", Hub)
	if h.db, err = store.Open(h.data, store.Options{Log: log}); err != nil {
		return err
	}
	id, err := orchestrator.MeshID(h.data)
	if err != nil {
		return err
	}
	h.trust = chain.Trust{Mesh: id, Orchestrator: key.PeerID()}
	h.Hub, err = orchestrator.New(orchestrator.Config{Key: key, Mesh: id, Catalogue: h.catalogue, Log: log, Version: "testnet", Name: "testnet",
		Storage: orchestrator.Storage{Bucket: func(name string) orchestrator.Bucket { return h.db.Bucket(name) }, Files: h.data},
		Addrs:   func() []string { return h.node.Addrs() }})
	if err != nil {
		return err
	}
	h.node, err = mesh.NewHub(mesh.HubConfig{Key: key, Mesh: id, Host: h.net.Network.HostFactory(0), Handler: h.Hub, Log: log, Version: "testnet",
		OnChords: h.Hub.Adjacent, OnAnnounce: h.Hub.Announced})
	if err != nil {
		return err
	}
	h.lives++
	return errors.Join(h.node.Start(context.Background()), h.Hub.Start(context.Background(), h.node))
}

// stop ends the hub in order.
func (h *hub) stop() {
	if h.Hub == nil {
		return
	}
	if err := errors.Join(h.node.Close(), h.Hub.Close(), h.db.Close(), h.data.Close()); err != nil {
		h.net.t.Errorf("the hub ended with %v", err)
	}
	h.Hub = nil
}
