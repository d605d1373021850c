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
	suspectWindow  = 15 * time.Minute
	suspectDevices = 3
	suspectWeight  = estimate.MaxWeight
)

// verdict is an answer of Suspect, and how long it holds without news.
type verdict struct {
	from, until time.Time
	p           float64
	suspect     bool
}

// Suspect reports whether at least 3 devices tried k in the last 15 min and more
// than half of these failed in their last attempt. Then p is what to expect of it
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
	devices, failed, oldest := 0, 0, chain.Instant(math.MaxInt64)
	since, latest := chain.InstantOf(now.Add(-suspectWindow)), chain.InstantOf(now.Add(chain.Leeway))
	for i := range r.cells {
		c := &r.cells[i]
		if c.last <= since || c.last > latest {
			continue
		}
		devices++
		oldest = min(oldest, c.last)
		if !c.lastOK {
			failed++
		}
	}
	v := &verdict{from: now, until: now.Add(suspectWindow)}
	if devices > 0 {
		v.until = oldest.Time().Add(suspectWindow)
	}
	if devices >= suspectDevices && 2*failed > devices {
		v.suspect, v.p = true, (float64(devices-failed)+0.5)/float64(devices+1)
	}
	return v
}
