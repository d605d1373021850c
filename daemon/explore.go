package daemon

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"math"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/delta"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/adapter"
	"github.com/chordwheel/chordwheel/daemon/edge"
)

// Constants of probes.
const (
	lookIdle     = 20 * time.Second // between two looks at whether there is time for one
	probeBudget  = 2 * time.Minute
	maxProbeIn   = 4000 // tokens; a longer profile is probed with as many
	maxProbeOut  = 1000
	maxProbeGrow = 8 // the most that the time of a shorter answer is scaled by

	// A probe is always reported in detail: its time is what it was sent for, and a
	// sample of so few would be next to none.
	probeSampling chain.PPM = 1e6
)

// probeSentence is all that a probe says, again and again: the product's own text,
// the same on every device, and no word of any user. It has twelve words, about
// sixteen tokens.
const probeSentence = "A wheel of chords turns slowly, and every spoke carries its share. "

const probeTokens = 16 // of probeSentence, about

// probeFor makes the fixed probe of a primitive, as long as its profile; nil where
// there is none.
func probeFor(p chain.Primitive, profile chain.Profile) []byte {
	if !p.LLM() {
		return nil
	}
	text := strings.Repeat(probeSentence, int(min(max(profile.Input/probeTokens, 1), maxProbeIn/probeTokens)))
	b, err := json.Marshal(map[string]any{"model": edge.Auto, "max_tokens": min(max(profile.Output, 1), maxProbeOut), "messages": []any{
		map[string]any{"role": "user", "content": text + "Continue in this manner, as long as you can."}}})
	if err != nil {
		return nil // there is nothing in it that could fail
	}
	return b
}

// scaled is what an answer as long as the profile would have taken.
func scaled(took time.Duration, output int64, profile chain.Profile) time.Duration {
	if output <= 0 || output >= profile.Output {
		return took
	}
	return time.Duration(float64(took) * math.Min(float64(profile.Output)/float64(output), maxProbeGrow))
}

// tend is what this device does beside requests and visits: it keeps what was
// measured, and explores while it is idle.
func (d *Daemon) tend(ctx context.Context) {
	keep, look := time.NewTicker(keepDeltasEvery), time.NewTicker(lookIdle)
	keepApps := time.NewTicker(keepAppsEvery)
	defer keepApps.Stop()
	defer keep.Stop()
	defer look.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-keepApps.C:
			if err := d.keepApps(); err != nil {
				d.cfg.Log.Warn("a restart would forget what applications used", "error", err)
			}
		case <-keep.C:
			if err := d.keepDeltas(); err != nil {
				d.cfg.Log.Warn("a restart would forget what this device measured", "error", err)
			}
			if err := d.keepSpeeds(); err != nil {
				d.cfg.Log.Warn("a restart would forget how fast jobs were", "error", err)
			}
		case <-look.C:
			if d.cfg.Explore {
				d.explore(ctx)
			}
		}
	}
}

// explore sends one probe if there is time and an allowance for it.
func (d *Daemon) explore(ctx context.Context) {
	c, choice, ok := d.choose()
	if !ok {
		return
	}
	if err := d.keepDeltas(); err != nil { // an allowance that a restart would give again is none
		d.cfg.Log.Warn("no probe is sent: that it was could not be kept", "error", err)
		return
	}
	ctx, cancel := context.WithTimeout(ctx, probeBudget)
	defer cancel()
	d.mu.Lock()
	d.stopProbe = cancel
	d.mu.Unlock()
	if d.counts.inFlight.Load() == 0 { // a request that came meanwhile goes first
		d.probe(ctx, c, choice)
	}
	d.mu.Lock()
	d.stopProbe = nil
	d.mu.Unlock()
}

// choose picks what to probe, and notes that it will be.
func (d *Daemon) choose() (*chain.Chain, delta.Choice, bool) {
	now := time.Now()
	idle := delta.Idle{Busy: d.counts.inFlight.Load() > 0 || d.foreign.load().Running > 0, For: now.Sub(d.lastWork()), Used: d.usedOf,
		Fleet: len(d.peers.Peers(now)) + 1, Lot: delta.LotOf(d.cfg.Key.PeerID()),
		Can: func(s chain.Slot, o *chain.Option) bool {
			return probeFor(s.Primitive, chain.Profile{}) != nil && d.active(o, s.Primitive)
		}}
	chains := map[chain.Slot]*chain.Chain{}
	var views []delta.View
	for _, c := range d.cfg.Chains.All() {
		if _, err := d.inForce(c.Slot().Primitive, chain.Qualifier{}); err == nil && !c.Expired(now) {
			chains[c.Slot()] = c
			views = append(views, d.view(c))
		}
	}
	d.deltas.mu.Lock()
	defer d.deltas.mu.Unlock()
	choice, ok := d.deltas.book.Explore(views, idle, now)
	if ok {
		d.deltas.book.Probed(choice, now)
	}
	return chains[choice.Slot], choice, ok
}

// usedOf is the spent share of the tightest ceiling that o counts against.
func (d *Daemon) usedOf(o *chain.Option) float64 {
	most := 0.0
	for _, a := range o.Accounts {
		most = max(most, d.purse.Used(a.Name))
	}
	return most
}

// probe runs one option of c. It is measured, reported and billed like a request's
// attempt, and is none: nobody waits for it and it leaves no receipt.
func (d *Daemon) probe(ctx context.Context, c *chain.Chain, choice delta.Choice) {
	rules := c.Rules()
	body := probeFor(choice.Slot.Primitive, rules.Profile)
	var one []chain.Option
	for _, o := range d.effective(c.Options()) {
		if o.ID == choice.Option {
			one = append(one, o)
		}
	}
	w := &edge.Work{ID: "probe-" + rand.Text(), Primitive: choice.Slot.Primitive, Body: body, Model: edge.Auto}
	r := &run{daemon: d, chain: c, work: w, left: func() bool { return ctx.Err() != nil },
		request: adapter.Request{ID: w.ID, Primitive: w.Primitive, Body: body, Model: edge.Auto}}
	hooks := r.hooks(true) // no protest for a probe
	hooks.Measure = func(m walk.Measurement) {
		m.Total = scaled(m.Total, m.Output, rules.Profile)
		d.measured(c, m, probeSampling)
	}
	hooks.Notice = nil
	result := walk.Run(ctx, walk.Plan{Options: one, Rules: rules, Limits: d.cfg.Defaults, Budget: probeBudget, Attempts: 1, Hooks: hooks},
		d.standing, r, func(walk.Attempt, [][]byte) error { return nil })
	d.counts.probes.Add(1)
	d.cfg.Log.Info("probe", "request_id", w.ID, "slot", choice.Slot.String(), "option", choice.Option, "reason", choice.Reason, "end", result.End)
}

// lastWork is when the last request ended, or this device started.
func (d *Daemon) lastWork() time.Time { return time.UnixMilli(d.lastEnd.Load()) }

// begins notes that a request is here: a probe under way gives way.
func (d *Daemon) begins() {
	d.counts.inFlight.Add(1)
	d.mu.Lock()
	if d.stopProbe != nil {
		d.stopProbe()
	}
	d.mu.Unlock()
}

func (d *Daemon) ends() {
	d.lastEnd.Store(time.Now().UnixMilli())
	d.counts.inFlight.Add(-1)
}
