package daemon

import (
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/delta"
	"github.com/chordwheel/chordwheel/daemon/bind"
	"github.com/chordwheel/chordwheel/daemon/edge"
	"github.com/chordwheel/chordwheel/daemon/pipeline/wave"
	"github.com/chordwheel/chordwheel/daemon/selection"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// offers gives the places where work of w's kind could run now, in the order in
// which a walk would try them: an option each, and for a slot one for each peer that
// could fill it.
func (d *Daemon) offers(w *edge.Work) []wave.Offer {
	choice, err := d.selects(w)
	if err != nil {
		return nil
	}
	now, c := time.Now(), choice.chain
	slot := c.Slot()
	resting := d.restingNames(now)
	own := map[chain.OptionID]delta.Row{}
	for _, row := range d.explained(c) {
		own[row.Option] = row
	}
	m, _, joined := d.own()
	submits := joined && m.Allows(chain.Submit) && len(w.Body) <= wire.MaxExecPayload
	var all []wave.Offer
	for i := range choice.options {
		o := &choice.options[i]
		switch {
		case !o.Known() || !d.runs(o) || !d.hasKey(o):
			continue
		case o.Kind == chain.Peer:
			if submits && !c.Rules().NoPeers {
				all = append(append(all, d.peerOffers(slot, o, now)...), d.providerOffer(slot, o, now)...)
			}
			continue
		}
		offer := wave.Offer{Option: o.ID, Provider: providerOf(o, "", d.did), Model: o.Model, Quality: o.Cost.Quality.Share(), Latency: o.Cost.Latency.Duration(),
			Resting: resting[string(o.ID)] || len(o.Keys) > 0 && !slices.ContainsFunc(o.Keys, func(k string) bool { return d.cfg.Keys.Generation(k) > 0 && !resting[keyName(k)] })}
		if row, ok := own[o.ID]; ok && row.Samples > 0 && row.Own.Latency > 0 {
			offer.Latency = time.Duration(row.Own.Latency * float64(time.Second))
		}
		if slices.ContainsFunc(o.Accounts, func(a chain.Account) bool { return a.Key == "" && d.purse.Free(a.Name, slot, now) <= 0 }) {
			offer.Resting = true
		}
		all = append(all, offer)
	}
	return all
}

// peerOffers gives one offer for each peer that could fill the slot o.
func (d *Daemon) peerOffers(slot chain.Slot, o *chain.Option, now time.Time) (all []wave.Offer) {
	ask := bind.Ask{Scope: slot.Scope, Primitive: slot.Primitive, Slot: o}
	cooling := func(p chain.PeerID) bool { return d.standing.PeerCooling(p, now) }
	for _, v := range d.peers.Explain(ask, cooling, now) {
		if v.Why != bind.Eligible && v.Why != bind.CoolingDown {
			continue
		}
		all = append(all, wave.Offer{Option: o.ID, Peer: v.Peer, Provider: providerOf(o, v.Peer, d.did), Device: string(v.Peer), Model: onlyModel(v.Capabilities),
			Quality: o.Cost.Quality.Share(), Latency: v.Completion, Resting: v.Why == bind.CoolingDown})
	}
	return all
}

// onlyModel gives the model of a peer that declares a single one. Which of several
// runs is the peer's to say.
func onlyModel(capabilities []chain.Capability) string {
	model := ""
	for _, c := range capabilities {
		if name, ok := c.Model(); ok {
			if model != "" {
				return ""
			}
			model = name
		}
	}
	return model
}

// restingNames gives what is left alone now: options by their ID, keys by keyName.
func (d *Daemon) restingNames(now time.Time) map[string]bool {
	names := map[string]bool{}
	for _, r := range d.resting(now) {
		switch {
		case r.Option != "":
			names[string(r.Option)] = true
		case r.Key != "":
			names[keyName(r.Key)] = true
		}
	}
	return names
}

func keyName(key string) string { return "key\x00" + key }

// providerOf names who is asked in the end: what shares it shares its fate.
func providerOf(o *chain.Option, peer chain.PeerID, self string) string {
	switch {
	case o.Kind == chain.Peer:
		return string(peer)
	case o.Domain != "":
		return o.Domain
	}
	return selection.AgentOf(o, self)
}
