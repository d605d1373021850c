package main

import (
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/chordwheel/chordwheel/daemon"
	"github.com/chordwheel/chordwheel/daemon/audit"
	"github.com/chordwheel/chordwheel/daemon/control"
	"github.com/chordwheel/chordwheel/store/spool"
)

// openReceipts opens the spool of receipts and the way to the ledger.
func (d *device) openReceipts() (err error) {
	c := &d.options.config
	dir := c.SpoolDir
	if dir == "" {
		dir = d.options.dir
	}
	roots, err := authorities(c.TLSCA)
	if err != nil {
		return usage("%w", err)
	}
	d.spool, err = spool.Open(spool.Config{Dir: dir, Label: daemon.LabelReceipt, Log: d.log, Max: c.SpoolMax, Alert: c.SpoolAlert, AlertAge: c.SpoolAlertAge})
	if err != nil {
		return fmt.Errorf("open the spool of receipts: %w", err)
	}
	d.ledger = audit.New(func() (audit.Target, error) {
		if c.LedgerURL != "" {
			return audit.Target{URL: c.LedgerURL, Roots: roots}, nil
		}
		url, certificate := d.Authority()
		return hubLedger(url, certificate)
	})
	return nil
}

// hubLedger is the ledger of the hub that a device joined.
func hubLedger(url string, certificate []byte) (audit.Target, error) {
	if url == "" {
		return audit.Target{}, errors.New("no ledger is known yet: the hub names its own when the device joins")
	}
	if len(certificate) == 0 {
		certificate = []byte{} // nobody's: what the hub did not name is not trusted
	}
	return audit.Target{URL: url, Certificate: certificate}, nil
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
		line += " since " + ago(*r.Oldest, now)
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
