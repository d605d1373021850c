package main

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/merkle"
	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/daemon/audit"
)

// ledgerToken is where an auditor's right to read the ledger stands.
const ledgerToken = "CHORDWHEEL_LEDGER_TOKEN"

// Bounds of what is named; all are counted.
const (
	maxNamed = 100  // receipts of one token, and those without a signature that holds
	maxFound = 1000 // tokens
)

// report is what `receipts report` prints.
type report struct {
	Receipts   int          `json:"receipts"`             // that were looked at
	Ledger     *ledgerSize  `json:"ledger,omitempty"`     // whose they all are
	DoubleUses []*doubleUse `json:"double_uses"`          // tokens that were used by two
	MoreUses   int          `json:"more_uses,omitempty"`  // receipts of such tokens that are not named
	Unverified []unverified `json:"unverified"`           // receipts that say nothing, for nobody signed them as they are
	MoreWrong  int          `json:"more_wrong,omitempty"` // that are not named
}

type ledgerSize struct {
	Origin string `json:"origin"`
	Size   int64  `json:"size"`
}

// doubleUse is one token that was used by two, or with one nonce twice.
type doubleUse struct {
	Kind     string  `json:"kind"` // two_seekers, nonce_twice
	TokenID  string  `json:"token_id"`
	Nonce    string  `json:"nonce,omitempty"`
	Receipts []useOf `json:"receipts"` // the first one of all, and those that do not fit to it
	More     int     `json:"more,omitempty"`
}

// useOf is a receipt that names a token.
type useOf struct {
	Number        int64  `json:"number"` // its place in what was looked at, from 0
	TransactionID string `json:"transaction_id"`
	MessageID     string `json:"message_id"`
	Seeker        string `json:"seeker_did"`
	Agent         string `json:"agent_did,omitempty"`
	Signer        string `json:"signer"`
	RequestAt     string `json:"request_at"`
}

type unverified struct {
	Number        int64  `json:"number"`
	TransactionID string `json:"transaction_id,omitempty"`
	Why           string `json:"why"`
}

// reporting is one run of it.
type reporting struct {
	verification
	whole bool // the ledger's receipts

	report report
	uses   *receipt.Uses
	found  map[string]*doubleUse
	keys   map[string]resolved // by DID
}

type resolved struct {
	keys []ed25519.PublicKey
	err  error
}

func (a *app) receiptsReport() *cobra.Command {
	r := reporting{verification: verification{app: a}, found: map[string]*doubleUse{}, keys: map[string]resolved{}}
	c := &cobra.Command{
		Use:   "report [TRANSACTION | FILE]",
		Short: "Report tokens that were used by two",
		Long: `Look for tokens that receipts of two devices name, and for those that came to a
peer twice with one nonce. One token serves many requests of the device that it was made
for: that is no finding. Looked at are the receipts of this device, those of a
transaction or in a FILE ("-": standard input), or with --ledger all that the hub's
ledger has, which shows them to whoever has its ` + ledgerToken + ` in the
environment. Signatures are checked: what nobody signed accuses nobody. The exit code is 1
if there is a finding, or a receipt whose signature does not hold.`,
		Example: "  chordwheel receipts report audit.jsonl\n  CHORDWHEEL_LEDGER_TOKEN=… chordwheel receipts report --ledger --json",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			what := ""
			if len(args) > 0 {
				what = args[0]
			}
			if r.whole && (what != "" || r.offline) {
				return usage("--ledger is about all that the ledger has: give neither FILE nor --offline")
			}
			return r.run(c.Context(), what)
		},
	}
	c.Flags().BoolVar(&r.offline, "offline", false, "ask nobody: receipts of a did:webvh that is not known here count as not signed")
	c.Flags().BoolVar(&r.whole, "ledger", false, "look at all receipts of the ledger that this device sends to")
	return c
}

