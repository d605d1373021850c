package resolve

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/chordwheel/chordwheel/chain"
)

const tierWeight = 8

// quorum is the number of seeds that put an option in without a default list or a pin.
const quorum = 2

// unlisted is the place of an option that no default list holds, where the order is fixed.
const unlisted = math.MaxInt

// builtinPrefix begins the ids of the models that every device has inside
// ([chain.BuiltinOption]). They are in a chain only where a list names them: else
// they would stand in front of the services that a catalogue is about.
const builtinPrefix = "local/builtin/"

// sow gives every candidate what the lists say of it: who puts it in, where a
// fixed order has it, and its share of the credit. The tensor is sparse: only
// what a list holds is touched.
func (w *work) sow() {
	w.seeds = make([]Seed, 0, len(w.in.Seeds)+1)
	w.seeds = append(append(w.seeds, Seed{Name: "global", Source: "catalogue", Options: w.spelled(), Default: true}), w.in.Seeds...)
	slices.SortStableFunc(w.seeds, func(a, b Seed) int { return cmp.Or(cmp.Compare(a.Tier, b.Tier), cmp.Compare(a.Source, b.Source)) })

	total := 0.0
	for from := 0; from < len(w.seeds); {
		to, filled := from, 0
		for ; to < len(w.seeds) && w.seeds[to].Tier == w.seeds[from].Tier; to++ {
			if len(w.seeds[to].Options) > 0 {
				filled++
			}
		}
		if filled > 0 { // a tier counts that holds any entry
			weight := math.Pow(tierWeight, float64(w.seeds[from].Tier))
			total += weight
			for i := from; i < to; i++ {
				w.credit(&w.seeds[i], weight/float64(filled))
			}
		}
		from = to
	}
	if total > 0 {
		for i := range w.all {
			w.all[i].share /= total
		}
	}
	w.list()
}

// credit gives the options of a seed their preference: place i of n is worth (n − i)/n.
func (w *work) credit(s *Seed, weight float64) {
	n := len(s.Options)
	for i, id := range s.Options {
		p := w.find(id)
		if p == nil || slices.Contains(s.Options[:i], id) {
			continue
		}
		p.share += float64(weight * float64(n-i) / float64(n))
		p.seeds++
		p.inDefault = p.inDefault || s.Default
	}
}

// list numbers the places of a fixed order: the default lists one after another,
// the most specific first.
func (w *work) list() {
	for i := range w.all {
		w.all[i].listed = unlisted
	}
	place := 0
	for i := len(w.seeds) - 1; i >= 0; i-- {
		if !w.seeds[i].Default {
			continue
		}
		for _, id := range w.seeds[i].Options {
			if p := w.find(id); p != nil && p.listed == unlisted {
				p.listed = place
				place++
			}
		}
	}
}

// spelled gives the catalogue's list with every local option in its place: where
// the list says "local", else in front.
func (w *work) spelled() []chain.OptionID {
	var locals []chain.OptionID
	for i := range w.all {
		c := w.all[i].c
		if c.Option.Kind == chain.Local && !strings.HasPrefix(string(c.Option.ID), builtinPrefix) && !c.Withheld && !slices.Contains(w.in.Default, c.Option.ID) {
			locals = append(locals, c.Option.ID)
		}
	}
	at := slices.Index(w.in.Default, LocalSlot)
	switch {
	case at >= 0:
		return slices.Concat(w.in.Default[:at], locals, w.in.Default[at+1:])
	case len(locals) > 0:
		return slices.Concat(locals, w.in.Default)
	}
	return w.in.Default
}

// Match reports whether an option's id fits a pattern: an id, in which each "*"
// stands for any run of characters, slashes among them.
func Match(pattern string, id chain.OptionID) bool { return chain.Match(pattern, string(id)) }
