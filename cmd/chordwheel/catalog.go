package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/chordwheel/chordwheel/orchestrator/catalog"
)

func (a *app) catalog() *cobra.Command {
	c := &cobra.Command{
		Use:     "catalog",
		Aliases: []string{"catalogue"},
		Short:   "Check a catalogue before it is put in force",
		Example: "  chordwheel catalog check catalogue.yaml",
		Args:    verb,
		RunE:    func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.AddCommand(&cobra.Command{
		Use:     "check FILE",
		Short:   "Name every fault of a catalogue, with its line and column",
		Example: "  chordwheel catalog check catalogue.yaml --json",
		Args:    cobra.ExactArgs(1),
		RunE:    func(_ *cobra.Command, args []string) error { return a.catalogCheck(args[0]) },
	})
	return c
}

func (a *app) catalogCheck(file string) error {
	c, _, err := readCatalog(file)
	var invalid *catalog.Invalid
	if errors.As(err, &invalid) {
		return a.catalogFaults(file, invalid)
	}
	if err != nil {
		return err
	}
	summary := struct {
		File       string `json:"file"`
		Valid      bool   `json:"valid"`
		Providers  int    `json:"providers"`
		Models     int    `json:"models"`
		Primitives int    `json:"primitives"`
		Workspaces int    `json:"workspaces"`
	}{File: file, Valid: true, Providers: len(c.Providers), Primitives: len(c.Primitives), Workspaces: len(c.Workspaces) + c.Enlisted()}
	for _, p := range c.Providers {
		summary.Models += len(p.Models)
	}
	return a.print(summary, func(w io.Writer) {
		fmt.Fprintf(w, "%s is valid: %s with %s, %s, %s\n", file, count(summary.Providers, "provider"), count(summary.Models, "model"),
			count(summary.Primitives, "primitive"), count(summary.Workspaces, "workspace"))
	})
}

func (a *app) catalogFaults(file string, invalid *catalog.Invalid) error {
	if !a.json {
		return &exit{exitFailed, fmt.Errorf("%s\n%s; nothing of it would be in force", strings.TrimSpace(invalid.Error()), count(len(invalid.Problems), "fault"))}
	}
	if err := a.print(map[string]any{"file": file, "valid": false, "problems": invalid.Problems}, nil); err != nil {
		return err
	}
	return &exit{exitFailed, fmt.Errorf("%s has %s", file, count(len(invalid.Problems), "fault"))}
}

func count(n int, word string) string { return fmt.Sprintf("%d %s", n, plural(n, word)) }