func (r *reporting) run(ctx context.Context, what string) error {
	r.report.DoubleUses, r.report.Unverified = []*doubleUse{}, []unverified{}
	look := r.ofLines
	if r.whole {
		look = r.ofLedger
	}
	if err := look(ctx, what); err != nil {
		return err
	}
	if err := r.print(r.report, r.tell); err != nil {
		return err
	}
	var wrong []string
	if n := len(r.report.DoubleUses) + r.report.MoreUses; n > 0 {
		wrong = append(wrong, count(n, "double use")+" of tokens")
	}
	if n := len(r.report.Unverified) + r.report.MoreWrong; n > 0 {
		wrong = append(wrong, count(n, "receipt")+" without a signature that holds")
	}
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, ", and "))
	}
	return nil
}

// ofLines looks at the receipts of a file, of a transaction, or of this device.
func (r *reporting) ofLines(ctx context.Context, what string) error {
	lines, err := r.read(what)
	if err != nil {
		return err
	}
	r.uses = receipt.NewUses(2 * len(lines))
	for i, line := range lines {
		r.look(ctx, int64(i), line)
	}
	return r.name(ctx, func(number int64) ([]byte, error) { return lines[number], nil })
}

// ofLedger looks at all that the ledger has.
func (r *reporting) ofLedger(ctx context.Context, _ string) error {
	token, err := r.ledgerToken()
	if err != nil {
		return err
	}
	auditor, err := r.auditor()
	if err != nil {
		return err
	}
	way, err := r.ledger(false) // on which the token may be shown
	if err != nil {
		return err
	}
	client := audit.New(way)
	signed, err := client.Checkpoint(ctx)
	if err != nil {
		return unreachable("%w", err)
	}
	c, err := merkle.OpenCheckpoint(signed, auditor.Origin, auditor.Key)
	if err != nil {
		return err
	}
	r.report.Ledger = &ledgerSize{c.Origin, c.Size}
	r.uses = receipt.NewUses(2 * int(c.Size))
	err = client.Each(ctx, c, token, func(index int64, line []byte) error {
		r.look(ctx, index, line)
		return nil
	})
	if err == nil {
		err = r.name(ctx, client.Lines(ctx, c, token))
	}
	if err != nil {
		return fmt.Errorf("read the ledger: %w", err)
	}
	return nil
}

// ledgerToken is the auditor's.
func (r *reporting) ledgerToken() (chain.Secret, error) {
	for _, s := range r.environ {
		if value, ok := strings.CutPrefix(s, ledgerToken+"="); ok && value != "" {
			return chain.Secret(value), nil
		}
	}
	return "", usage("the ledger shows its receipts to auditors: set %s, which the hub was started with", ledgerToken)
}

// look takes in one receipt, or one with its proof.
func (r *reporting) look(ctx context.Context, number int64, line []byte) {
	r.report.Receipts++
	s, keys, err := r.genuine(ctx, line)
	if err == nil {
		r.take(&s, number, keys)
		return
	}
	if len(r.report.Unverified) >= maxNamed {
		r.report.MoreWrong++
		return
	}
	r.report.Unverified = append(r.report.Unverified, unverified{number, s.TransactionID, chain.ClipTo(err.Error(), 256)})
}

// genuine reads a receipt whose signature holds, and gives the keys that its signer stands for.
func (r *reporting) genuine(ctx context.Context, line []byte) (receipt.Signed, []ed25519.PublicKey, error) {
	_, s, err := receipt.ParseProven(line)
	if err != nil {
		return s, nil, err
	}
	is := r.keysOf(ctx, s.Signer())
	if is.err != nil {
		return s, nil, is.err
	}
	return s, is.keys, s.Verify(is.keys...)
}

