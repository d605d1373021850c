package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/daemon/audit"
	"github.com/chordwheel/chordwheel/store/spool"
)

func (a *app) receipts() *cobra.Command {
	c := &cobra.Command{
		Use:   "receipts",
		Short: "Look at the receipts of this device, and check them",
		Long: `Every finished request leaves a signed receipt without a word of its content. It
waits on this device until the ledger has it. These commands read the device's
own files, also while it does not run.`,
		Example: "  chordwheel receipts list\n  chordwheel receipts verify\n  chordwheel receipts export > audit.jsonl && chordwheel receipts verify --offline audit.jsonl",
		Args:    verb,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(a.receiptsList(), a.receiptsShow(), a.receiptsVerify(), a.receiptsReport(), a.receiptsExport())
	return c
}

func (a *app) receiptsList() *cobra.Command {
	var limit int
	var token string
	c := &cobra.Command{Use: "list", Short: "List receipts, the newest last", Example: "  chordwheel receipts list --limit 100\n  chordwheel receipts list --token 7Q2ZK5V3JXN4", Args: cobra.NoArgs, RunE: func(*cobra.Command, []string) error {
		if limit < 1 {
			return usage("--limit must be 1 or more")
		}
		all, err := a.kept("")
		if err != nil {
			return err
		}
		if token != "" {
			all = slices.DeleteFunc(all, func(s receipt.Signed) bool { return s.TokenID != token })
		}
		all = all[max(0, len(all)-limit):]
		lines := make([]json.RawMessage, 0, len(all))
		var rows [][]string
		for _, s := range all {
			lines = append(lines, s.Line)
			rows = append(rows, []string{s.TransactionID, s.ResponseAt.Local().Format(time.DateTime), s.Capability, string(s.Status), shortDID(s.AgentDID)})
		}
		return a.print(lines, func(w io.Writer) {
			if len(rows) == 0 && token != "" {
				fmt.Fprintln(w, "no receipt names that token")
				return
			}
			if len(rows) == 0 {
				fmt.Fprintln(w, "there are no receipts yet; each request leaves one, such as: chordwheel chat hello")
				return
			}
			a.rows(w, []string{"transaction", "ended", "capability", "status", "agent"}, rows)
		})
	}}
	c.Flags().IntVar(&limit, "limit", 20, "how many `N` at most")
	c.Flags().StringVar(&token, "token", "", "only those that name the token `ID`")
	return c
}

// shortDID shows enough of a DID to tell it from others.
func shortDID(did string) string {
	if len(did) > 24 {
		return did[:14] + "…" + did[len(did)-8:]
	}
	return did
}

func (a *app) receiptsShow() *cobra.Command {
	return &cobra.Command{Use: "show TRANSACTION", Short: "Show the receipts of a transaction", Example: "  chordwheel receipts show FHF2TPOPC63KOY3ULKKZVDZAL3", Args: cobra.ExactArgs(1), RunE: func(_ *cobra.Command, args []string) error {
		all, err := a.kept(args[0])
		if err != nil {
			return err
		}
		lines := make([]json.RawMessage, 0, len(all))
		for _, s := range all {
			lines = append(lines, s.Line)
		}
		return a.print(lines, func(w io.Writer) {
			for _, line := range lines {
				var b bytes.Buffer
				if json.Indent(&b, line, "", "  ") == nil {
					fmt.Fprintln(w, b.String())
				}
			}
		})
	}}
}

func (a *app) receiptsExport() *cobra.Command {
	return &cobra.Command{Use: "export [TRANSACTION]", Short: "Print receipts with the ledger's proofs, one on a line, for others to verify", Example: "  chordwheel receipts export > audit.jsonl", Args: cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			transaction := ""
			if len(args) > 0 {
				transaction = args[0]
			}
			all, err := a.kept(transaction)
			if err != nil {
				return err
			}
			v := verification{app: a}
			auditor, err := v.auditor()
			if err != nil {
				return err
			}
			var without []string // one that waits, or was set aside, keeps no other back
			for _, s := range all {
				f, err := auditor.Check(c.Context(), s.Line, audit.Seen{})
				if err != nil {
					return unreachable("%s: %w", s.TransactionID, err)
				}
				if !f.OK {
					without = append(without, fmt.Sprintf("%s is not exported: %s", s.TransactionID, f.Wrong()))
				} else if err := oneLineJSON(a.out, f.Proven); err != nil {
					return err
				}
			}
			if len(without) > 0 {
				return errors.New(strings.Join(without, "\n"))
			}
			return nil
		}}
}

// kept reads the receipts of this device: all, or those of a transaction. Lines that are
// none any more are left out, and said.
func (a *app) kept(transaction string) ([]receipt.Signed, error) {
	all, damaged, err := a.lines(transaction)
	for _, b := range damaged {
		_, err := receipt.Parse(b)
		fmt.Fprintln(a.err, a.paint(yellow, "! a damaged line in the spool is left out: "+err.Error()))
	}
	return all, err
}

// lines reads the receipts of this device: all, or those of a transaction; and the lines
// that are none any more, whose transaction nobody knows.
func (a *app) lines(transaction string) (all []receipt.Signed, damaged [][]byte, err error) {
	dir, err := a.deviceDir()
	if err != nil {
		return nil, nil, err
	}
	config := defaultDevice(0, "127.0.0.1")
	if err := load(&config, dir, a.environ); err != nil {
		return nil, nil, usage("%w", err)
	}
	where := dir
	if config.SpoolDir != "" {
		where = config.SpoolDir
		if _, err := os.Stat(filepath.Join(where, filepath.Base(dir), "spool.lock")); err == nil { // of `up`
			where = filepath.Join(where, filepath.Base(dir))
		}
	}
	err = spool.Read(where, func(line []byte) error {
		if s, err := receipt.Parse(line); err != nil {
			damaged = append(damaged, bytes.Clone(line))
		} else if transaction == "" || s.TransactionID == transaction {
			all = append(all, s)
		}
		return nil
	})
	if err == nil && transaction != "" && len(all) == 0 {
		err = fmt.Errorf("this device has no receipt of transaction %s; chordwheel receipts list shows what it has, chordwheel trace REQUEST_ID the transaction of a request", chain.Clip(transaction))
	}
	return all, damaged, err
}
