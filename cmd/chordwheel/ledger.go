package main

import (
	"crypto/x509"
	"encoding/hex"
	"fmt"
	"os"
	"time"

	"github.com/chordwheel/chordwheel/daemon"
	"github.com/chordwheel/chordwheel/daemon/audit"
	"github.com/chordwheel/chordwheel/daemon/authority"
	"github.com/chordwheel/chordwheel/daemon/control"
	"github.com/chordwheel/chordwheel/daemon/witness"
	"github.com/chordwheel/chordwheel/store/spool"
)

// openReceipts opens the spool of receipts and the way to the ledger.
func (d *device) openReceipts() (err error) {
	c := &d.options.config
	dir := c.SpoolDir
	if dir == "" {
		dir = d.options.dir
	}
	d.spool, err = spool.Open(spool.Config{Dir: dir, Label: daemon.LabelReceipt, Recall: daemon.RecallReceipt, Log: d.log, Max: c.SpoolMax, Alert: c.SpoolAlert, AlertAge: c.SpoolAlertAge})
	if err != nil {
		return fmt.Errorf("open the spool of receipts: %w", err)
	}
	way, err := d.service(c.LedgerURL, true) // receipts are signed, and say nothing
	d.ledger = audit.New(way)
	return err
}

// proofs is the hub's ledger, unless receipts go to another one.
func (d *device) proofs() witness.Ledger {
	if d.options.config.LedgerURL != "" {
		return nil
	}
	return d.ledger
}

// service gives the way to an authority service: the one at url, which with lan plain
// http may reach in the LAN, or where url is empty the hub's own.
func (d *device) service(url string, lan bool) (*authority.Client, error) {
	roots, err := authorities(d.options.config.TLSCA)
	if err != nil {
		return nil, usage("%w", err)
	}
	c := authority.Follow(func() (authority.Target, error) {
		if url == "" {
			return hubServices(d.Authority())
		}
		return authority.Target{URL: url, Options: authority.Options{Roots: roots, LAN: lan}}, nil
	})
	d.ways = append(d.ways, c)
	return c, nil
}

// hubServices are those of the hub that a device joined: what it did not name with
// their certificate is not trusted.
func hubServices(url string, certificate []byte) (authority.Target, error) {
	if url == "" || len(certificate) == 0 {
		return authority.Target{}, fmt.Errorf("%w: the hub names its services when the device joins", authority.ErrUnknown)
	}
	return authority.Target{URL: url, Options: authority.Options{Pin: hex.EncodeToString(certificate)}}, nil
}

// authorities gives the system's certificate authorities and those of a file, or
// nil where there is none.
func authorities(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("CHORDWHEEL_TLS_CA: %w", err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("CHORDWHEEL_TLS_CA: %s holds no certificate in PEM form", file)
	}
	return roots, nil
}

// receiptsLine tells how receipts fare.
func (a *app) receiptsLine(r control.Receipts, now time.Time) string {
	line := fmt.Sprintf("%d sent, %d waiting", r.Sent, r.Waiting)
	if r.Oldest != nil && r.Waiting > 0 {
		line += ", the oldest of " + ago(*r.Oldest, now)
	}
	if r.LastError != "" {
		line += " (the ledger: " + r.LastError + ")"
	}
	if r.Rejected > 0 {
		line += a.paint(yellow, fmt.Sprintf(", %d set aside", r.Rejected))
	}
	if r.Lost > 0 {
		line += a.paint(yellow, fmt.Sprintf(", %d lost with the last run", r.Lost))
	}
	if !r.Writable {
		line += a.paint(yellow, ", cannot be written: "+r.Fault)
	}
	return line
}
