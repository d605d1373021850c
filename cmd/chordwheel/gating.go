package main

import (
	"fmt"
	"time"

	"github.com/chordwheel/chordwheel/daemon/authority"
	"github.com/chordwheel/chordwheel/daemon/gate"
)

// Ages and intervals of a registry's snapshot where nothing is set.
const (
	snapshotAge    = time.Hour       // of a registry elsewhere
	snapshotAgeOwn = 168 * time.Hour // of the hub's, as long as a chain lives
	snapshotEvery  = time.Minute     // of a registry elsewhere; the hub's is asked with each visit
	longestVisits  = 30 * time.Minute
)

// maxAge is how old the snapshot of the registry may be.
func (c *deviceConfig) maxAge() time.Duration {
	switch {
	case c.SnapshotAge > 0:
		return c.SnapshotAge
	case c.RegistryURL != "":
		return snapshotAge
	}
	return snapshotAgeOwn
}

// every is the time between two refreshes beside those of visits, 0 for none.
func (c *deviceConfig) every() time.Duration {
	if c.SnapshotEvery == 0 && c.RegistryURL != "" {
		return snapshotEvery
	}
	return c.SnapshotEvery
}

// wrongServices checks who vouches for agents, and how strictly.
func (c *deviceConfig) wrongServices() (wrong []string) {
	for _, u := range []struct{ name, value string }{{"LEDGER_URL", c.LedgerURL}, {"REGISTRY_URL", c.RegistryURL}, {"TRUST_URL", c.TrustURL}} {
		if u.value != "" {
			if err := authority.Check(u.value); err != nil {
				wrong = append(wrong, u.name+": "+err.Error())
			}
		}
	}
	if _, err := gate.ParseMode(c.GateMode); err != nil {
		wrong = append(wrong, "GATE_MODE: "+err.Error())
	}
	if c.RefreshSkew <= 0 || c.RefreshSkew > 30*time.Minute {
		wrong = append(wrong, "REFRESH_SKEW must be a duration above 0 and at most 30m, such as 60s")
	}
	if c.SnapshotAge < 0 || c.SnapshotAge > 0 && c.SnapshotAge < time.Second {
		wrong = append(wrong, "SNAPSHOT_MAX_AGE must be a duration of at least 1s, such as 1h")
	}
	switch every := c.every(); {
	case every < 0, every > 0 && every < time.Second:
		wrong = append(wrong, "CHORDWHEEL_SNAPSHOT_INTERVAL must be a duration of at least 1s, such as 60s")
	case every > 0 && every >= c.maxAge():
		wrong = append(wrong, fmt.Sprintf("SNAPSHOT_MAX_AGE (%s) must be longer than CHORDWHEEL_SNAPSHOT_INTERVAL (%s), or each snapshot is stale before the next", c.maxAge(), every))
	case every == 0 && c.maxAge() < longestVisits:
		wrong = append(wrong, fmt.Sprintf("SNAPSHOT_MAX_AGE (%s) is shorter than the time between two visits to the hub: set CHORDWHEEL_SNAPSHOT_INTERVAL too", c.maxAge()))
	}
	if _, err := c.selection(); err != nil {
		wrong = append(wrong, err.Error())
	}
	if _, err := authorities(c.TLSCA); err != nil {
		wrong = append(wrong, err.Error())
	}
	return wrong
}
