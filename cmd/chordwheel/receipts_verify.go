package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/merkle"
	"github.com/chordwheel/chordwheel/daemon"
	"github.com/chordwheel/chordwheel/daemon/audit"
	"github.com/chordwheel/chordwheel/daemon/authority"
	"github.com/chordwheel/chordwheel/did"
	"github.com/chordwheel/chordwheel/did/fetch"
	"github.com/chordwheel/chordwheel/store/datadir"
)

// seenFile is where verify keeps the newest checkpoint that it was shown.
const seenFile = "ledger.seen"

func (a *app) receiptsVerify() *cobra.Command {
	v := verification{app: a}
	c := &cobra.Command{
		Use:   "verify [TRANSACTION | FILE]",
		Short: "Check signatures, and that the ledger has receipts and only grew",
		Long: `Check receipts: who signed them, that the ledger has them, and that it is the same
ledger that was seen before. Without an argument all of this device are checked;
a FILE holds receipts, or what export wrote, one on a line ("-": standard input).
Proofs that a file lacks are asked from the ledger, unless --offline says no. Whose
ledger it is stands in the device's data directory; elsewhere --origin and
--ledger-did say so.`,
		Example: "  chordwheel receipts verify\n  chordwheel receipts verify --offline --origin chordwheel/MESH/ledger --ledger-did did:key:z6Mk… audit.jsonl",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			what := ""
			if len(args) > 0 {
				what = args[0]
			}
			return v.run(c.Context(), what)
		},
	}
	c.Flags().BoolVar(&v.offline, "offline", false, "ask nobody: only what a file proves is checked")
	c.Flags().StringVar(&v.origin, "origin", "", "`NAME` of the ledger")
	c.Flags().StringVar(&v.did, "ledger-did", "", "`DID` of the ledger's key")
	c.Flags().StringVar(&v.checkpoint, "checkpoint", "", "`FILE` with a signed checkpoint that was seen before (default: the one that this device saw)")
	c.Flags().StringVar(&v.consistency, "consistency", "", "`FILE` with the proof that the ledger grew from it")
	return c
}

// verification is one run of `receipts verify`.
type verification struct {
	*app
	offline                              bool
	origin, did, checkpoint, consistency string
}

// peeked reads the files of a data directory that another process may have.
type peeked string

func (p peeked) ReadChecked(name string) ([]byte, error) { return datadir.Peek(string(p), name) }
func (peeked) WriteChecked(string, []byte) error         { return errors.ErrUnsupported }

// resolver gives the keys of signers.
func (v *verification) resolver() func(ctx context.Context, name string) ([]ed25519.PublicKey, error) {
	documents := did.Fetcher(fetch.New(fetch.Options{}))
	if v.offline {
		documents = nobody{}
	}
	if dir, err := v.deviceDir(); err == nil {
		documents = identitiesIn(dir).shelf.Before(documents)
	}
	return func(ctx context.Context, name string) ([]ed25519.PublicKey, error) {
		r, err := did.Resolve(ctx, documents, name, did.Want{}, time.Now())
		return r.Keys(did.Assertion), err
	}
}

// auditor makes who checks: with the ledger that the device joined, unless the
// flags name another.
func (v *verification) auditor() (*audit.Auditor, error) {
	auditor := &audit.Auditor{Origin: v.origin, Resolve: v.resolver()}
	if (v.origin == "") != (v.did == "") {
		return nil, usage("--origin and --ledger-did belong together")
	}
	if v.did != "" {
		key, err := chain.ParseDIDKey(v.did)
		if err != nil {
			return nil, usage("--ledger-did: %w", err)
		}
		auditor.Key = key
		return auditor, nil
	}
	_, joined, err := v.joined()
	if err != nil {
		return nil, err
	}
	auditor.Origin = merkle.Origin(joined.Trust.Mesh)
	if auditor.Key, err = joined.Trust.Orchestrator.Public(); err != nil || v.offline {
		return auditor, err
	}
	way, err := v.ledger(true)
	if err == nil {
		auditor.Ledger = audit.New(way)
	}
	return auditor, err
}

// joined is what the device joined.
func (v *verification) joined() (dir string, joined daemon.Joined, err error) {
	if dir, err = v.deviceDir(); err != nil {
		return dir, joined, fmt.Errorf("%w; or name a ledger with --origin and --ledger-did", err)
	}
	joined, ok, err := daemon.LoadJoined(peeked(dir))
	if err == nil && !ok {
		err = errors.New("this device has not joined a mesh, so that no ledger is known; name one with --origin and --ledger-did")
	}
	return dir, joined, err
}

// ledger is the way to the ledger that the device sends to; with lan plain http may lead
// to it in the LAN.
func (v *verification) ledger(lan bool) (*authority.Client, error) {
	dir, joined, err := v.joined()
	if err != nil {
		return nil, err
	}
	return authority.Follow(func() (authority.Target, error) {
		config := defaultDevice(0, "127.0.0.1")
		if err := load(&config, dir, v.environ); err != nil || config.LedgerURL == "" {
			return hubServices(joined.Authority, joined.Certificate)
		}
		roots, err := authorities(config.TLSCA)
		return authority.Target{URL: config.LedgerURL, Options: authority.Options{Roots: roots, LAN: lan}}, err
	}), nil
}

