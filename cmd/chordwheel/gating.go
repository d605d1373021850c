package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon"
	"github.com/chordwheel/chordwheel/daemon/authority"
	"github.com/chordwheel/chordwheel/daemon/control"
	"github.com/chordwheel/chordwheel/daemon/gate"
	"github.com/chordwheel/chordwheel/daemon/selection"
	"github.com/chordwheel/chordwheel/daemon/snapshot"
	"github.com/chordwheel/chordwheel/daemon/token"
	"github.com/chordwheel/chordwheel/store/datadir"
)

// lastGoodFile keeps the last good snapshot of the registry.
const lastGoodFile = "registry.last-good"

// hubRegistry is what the hub's registry is called there: where it is changes.
const hubRegistry = "the hub's"

// openGating opens what says who may be asked for work, and who vouches for it.
func (d *device) openGating(key chain.Key) (g daemon.Gating, err error) {
	c := &d.options.config
	registry, err := d.service(c.RegistryURL, false)
	if err != nil {
		return g, err
	}
	trust, err := d.service(c.TrustURL, false)
	if err != nil {
		return g, err
	}
	keep := snapshot.Config{Server: registry, Registry: c.RegistryURL, Store: datadir.File(filepath.Join(d.options.dir, lastGoodFile)), MaxAge: c.maxAge(), Interval: c.every(), Log: d.log}
	if c.RegistryURL == "" {
		keep.Registry, keep.Own = hubRegistry, true // its chains stand in for it at first, not a seed
	} else if keep.Seed, err = c.seed(); err != nil {
		return g, usage("%w", err)
	}
	if d.agents, err = snapshot.New(keep); err != nil {
		return g, usage("%w", err)
	}
	issuer := gate.Exactly(c.TrustIssuer)
	if c.TrustURL == "" {
		issuer = func(iss string) bool { return d.Issues(iss) } // the device is made later
	}
	if d.tokens, err = token.New(token.Config{Server: trust, Key: key, Issuer: issuer, Skew: c.RefreshSkew, Log: d.log}); err != nil {
		return g, err
	}
	judge, err := gate.New(gate.Mode(c.GateMode), gate.Verifier{Keys: d.tokens, Issuer: issuer}, d.agents)
	return daemon.Gating{Registry: d.agents, Tokens: d.tokens, Gate: judge}, err
}

// seed reads the seed file, nil without one.
func (c *deviceConfig) seed() ([]byte, error) {
	if c.Seed == "" {
		return nil, nil
	}
	f, err := os.Open(c.Seed)
	if err != nil {
		return nil, fmt.Errorf("SEED_PATH: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, selection.MaxSeedBytes+1))
	if err != nil {
		return nil, fmt.Errorf("SEED_PATH: %w", err)
	}
	return b, nil
}

// gatingLines tell what the gate did, and what it goes by.
func (a *app) gatingLines(g *control.Gating, now time.Time) (verdicts, registry string) {
	verdicts = fmt.Sprintf("%s: %d allowed, %d denied", g.Mode, g.Allowed, g.Denied)
	if g.Tokenless > 0 {
		verdicts += fmt.Sprintf(", %d of them without a token", g.Tokenless)
	}
	s := g.Snapshot
	if s == nil {
		return verdicts, ""
	}
	registry = map[string]string{"hub": "the hub's", "external": "elsewhere"}[s.Registry]
	switch {
	case s.Empty:
		registry += ", lists no agents"
	case s.FetchedAt == nil:
		registry += ", not heard yet"
	default:
		registry += fmt.Sprintf(": %s, %s, of %s", count(s.Agents, "agent"), s.Source, ago(*s.FetchedAt, now))
	}
	if s.Problem != "" {
		registry += a.paint(yellow, ", "+s.Problem)
	}
	if s.LastError != "" {
		registry += a.paint(yellow, " ("+s.LastError+")")
	}
	return verdicts, registry
}

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
	// What a registry says is believed, and tokens are worth what they let through: neither goes
	// over a LAN in the clear.
	for _, u := range []struct {
		name, value string
		lan         bool
	}{{"LEDGER_URL", c.LedgerURL, true}, {"REGISTRY_URL", c.RegistryURL, false}, {"TRUST_URL", c.TrustURL, false}} {
		if u.value != "" {
			if err := authority.Check(u.value, authority.Options{LAN: u.lan}); err != nil {
				wrong = append(wrong, u.name+": "+err.Error())
			}
		}
	}
	if c.TrustIssuer != "" && c.TrustURL == "" {
		wrong = append(wrong, "CHORDWHEEL_TRUST_ISSUER is of the trust server at TRUST_URL, which is not set")
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
