package control

import (
	"net/http"

	jobs "github.com/chordwheel/chordwheel/daemon/job"
)

// Workers is the part of a [Device] that knows who works for it over HTTP.
type Workers interface {
	Workers() []jobs.Provider   // the oldest first
	DropWorker(id string) error // Asked if there is none
}

// serveProviders is the socket's part: its owner sees who works for the device, and ends
// one.
func serveProviders(mux *http.ServeMux, d Device) {
	mux.HandleFunc("GET /api/v1/providers", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, map[string][]jobs.Provider{"providers": append([]jobs.Provider{}, d.Workers()...)})
	})
	mux.HandleFunc("DELETE /api/v1/providers/{id}", func(w http.ResponseWriter, r *http.Request) {
		if err := d.DropWorker(r.PathValue("id")); err != nil {
			fail(w, statusOf(err), err.Error())
			return
		}
		answer(w, map[string]string{"dropped": r.PathValue("id")})
	})
}

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
