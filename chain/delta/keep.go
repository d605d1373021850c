package delta

import (
	"cmp"
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/estimate"
)

// Kept is a book as it is written down: counts, values and names of options,
// nothing of any request. It is meant for JSON, which keeps every number whole.
type Kept struct {
	Probed  chain.Instant `json:"probed,omitempty"`
	Records []KeptRecord  `json:"records"` // by primitive and option
}

// KeptRecord is one record of a [Kept].
type KeptRecord struct {
	Primitive   chain.Primitive   `json:"primitive"`
	Option      chain.OptionID    `json:"option"`
	Latency     estimate.Estimate `json:"latency"`
	Failure     estimate.Estimate `json:"failure"`
	Reliability estimate.Estimate `json:"reliability"`
	Distance    estimate.Estimate `json:"distance"`
	Last        chain.Instant     `json:"last,omitempty"`
	LastOK      bool              `json:"last_ok,omitempty"`
	Probed      chain.Instant     `json:"probed,omitempty"`
}

// forgotten is how long after its last attempt a record is worth keeping: its
// weight is less than a thousandth by then.
const forgotten = 30 * 24 * time.Hour

// Keep gives what is to be written down, and false if that is what was given
// last.
func (b *Book) Keep(now time.Time) (Kept, bool) {
	if !b.changed {
		return Kept{}, false
	}
	b.changed = false
	k := Kept{Probed: b.probed, Records: []KeptRecord{}}
	for key, r := range b.records {
		if now.Sub(max(r.Last, r.Probed).Time()) > forgotten {
			delete(b.records, key)
			continue
		}
		k.Records = append(k.Records, KeptRecord{key.Primitive, key.Option, r.Latency, r.Failure, r.Reliability, r.Distance, r.Last, r.LastOK, r.Probed})
	}
	slices.SortFunc(k.Records, func(a, b KeptRecord) int {
		return cmp.Or(cmp.Compare(a.Primitive, b.Primitive), cmp.Compare(a.Option, b.Option))
	})
	return k, true
}

// Restore takes in what Keep gave. A record that is from the future, because the
// clock was set back since, would age everything measured now: it is left out.
func (b *Book) Restore(k Kept, now time.Time) {
	latest := chain.InstantOf(now.Add(chain.Leeway))
	if k.Probed <= latest {
		b.probed = k.Probed
	}
	for _, r := range k.Records {
		newest := max(r.Last, r.Probed, r.Latency.Newest, r.Failure.Newest, r.Reliability.Newest, r.Distance.Newest)
		if r.Option == "" || newest > latest || len(b.records) >= maxKnown {
			continue
		}
		b.records[Key{r.Primitive, r.Option}] = &Record{r.Latency, r.Failure, r.Reliability, r.Distance, r.Last, r.LastOK, r.Probed}
	}
}
