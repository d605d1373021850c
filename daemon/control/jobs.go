package control

import (
	"net/http"
	"strconv"

	"github.com/chordwheel/chordwheel/daemon/job"
)

// Pipeline is what became of hard questions, since the start.
type Pipeline struct {
	Enabled       bool             `json:"enabled"`
	Pending       int              `json:"pending"` // jobs, now
	Running       int              `json:"running"`
	Done          uint64           `json:"done"`
	Failed        uint64           `json:"failed"`
	Superseded    uint64           `json:"superseded"`
	Cancelled     uint64           `json:"cancelled"`
	Refused       uint64           `json:"refused"` // results and the like that a job's state did not allow
	Hedges        uint64           `json:"hedges"`  // second copies of slow jobs
	HedgesWon     uint64           `json:"hedges_won"`
	HedgesPoor    uint64           `json:"hedges_over_budget"` // slow jobs without one: the budget was spent
	HedgesNowhere uint64           `json:"hedges_nowhere"`     // slow jobs without one: nobody else was there, or all were slow
	Stuck         uint64           `json:"stuck"`              // copies that did not end when they were cancelled
	Unscored      map[string]int64 `json:"unscored,omitempty"` // by model: scores that could not be read, and count as 1.0
}

// Bounds of a list of jobs.
const (
	defaultJobs = 20
	maxJobs     = job.MaxRoots
)

// serveJobs answers with the last requests of the pipeline, or with one and its
// parts.
func serveJobs(mux *http.ServeMux, d Device) {
	mux.HandleFunc("GET /api/v1/jobs", func(w http.ResponseWriter, r *http.Request) {
		n := defaultJobs
		if text := r.URL.Query().Get("n"); text != "" {
			var err error
			if n, err = strconv.Atoi(text); err != nil || n < 1 || n > maxJobs {
				fail(w, http.StatusBadRequest, "n: want 1 to "+strconv.Itoa(maxJobs))
				return
			}
		}
		answer(w, map[string][]job.Record{"jobs": append([]job.Record{}, d.Jobs().Roots(n)...)})
	})
	mux.HandleFunc("GET /api/v1/jobs/{id}", func(w http.ResponseWriter, r *http.Request) {
		tree := d.Jobs().Tree(r.PathValue("id"))
		if len(tree) == 0 {
			fail(w, http.StatusNotFound, "no job and no request of that ID is known here: chordwheel jobs lists the last ones")
			return
		}
		answer(w, map[string][]job.Record{"jobs": tree})
	})
}
