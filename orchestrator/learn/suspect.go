package learn

import (
	"math"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/estimate"
)

// When an option is suspect: slow estimates alone lose most in and after outages,
// for what nobody uses keeps its good or bad name for days.
const (
	suspectWindow   = 15 * time.Minute
	suspectDevices  = 3
	suspectStanding = 1.0 // of the oldest member that ever tried it: what these devices must count for together
	suspectWeight   = estimate.MaxWeight
)

// verdict is an answer of Suspect, and how long it holds without news.
type verdict struct {
	from, until time.Time
	p           float64
	suspect     bool
}

// Suspect reports whether at least 3 devices tried k in the last 15 min and more
// than half of these failed in their last attempt. What a device counts for is as
// in the estimates, by age and network; and all of them must count for as much as
// one old member, so that a few that joined just now set no mark in an old fleet. Then p is what to expect of it
// meanwhile, and until is when the mark may end by itself.
func (b *Book) Suspect(k Key, now time.Time) (p float64, until time.Time, suspect bool) {
	r := b.records[k]
	if r == nil {
		return 0, until, false
	}
	v := r.suspect
	if v == nil || now.Before(v.from) || !now.Before(v.until) {
		v = r.judge(now)
		r.suspect = v
	}
	if !v.suspect {
		return 0, until, false
	}
	return v.p, v.until, true
}

func (r *Record) judge(now time.Time) *verdict {
	at, oldest, highest := chain.InstantOf(now), chain.Instant(math.MaxInt64), 0.0
	since, latest := chain.InstantOf(now.Add(-suspectWindow)), chain.InstantOf(now.Add(chain.Leeway))
	var list []witness
	for i := range r.cells {
		c := &r.cells[i]
		weight := standing(c.since, at)
		highest = max(highest, weight)
		if c.last <= since || c.last > latest {
			continue
		}
		oldest = min(oldest, c.last)
		w := witness{id: c.id, network: c.network, standing: weight}
		if !c.lastOK {
			w.own = 1
		}
		list = append(list, w)
	}
	capNetworks(list)
	failed, all := 0.0, 0.0
	for i := range list {
		failed += float64(list[i].standing * list[i].own)
		all += list[i].standing
	}
	v := &verdict{from: now, until: now.Add(suspectWindow)}
	if len(list) > 0 {
		v.until = oldest.Time().Add(suspectWindow)
	}
	if len(list) >= suspectDevices && 2*failed > all && all >= suspectStanding*highest {
		devices := float64(len(list))
		v.suspect, v.p = true, (float64(devices*((all-failed)/all))+0.5)/(devices+1)
	}
	return v
}