// take takes in a receipt whose signature holds.
func (r *reporting) take(s *receipt.Signed, number int64, keys []ed25519.PublicKey) {
	for _, d := range r.uses.Add(s, number, keys...) {
		u := doubleUse{Kind: d.Kind, TokenID: s.TokenID}
		if d.Kind == receipt.NonceTwice {
			u.Nonce = s.Executor.Nonce
		}
		key := u.Kind + "\n" + u.TokenID + "\n" + u.Nonce
		known := r.found[key]
		if known == nil && len(r.found) >= maxFound {
			r.report.MoreUses++
			continue
		}
		if known == nil {
			known = &u
			known.Receipts = append(known.Receipts, useOf{Number: d.First})
			r.found[key], r.report.DoubleUses = known, append(r.report.DoubleUses, known)
		}
		if len(known.Receipts) >= maxNamed {
			known.More++
			continue
		}
		known.Receipts = append(known.Receipts, useOf{Number: number})
	}
}

// keysOf gives the keys of a signer, and asks for them once.
func (r *reporting) keysOf(ctx context.Context, name string) resolved {
	is, ok := r.keys[name]
	if !ok {
		is.keys, is.err = r.resolver()(ctx, name)
		r.keys[name] = is
	}
	return is
}

// name fills in what the receipts of findings say, which line gives a second time. They are asked
// for in their order, and held against what was found: a ledger that has others to show by now
// accuses nobody with them.
func (r *reporting) name(ctx context.Context, line func(number int64) ([]byte, error)) error {
	type place struct {
		of *doubleUse
		to *useOf
	}
	var places []place
	for _, d := range r.report.DoubleUses {
		for i := range d.Receipts {
			places = append(places, place{d, &d.Receipts[i]})
		}
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.to.Number, b.to.Number) })
	for _, p := range places {
		b, err := line(p.to.Number)
		if err != nil {
			return err
		}
		s, _, err := r.genuine(ctx, b)
		if err != nil || s.TokenID != p.of.TokenID || p.of.Nonce != "" && (s.Executor == nil || s.Executor.Nonce != p.of.Nonce) {
			return audit.ErrOther
		}
		*p.to = useOf{p.to.Number, s.TransactionID, s.MessageID, s.SeekerDID, s.AgentDID, s.Signer(), s.RequestAt.UTC().Format(receipt.TimeForm)}
	}
	return nil
}

func (r *reporting) tell(w io.Writer) {
	for _, d := range r.report.DoubleUses {
		what := "was used by two devices"
		if d.Kind == receipt.NonceTwice {
			what = "came twice with nonce " + d.Nonce
		}
		fmt.Fprintf(w, "%s  token %s %s\n", r.paint(yellow, "TWICE"), d.TokenID, what)
		for _, u := range d.Receipts {
			fmt.Fprintf(w, "       %s  seeker %s, signed by %s, %s\n", u.TransactionID, u.Seeker, u.Signer, u.RequestAt)
		}
		if d.More > 0 {
			fmt.Fprintf(w, "       and %d more\n", d.More)
		}
	}
	if n := r.report.MoreUses; n > 0 {
		fmt.Fprintf(w, "%s  %s of more tokens\n", r.paint(yellow, "TWICE"), count(n, "receipt"))
	}
	for _, u := range r.report.Unverified {
		id := u.TransactionID
		if id == "" {
			id = fmt.Sprint("receipt ", u.Number+1)
		}
		fmt.Fprintf(w, "%s  %s: %s\n", r.paint(yellow, "WRONG"), id, u.Why)
	}
	of := ""
	if l := r.report.Ledger; l != nil {
		of = ", all that the ledger has"
	}
	wrong := len(r.report.Unverified) + r.report.MoreWrong
	switch {
	case wrong > 0:
		of += fmt.Sprintf(", %d of them without a signature that holds", wrong)
	case len(r.report.DoubleUses) == 0:
		fmt.Fprintf(w, "%s     %s looked at%s: no token was used by two\n", r.paint(green, "ok"), count(r.report.Receipts, "receipt"), of)
		return
	}
	fmt.Fprintf(w, "%s looked at%s\n", count(r.report.Receipts, "receipt"), of)
}
