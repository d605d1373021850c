package main

import (
	"fmt"

	"github.com/chordwheel/chordwheel/daemon"
	"github.com/chordwheel/chordwheel/daemon/selection"
)

// selection reads the seed file, if one is configured.
func (c *deviceConfig) selection() (daemon.Selection, error) {
	s := daemon.Selection{Default: c.DefaultModel, Timeout: c.SelectWait}
	if c.Seed == "" {
		return s, nil
	}
	b, err := c.seed()
	if err != nil {
		return s, err
	}
	if s.Taxonomy, err = selection.Parse(b); err != nil {
		return s, fmt.Errorf("SEED_PATH: %s: %w", c.Seed, err)
	}
	return s, nil
}
