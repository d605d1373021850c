package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/receipt"
)

// hash is for auditors: whoever has the text can make the hashes of a receipt.
func (a *app) hash() *cobra.Command {
	c := &cobra.Command{
		Use:   "hash",
		Short: "Make the hashes that receipts have, for auditors",
		Long: `Whoever has the text of a request or an answer can make the hashes that its
receipt has. Text comes from a FILE or from standard input.`,
		Example: "  chordwheel hash request < body.json\n  chordwheel hash completion answer.json\n  chordwheel hash text answer.txt",
		Args:    verb,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	kind := func(use, file, short string, of func([]byte) (string, error)) *cobra.Command {
		return &cobra.Command{Use: use + " [FILE]", Short: short, Example: "  chordwheel hash " + use + " " + file, Args: cobra.MaximumNArgs(1), RunE: func(_ *cobra.Command, args []string) error {
			in := a.in
			if len(args) > 0 && args[0] != "-" {
				f, err := os.Open(args[0])
				if err != nil {
					return err
				}
				defer f.Close()
				in = f
			}
			b, err := io.ReadAll(io.LimitReader(in, receipt.MaxBytes+1))
			if err != nil {
				return err
			}
			if len(b) > receipt.MaxBytes { // of a beginning no receipt has the hash
				return fmt.Errorf("that is longer than %d MiB, which no receipt is about", receipt.MaxBytes>>20)
			}
			sum, err := of(b)
			if err != nil {
				return err
			}
			return a.print(map[string]string{"hash": sum}, func(w io.Writer) { fmt.Fprintln(w, sum) })
		}}
	}
	c.AddCommand(
		kind("request", "body.json", "Hash a request's body", receipt.RequestHash),
		kind("text", "answer.txt", "Hash the text of an answer", func(b []byte) (string, error) { return receipt.ResponseHash(string(b), nil), nil }),
		kind("completion", "answer.json", "Hash a chat completion, plain or streamed, as the edge gave it", completionHash),
		kind("output", "output.json", "Hash the output of other work, its JSON", func(b []byte) (string, error) { return receipt.OutputHash(b), nil }),
	)
	return c
}

// completionHash hashes a chat completion, or the events of one.
func completionHash(b []byte) (string, error) {
	if json.Valid(b) {
		var is struct{ Choices, Error json.RawMessage }
		if json.Unmarshal(b, &is) != nil || is.Choices == nil && is.Error == nil {
			return "", errors.New("that is no chat completion: it has no choices; for a request's body: chordwheel hash request, for other work: chordwheel hash output")
		}
		r := receipt.NewResponse(chain.LLMChat, false)
		r.Add(b)
		return r.Hash(), nil
	}
	r, events := receipt.NewResponse(chain.LLMChat, true), 0
	for line := range bytes.Lines(b) {
		data, ok := bytes.CutPrefix(line, []byte("data:"))
		if data = bytes.TrimSpace(data); !ok || string(data) == "[DONE]" {
			continue
		}
		if !json.Valid(data) {
			return "", fmt.Errorf("event %d is no JSON", events+1)
		}
		r.Add(data)
		events++
	}
	if events == 0 {
		return "", errors.New("that is neither JSON nor a stream of events; for a text: chordwheel hash text")
	}
	return r.Hash(), nil
}