// nobody is asked.
type nobody struct{}

func (nobody) Fetch(context.Context, string, int64) ([]byte, error) {
	return nil, errors.New("--offline: only did:key is known")
}

func (v *verification) run(ctx context.Context, what string) error {
	receipts, err := v.read(what)
	if err != nil {
		return err
	}
	auditor, err := v.auditor()
	if err != nil {
		return err
	}
	seen, keep, err := v.seen()
	if err != nil {
		return err
	}
	findings := []audit.Finding{}
	wrong := 0
	var newest audit.Finding
	for _, b := range receipts {
		f, err := auditor.Check(ctx, b, seen)
		if err != nil {
			return unreachable("%s: %w", f.Transaction, err)
		}
		if findings = append(findings, f); !f.OK {
			wrong++
		} else if f.Size > newest.Size {
			newest = f
		}
	}
	if err := v.print(findings, func(w io.Writer) { v.tell(w, findings) }); err != nil {
		return err
	}
	if wrong > 0 {
		err := fmt.Errorf("%d of %s did not verify", wrong, count(len(findings), "receipt"))
		if slices.ContainsFunc(findings, func(f audit.Finding) bool { return f.Inclusion == audit.ErrNotFound.Error() }) {
			err = fmt.Errorf("%w; one that was made just now may still be on its way: chordwheel status says how many wait", err)
		}
		return err
	}
	return keep(newest)
}

func (v *verification) tell(w io.Writer, findings []audit.Finding) {
	for i, f := range findings {
		switch {
		case f.Wrong() != "":
			fmt.Fprintf(w, "%s  %s: %s\n", v.paint(yellow, "WRONG"), cmp.Or(f.Transaction, fmt.Sprint("receipt ", i+1)), f.Wrong())
		case f.Inclusion == "":
			fmt.Fprintf(w, "%s     %s: signed; nothing here proves that a ledger has it\n", v.paint(green, "ok"), f.Transaction)
		default:
			line := fmt.Sprintf("signed, and number %d of %d in the ledger", f.Index+1, f.Size)
			if f.Consistency != "" {
				line += ", which only grew"
			}
			fmt.Fprintf(w, "%s     %s: %s\n", v.paint(green, "ok"), f.Transaction, line)
		}
	}
	if len(findings) == 0 {
		fmt.Fprintln(w, "there are no receipts here")
	}
}

// read gives the receipts to check: of a file, of a transaction, or all.
func (v *verification) read(what string) ([][]byte, error) {
	var b []byte
	var err error
	if what == "-" {
		if b, err = io.ReadAll(io.LimitReader(v.in, maxAnswer+1)); err == nil && len(b) > maxAnswer {
			err = fmt.Errorf("more than %d bytes on standard input: give a FILE", maxAnswer)
		}
	} else if what != "" {
		b, err = os.ReadFile(what)
	}
	if what == "" || errors.Is(err, fs.ErrNotExist) && !strings.ContainsAny(what, `/\.`) {
		all, damaged, err := v.lines(what)
		var lines [][]byte
		for _, s := range all {
			lines = append(lines, s.Line)
		}
		if what == "" { // what was altered beyond recognition is wrong, not left out
			lines = append(lines, damaged...)
		}
		return lines, err
	}
	if err != nil {
		return nil, err
	}
	if json.Valid(b) {
		return [][]byte{b}, nil
	}
	var lines [][]byte
	for line := range bytes.Lines(b) {
		if line = bytes.TrimSpace(line); len(line) > 0 {
			lines = append(lines, line)
		}
	}
	if len(lines) == 0 { // one that was emptied must not count as checked
		return nil, errors.New("there are no receipts in what is to be checked")
	}
	return lines, nil
}

// seen gives the checkpoint that was shown before, and what keeps the next one.
func (v *verification) seen() (seen audit.Seen, keep func(audit.Finding) error, err error) {
	keep = func(audit.Finding) error { return nil }
	if v.consistency != "" {
		b, err := os.ReadFile(v.consistency)
		seen.Growth = new(merkle.Consistency)
		if err == nil {
			err = json.Unmarshal(b, seen.Growth)
		}
		if err != nil {
			return seen, keep, fmt.Errorf("--consistency: %w", err)
		}
	}
	if v.checkpoint != "" {
		seen.Checkpoint, err = os.ReadFile(v.checkpoint)
		return seen, keep, err
	}
	if v.did != "" {
		return seen, keep, nil
	}
	dir, err := v.deviceDir()
	if err != nil {
		return seen, keep, err
	}
	file := filepath.Join(dir, seenFile)
	if seen.Checkpoint, err = os.ReadFile(file); errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return seen, func(f audit.Finding) error {
		if len(f.Checkpoint) == 0 || f.Consistency == "" && seen.Checkpoint != nil {
			return nil
		}
		if f.Size <= sizeOf(seen.Checkpoint) {
			return nil
		}
		return datadir.WritePrivate(file, f.Checkpoint)
	}, err
}

// sizeOf reads the size of a checkpoint that was verified when it was kept.
func sizeOf(checkpoint []byte) (n int64) {
	if lines := strings.Split(string(checkpoint), "\n"); len(lines) > 1 {
		n, _ = strconv.ParseInt(lines[1], 10, 64)
	}
	return n
}
