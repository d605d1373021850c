package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/apps"
	"github.com/chordwheel/chordwheel/daemon/control"
	"github.com/chordwheel/chordwheel/daemon/edge"
	"github.com/chordwheel/chordwheel/daemon/selection"
)

// appsFile is the name under which a device keeps its applications and what they
// used.
const appsFile = "apps.cbor"

// keepAppsEvery is how often what applications used is written down. A change of
// the applications is at once.
const keepAppsEvery = time.Minute

// Applications gives the applications of this device.
func (d *Daemon) Applications() *apps.Book { return d.apps }

// loadApps takes over the applications. One that cannot be read stops the start:
// without them, limits that the owner set would be gone and keys of others too.
func (d *Daemon) loadApps() error {
	d.apps = apps.New()
	b, err := d.cfg.State.ReadChecked(appsFile)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		d.apps, err = apps.Restore(b)
	}
	if err != nil {
		return fmt.Errorf("read the applications: %w; remove %s from the data directory and add them again", err, appsFile)
	}
	return nil
}

// keepApps writes down what changed.
func (d *Daemon) keepApps() error {
	b, changed, err := d.apps.Kept()
	if err != nil || !changed {
		return err
	}
	if err := d.cfg.State.WriteChecked(appsFile, b); err != nil {
		d.apps.Dirty()
		return fmt.Errorf("keep the applications: %w", err)
	}
	return nil
}

// allowed gives those of options that the application of w may use.
func (d *Daemon) allowed(w *edge.Work, options []chain.Option) []chain.Option {
	if !w.App.Restricted() {
		return options
	}
	var out []chain.Option
	for _, o := range options {
		if w.App.Allows(string(o.ID), o.Model, selection.AgentOf(&o, d.did)) {
			out = append(out, o)
		}
	}
	return out
}

// spends is what an attempt of this request reserves: of the leased blocks, and of
// the application's budget. What it used is counted either way.
func (r *run) spends() func(*chain.Option, string) (func(walk.Measurement), *walk.Short) {
	d, app, profile := r.daemon, r.work.App, r.chain.Rules().Profile
	leased := d.spends(r.chain.Slot(), r.work.Body, profile)
	return func(o *chain.Option, key string) (func(walk.Measurement), *walk.Short) {
		settle, short := leased(o, key)
		if short != nil {
			return nil, short
		}
		id, cost, expected := o.ID, o.Cost, int64(0)
		if o.Kind == chain.Peer { // it bills itself
			cost = chain.Cost{}
		}
		if app != nil && app.Budget > 0 {
			expected = bill(&cost, int64(len(r.work.Body)/bytesPerToken)+1, bound(r.work.Body, longAnswer*profile.Output))
			if now := time.Now(); !app.Reserve(expected, now) {
				if settle != nil {
					settle(walk.Measurement{Class: chain.Absent}) // nothing was sent: what was set aside is free again
				}
				return nil, shortOf(app, expected, now)
			}
		}
		return func(m walk.Measurement) {
			if settle != nil {
				settle(m)
			}
			actual := int64(0)
			if reached(m.Class) {
				actual = spent(m, &cost, expected)
			}
			now := time.Now()
			app.Settle(expected, actual, now)
			if m.Input+m.Output+actual > 0 {
				d.apps.Count(app, string(id), apps.Row{Input: m.Input, Output: m.Output, Money: actual}, now)
			}
		}, nil
	}
}

// shortOf says that the budget of app has too little left for an attempt that may cost so
// many micro-dollars, and until when.
func shortOf(app *apps.App, expected int64, now time.Time) *walk.Short {
	left, running, anew := app.Left(now)
	s := &walk.Short{Own: true}
	if expected <= left+running {
		s.Why = fmt.Sprintf("the budget of application %s has $%s left, and this may cost $%s; $%s more are set aside for what it has running: try again when that has ended", app.Name, dollars(left), dollars(expected), dollars(running))
		return s
	}
	s.Again = anew.Sub(now)
	s.Why = fmt.Sprintf("the budget of application %s is used up until %s: $%s of $%s a month are left, and this may cost $%s; `chordwheel apps list` shows it", app.Name, anew.Format(time.RFC3339), dollars(left), dollars(app.Budget), dollars(expected))
	return s
}

// dollars writes micro-dollars as dollars.
func dollars(micro int64) string { return strconv.FormatFloat(float64(micro)/1e6, 'f', -1, 64) }

// countApp counts a request for the application that sent it.
func (d *Daemon) countApp(app *apps.App, r *walk.Result) {
	row, model := apps.Row{Requests: 1}, string(r.Option)
	if r.End != walk.Answered {
		model = ""
		if r.End != walk.Left && r.End != walk.Refused {
			row.Failed = 1
		}
	}
	d.apps.Count(app, model, row, time.Now())
}

// AddApp takes in an application and gives its key. It is on disk then.
func (d *Daemon) AddApp(r apps.Rule) (chain.Secret, error) {
	if r.Scope != "" {
		d.mu.Lock()
		member := slices.Contains(d.joined.Scopes, r.Scope)
		d.mu.Unlock()
		if !member {
			return "", control.Asked(fmt.Sprintf("scope: this device is not a member of %s", chain.Clip(r.Scope)))
		}
	}
	key, err := d.apps.Add(r, time.Now())
	if err != nil {
		return "", control.Asked(err.Error())
	}
	if err := d.keepApps(); err != nil {
		return "", errors.Join(err, d.apps.Remove(r.Name))
	}
	return key, nil
}

// RemoveApp forgets an application at once.
func (d *Daemon) RemoveApp(name string) error {
	if err := d.apps.Remove(name); err != nil {
		return control.Asked(err.Error())
	}
	return d.keepApps()
}

// Apps lists the applications by name.
func (d *Daemon) Apps() []apps.View { return d.apps.List(time.Now()) }

// Usage gives what was used since a day.
func (d *Daemon) Usage(since time.Time) []apps.Row { return d.apps.Usage(since) }
