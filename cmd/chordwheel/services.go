package main

import (
	"context"
	"crypto/ed25519"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/did"
	"github.com/chordwheel/chordwheel/did/fetch"
	"github.com/chordwheel/chordwheel/orchestrator"
	"github.com/chordwheel/chordwheel/orchestrator/audit"
	"github.com/chordwheel/chordwheel/orchestrator/authority"
	"github.com/chordwheel/chordwheel/orchestrator/ledger"
	"github.com/chordwheel/chordwheel/orchestrator/registry"
	"github.com/chordwheel/chordwheel/orchestrator/trust"
)

// Names in the hub's database.
const (
	bucketLedger = "hub-ledger"
	bucketLogs   = "hub-did-logs" // how far logs of did:webvh had come
)

// rotateLook is how often it is looked whether the key for tokens has served its time.
const rotateLook = time.Hour

// openServices opens what the authority services keep. A ledger that is not in
// order keeps no hub from policy: it says so, and takes nothing.
func (h *hub) openServices(key chain.Key) (err error) {
	if h.certificate, h.pin, err = authority.Certificate(h.dir, time.Now()); err != nil {
		return err
	}
	h.shelf = identitiesIn(h.options.dir).shelf
	if h.documents, err = did.Recall(h.shelf.Before(fetch.NewCache(fetch.New(fetch.Options{}))), h.db.Bucket(bucketLogs)); err != nil {
		return err
	}
	resolve := func(ctx context.Context, name string) ([]ed25519.PublicKey, error) {
		r, err := did.Resolve(ctx, h.documents, name, did.Want{}, time.Now())
		return r.Keys(did.Assertion), err
	}
	if h.tokenKeys, err = trust.OpenRotation(h.dir, key, time.Now()); err != nil {
		return err
	}
	h.audit, err = audit.New(audit.Config{Key: key, Mesh: h.mesh, Storage: ledger.OnBucket(h.db.Bucket(bucketLedger)), Files: h.dir, Resolve: resolve,
		Doubt: func(name string) (bool, time.Time) { return h.documents.Doubt(name, time.Now()) },
		Admit: h.admitSender, Token: h.options.config.LedgerToken, Log: h.log})
	if h.ledgerFault = err; err != nil {
		h.log.Error("the ledger takes no receipts: it did not open; docs/ledger.md says what to do", "error", err)
	}
	return nil
}

// overseen is the hub as its pages show it: with the ledger, which it does not know of.
type overseen struct {
	*orchestrator.Hub
	hub *hub
}

// Status implements [dashboard.Hub].
func (o overseen) Status(ctx context.Context) (orchestrator.Status, error) {
	s, err := o.Hub.Status(ctx)
	if err != nil {
		return s, err
	}
	s.Ledger = &orchestrator.LedgerView{Receipts: o.hub.audit.Size(), DoubleUses: o.hub.audit.DoubleUses()}
	if o.hub.ledgerFault != nil {
		s.Ledger.Fault = o.hub.ledgerFault.Error()
	}
	return s, nil
}

// anySender lets everybody hand receipts over.
const anySender = "*"

// admitSender decides whose receipts the ledger takes. Those that a device signed before it
// went by another name may come later than the news of that.
func (h *hub) admitSender(ctx context.Context, got *receipt.Signed) error {
	listed, signer := h.options.config.LedgerSenders, got.Signer()
	if slices.Contains(listed, anySender) || slices.Contains(listed, signer) {
		return nil
	}
	known, err := h.Register().Knows(ctx, signer)
	if err == nil && !known {
		known, err = h.Register().Knew(ctx, signer, func(key ed25519.PublicKey) bool { return !errors.Is(got.Verify(key), receipt.ErrSigned) })
	}
	if err == nil && !known {
		err = audit.ErrSender
	}
	return err
}

// services is the server of everything that devices ask for over HTTPS: each
// service adds its routes here.
func (h *hub) services() (*http.Server, error) {
	register := h.Register()
	agents, err := registry.New(register)
	if err != nil {
		return nil, err
	}
	tokens, err := trust.New(trust.Config{Origin: h.authorityURL, Keys: h.tokenKeys.Ring(), Resolver: trust.Documents{Fetcher: h.documents}, Policy: register})
	if err != nil {
		return nil, err
	}
	mux := authority.NewMux(slices.Concat(h.audit.Routes(), agents.Routes(), tokens.Routes())...)
	s := httpServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !h.shelf.Serve(w, r) {
			mux.ServeHTTP(w, r)
		}
	}), h.log)
	s.WriteTimeout = 30 * time.Second
	s.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{h.certificate}, NextProtos: []string{"http/1.1"}}
	return s, nil
}

// rotateKeys makes the next key sign tokens whenever one has served its time.
func (h *hub) rotateKeys(ctx context.Context) error {
	tick := time.NewTicker(rotateLook)
	defer tick.Stop()
	for {
		if now := time.Now(); h.tokenKeys.Due(now) {
			if err := h.tokenKeys.Rotate(now); err != nil {
				h.log.Error("tokens are signed with the key as before", "error", err)
			} else {
				h.log.Info("another key signs tokens now")
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// listenAuthority opens the listener. Devices are told where it is, so that the
// usual port may be another one, if nobody asked for it.
func (h *hub) listenAuthority() (err error) {
	usual := strings.HasSuffix(h.options.config.Authority, ":"+authorityPortText)
	h.authorityListener, err = listenTCP("authority", h.options.config.Authority, h.options.nextPort || usual, h.options.say)
	return err
}

// authorityURL is what devices are told: the configured one, else the listener's,
// which for all addresses of this machine is the one that the mesh is reached at.
func (h *hub) authorityURL() string {
	if u := h.options.config.AuthorityURL; u != "" {
		return strings.TrimSuffix(u, "/")
	}
	if h.authorityListener == nil {
		return ""
	}
	at := h.authorityListener.Addr().String()
	host, port, err := net.SplitHostPort(at)
	if ip, err2 := netip.ParseAddr(host); err == nil && err2 == nil && ip.IsUnspecified() {
		at = net.JoinHostPort(reachable(h.node.Addrs()), port)
	}
	return "https://" + at
}

// reachable picks the address of a machine that others reach best.
func reachable(addresses []string) string {
	best := "127.0.0.1"
	for _, a := range addresses {
		part := strings.Split(a, "/")
		if len(part) < 3 {
			continue
		}
		if ip, err := netip.ParseAddr(part[2]); err == nil && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && !ip.IsUnspecified() {
			return part[2]
		}
	}
	return best
}
