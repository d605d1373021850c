package control

import jobs "github.com/chordwheel/chordwheel/daemon/job"

// Providers are those that work for the device over HTTP.
type Providers struct {
	Online     int              `json:"online"`
	Registered []jobs.Provider  `json:"registered"`
	Counts     jobs.BoardCounts `json:"counts"`
}

func (e *exposition) providers(p *Providers) {
	if p == nil {
		return
	}
	e.gauge("chordwheel_providers_online", "Providers over HTTP that are there.", float64(p.Online))
	c := &p.Counts
	e.metric("chordwheel_results_refused_total", "counter", "Results and heartbeats of providers that did not count.", sample{float64(c.Unknown), []string{"reason", "unknown"}},
		sample{float64(c.NotYours), []string{"reason", "not_yours"}}, sample{float64(c.Over), []string{"reason", "over"}}, sample{float64(c.Different), []string{"reason", "different"}})
	e.count("chordwheel_leases_lost_total", "Jobs whose provider fell silent.", c.Lost)
	e.count("chordwheel_jobs_not_accepted_total", "Jobs that no provider took in time.", c.NotAccepted)
	e.count("chordwheel_provider_strangers_total", "Calls of the job API without a key that is known.", c.Strangers)
}
