package main

import (
	"fmt"
	"io"
	"os"

	"github.com/chordwheel/chordwheel/daemon"
	"github.com/chordwheel/chordwheel/daemon/selection"
)

// selection reads the seed file, if one is configured.
func (c *deviceConfig) selection() (daemon.Selection, error) {
	s := daemon.Selection{Default: c.DefaultModel, Timeout: c.SelectWait}
	if c.Seed == "" {
		return s, nil
	}
	f, err := os.Open(c.Seed)
	if err != nil {
		return s, fmt.Errorf("SEED_PATH: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, selection.MaxSeedBytes+1))
	if err == nil {
		s.Taxonomy, err = selection.Parse(b)
	}
	if err != nil {
		return s, fmt.Errorf("SEED_PATH: %s: %w", c.Seed, err)
	}
	return s, nil
}
