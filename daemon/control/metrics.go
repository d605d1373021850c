package control

import (
	"bytes"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// exposition is metrics in the text format of Prometheus.
type exposition struct{ bytes.Buffer }

// sample is one value of a metric, with its labels as name, value, name, value, …
type sample struct {
	value  float64
	labels []string
}

var escapeLabel = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// metric writes one, with all its values.
func (e *exposition) metric(name, kind, help string, samples ...sample) {
	if len(samples) == 0 {
		return
	}
	fmt.Fprintf(e, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
	for _, s := range samples {
		e.WriteString(name)
		for i := 0; i+1 < len(s.labels); i += 2 {
			e.WriteString(map[bool]string{true: "{", false: ","}[i == 0])
			fmt.Fprintf(e, `%s="%s"`, s.labels[i], escapeLabel.Replace(strings.ToValidUTF8(s.labels[i+1], "?")))
		}
		if len(s.labels) > 0 {
			e.WriteByte('}')
		}
		fmt.Fprintf(e, " %v\n", s.value)
	}
}

func (e *exposition) count(name, help string, n uint64) {
	e.metric(name, "counter", help, sample{value: float64(n)})
}

func (e *exposition) gauge(name, help string, n float64) {
	e.metric(name, "gauge", help, sample{value: n})
}

// metrics gives the figures of s. Names and labels are ours, but for the model of a
// score, which is bounded in length and number by who counts.
func metrics(s *Status) []byte {
	e := &exposition{}
	e.metric("chordwheel_info", "gauge", "The running program.", sample{1, []string{"version", s.Version}})
	e.gauge("chordwheel_ready", "1 while the device takes work.", one(s.Ready))
	e.gauge("chordwheel_hub_reachable", "1 while the hub is in reach.", one(s.Hub.Reachable))
	e.gauge("chordwheel_peers_live", "Devices in direct contact.", float64(s.Peers.Live))
	r := &s.Requests
	e.count("chordwheel_requests_total", "Requests of the edge.", r.Total)
	e.count("chordwheel_requests_failed_total", "Requests without an answer.", r.Failed)
	e.gauge("chordwheel_requests_in_flight", "Requests in work.", float64(r.InFlight))
	e.count("chordwheel_attempts_total", "Upstream calls.", r.Attempts)
	e.count("chordwheel_protests_total", "Protests to the hub.", r.Protests)
	e.count("chordwheel_extended_total", "Requests that walked an extension.", r.Extended)
	e.count("chordwheel_probes_total", "Probes while idle.", r.Probes)
	e.count("chordwheel_unproven_total", "Answers of peers whose statement did not hold.", r.Unproven)
	e.count("chordwheel_measurements_dropped_total", "Measurements that did not fit into reports.", r.Dropped)
	f := &s.Foreign
	e.gauge("chordwheel_foreign_running", "Work of other devices, now.", float64(f.Running))
	e.metric("chordwheel_foreign_total", "counter", "Work of other devices, by how it ended.",
		sample{float64(f.Answered), []string{"end", "answered"}}, sample{float64(f.Failed), []string{"end", "failed"}}, sample{float64(f.Left), []string{"end", "left"}})
	if q := s.Receipts; q != nil {
		e.gauge("chordwheel_receipts_waiting", "Receipts that wait for the ledger.", float64(q.Waiting))
		e.gauge("chordwheel_receipts_pending", "Receipts that are not on disk yet.", float64(q.Pending))
		e.count("chordwheel_receipts_sent_total", "Receipts that the ledger took.", uint64(max(0, q.Sent)))
		e.count("chordwheel_receipts_rejected_total", "Receipts that the ledger called invalid.", uint64(max(0, q.Rejected)))
		e.gauge("chordwheel_receipts_writable", "1 while the disk takes receipts.", one(q.Writable))
	}
	if g := s.Gating; g != nil {
		e.metric("chordwheel_gate_decisions_total", "counter", "Verdicts of the gate, whatever its mode.",
			sample{float64(g.Allowed), []string{"decision", "allow"}}, sample{float64(g.Denied), []string{"decision", "deny"}})
		e.count("chordwheel_gate_tokenless_total", "Work at the gate without a token.", g.Tokenless)
		if n := g.Snapshot; n != nil {
			e.gauge("chordwheel_snapshot_usable", "1 while the registry's word may be relied on.", one(n.Problem == ""))
			e.gauge("chordwheel_snapshot_agents", "Agents in the snapshot of the registry.", float64(n.Agents))
			if n.Age != nil {
				e.gauge("chordwheel_snapshot_age_seconds", "Age of the snapshot of the registry.", *n.Age)
			}
		}
	}
	e.pipeline(&s.Pipeline)
	e.providers(s.Providers)
	var traffic []sample
	for _, t := range s.Traffic {
		traffic = append(traffic, sample{float64(t.In), []string{"protocol", t.Protocol, "direction", "in"}}, sample{float64(t.Out), []string{"protocol", t.Protocol, "direction", "out"}})
	}
	e.metric("chordwheel_traffic_bytes_total", "counter", "Bytes of the mesh, by protocol.", traffic...)
	return e.Bytes()
}

func (e *exposition) pipeline(p *Pipeline) {
	e.metric("chordwheel_jobs", "gauge", "Jobs that have not ended.",
		sample{float64(p.Pending), []string{"state", "pending"}}, sample{float64(p.Running), []string{"state", "running"}})
	e.metric("chordwheel_jobs_ended_total", "counter", "Jobs by how they ended.", sample{float64(p.Done), []string{"state", "done"}},
		sample{float64(p.Failed), []string{"state", "failed"}}, sample{float64(p.Superseded), []string{"state", "superseded"}}, sample{float64(p.Cancelled), []string{"state", "cancelled"}})
	e.count("chordwheel_jobs_refused_total", "Results and the like that a job's state did not allow.", p.Refused)
	e.count("chordwheel_hedges_total", "Second copies of slow jobs.", p.Hedges)
	e.count("chordwheel_hedges_won_total", "Second copies that were faster.", p.HedgesWon)
	e.metric("chordwheel_hedges_refused_total", "counter", "Slow jobs that got no second copy.",
		sample{float64(p.HedgesPoor), []string{"reason", "budget"}}, sample{float64(p.HedgesNowhere), []string{"reason", "nowhere"}})
	e.count("chordwheel_jobs_stuck_total", "Copies that did not end when they were cancelled.", p.Stuck)
	var unread []sample
	for _, model := range slices.Sorted(maps.Keys(p.Unscored)) {
		unread = append(unread, sample{float64(p.Unscored[model]), []string{"model", model}})
	}
	e.metric("chordwheel_scores_unread_total", "counter", "Scores that could not be read and count as 1.0.", unread...)
}

func one(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// serveMetrics answers in the text format of Prometheus.
func serveMetrics(mux *http.ServeMux, d Device) {
	mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		s := d.Status()
		_, _ = w.Write(metrics(&s)) // the reader left: nothing to be done
	})
}
