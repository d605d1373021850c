package simulate

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// Result is what came of a scenario.
type Result struct {
	Name     string    `json:"name"`
	About    string    `json:"about,omitempty"`
	Seed     uint64    `json:"seed"`
	Devices  int       `json:"devices"`
	Options  int       `json:"options"`
	Days     float64   `json:"days"`
	Sampling float64   `json:"sampling"`
	Outcomes []Outcome `json:"policies"` // the product first
}

// Outcome is what one policy made of it. Costs are micro-dollars, of time, money,
// failures and quality, as the hub weighs them; liars' requests are not in it.
type Outcome struct {
	Policy      string    `json:"policy"`
	Requests    uint64    `json:"requests"`
	Cost        float64   `json:"cost"`    // of a request, probes included
	OverC1      float64   `json:"over_c1"` // share by which that is more than who knows everything pays: the regret
	OverC2      float64   `json:"over_c2"`
	Seconds     float64   `json:"seconds"` // mean time to the end of a request
	P50         float64   `json:"p50"`
	P95         float64   `json:"p95"`
	Success     float64   `json:"success"`      // share of requests that got an answer
	Attempts    float64   `json:"attempts"`     // of a request
	Best        float64   `json:"best"`         // share of requests that tried the best option of the moment first
	Dead        float64   `json:"dead"`         // share of requests that first tried one that was down
	DeadLate    float64   `json:"dead_late"`    // the same, where it had been down for 5 minutes
	Orders      float64   `json:"orders"`       // a device and day: its order at a request was another than at the one before
	OwnReorders float64   `json:"own_reorders"` // a device and day: options that it moved by itself
	HubReorders float64   `json:"hub_reorders"` // a day: chains with another order
	Editions    float64   `json:"editions"`     // a day: chains
	Protests    uint64    `json:"protests"`     // requests whose chain was exhausted asked the hub
	Extensions  uint64    `json:"extensions"`   // and got an option
	Probing     float64   `json:"probing"`      // part of the cost: what probes were billed
	Probes      uint64    `json:"probes"`
	Bytes       float64   `json:"bytes"` // a device and day, to and from the hub
	Ceilings    []Account `json:"ceilings,omitempty"`
	Series      []Hour    `json:"series,omitempty"`
}

// Account is what became of a ceiling, in calls or micro-dollars.
type Account struct {
	Name  string `json:"name"`
	Calls bool   `json:"calls"`
	Limit int64  `json:"limit"`
	Most  int64  `json:"most"`  // used in one period
	Over  int64  `json:"over"`  // beyond the limit, at worst
	Block int64  `json:"block"` // the largest that was leased

	period time.Time
	now    int64
}

// Hour is an hour of a run. Shares and means are of the requests that ended in it.
type Hour struct {
	Requests float64 `json:"requests"`
	Cost     float64 `json:"cost"`
	Seconds  float64 `json:"seconds"`
	Answered float64 `json:"answered"`
	Best     float64 `json:"best"`
	Dead     float64 `json:"dead"`
	Reorders float64 `json:"reorders"` // a device
	Protests float64 `json:"protests"`
	Bytes    float64 `json:"bytes"` // a device
	Hub      float64 `json:"hub"`   // share by which the hub's order is dearer than the best for the middle of the fleet
}

// Policies gives the names of those to run: the product and both clairvoyants, and
// the baselines that the scenario names, or all. They are those that wanted wants,
// if it is not nil.
func (s *Scenario) Policies(wanted func(policy string) bool) (list []string) {
	if wanted == nil {
		wanted = func(p string) bool { return len(s.Baselines) == 0 || slices.Contains(s.Baselines, p) }
	}
	for _, p := range Names() {
		if p == Product || p == C1 || p == C2 || wanted(p) {
			list = append(list, p)
		}
	}
	return list
}

// Run simulates one policy: seconds for a week of hundreds of devices. Runs may go
// on beside each other: they share nothing but s, which none changes. It fails only
// when ctx ends. far, if not nil, is told now and then which share of the time is
// simulated, 1 at the end.
func (s *Scenario) Run(ctx context.Context, policy string, far func(share float64)) (Outcome, error) {
	m := newSim(s)
	if far != nil {
		m.far = far
	}
	if policy == Product {
		m.policy = newProduct(m)
	} else {
		m.policy = newBaseline(m, policy)
	}
	if err := m.run(ctx); err != nil {
		return Outcome{}, fmt.Errorf("simulate %s: %w", policy, err)
	}
	return m.tally.outcome(m, policy), nil
}

// Compare puts the outcomes of a scenario side by side.
func (s *Scenario) Compare(name string, outcomes []Outcome) Result {
	r := Result{Name: name, About: s.About, Seed: s.Seed, Devices: s.Fleet.Devices, Options: len(s.Options), Days: s.Days, Sampling: s.Rules.Sampling, Outcomes: outcomes}
	r.compare()
	return r
}

// compare fills in what hangs on the clairvoyants.
func (r *Result) compare() {
	c1, c2 := r.Of(C1), r.Of(C2)
	for i := range r.Outcomes {
		o := &r.Outcomes[i]
		if c1 != nil && c1.Cost > 0 {
			o.OverC1 = o.Cost/c1.Cost - 1
		}
		if c2 != nil && c2.Cost > 0 {
			o.OverC2 = o.Cost/c2.Cost - 1
		}
	}
}

// Of gives the outcome of a policy, nil if it was not run.
func (r *Result) Of(policy string) *Outcome {
	for i := range r.Outcomes {
		if r.Outcomes[i].Policy == policy {
			return &r.Outcomes[i]
		}
	}
	return nil
}

func (t *tally) outcome(s *sim, name string) Outcome {
	honest := 0
	for _, d := range s.devices {
		if !d.liar {
			honest++
		}
	}
	n, days := float64(max(t.requests, 1)), s.s.Days
	each := float64(max(honest, 1)) * days
	o := Outcome{Policy: name, Requests: t.requests, Cost: (t.cost + t.probing) / n, Seconds: t.waits / n, P50: t.latency.quantile(0.5), P95: t.latency.quantile(0.95),
		Success: float64(t.answered) / n, Attempts: float64(t.attempts) / n, Best: float64(t.best) / n, Dead: float64(t.dead) / n, DeadLate: float64(t.deadLate) / n,
		Orders: float64(t.orders) / each, OwnReorders: float64(t.ownReorders) / each, HubReorders: float64(t.hubReorders) / days, Editions: float64(t.editions) / days,
		Protests: t.protests, Extensions: t.extensions, Probes: t.probes, Probing: t.probing / n, Bytes: float64(t.bytes) / float64(len(s.devices)) / days, Series: t.series}
	for _, a := range t.accounts {
		o.Ceilings = append(o.Ceilings, *a)
	}
	return o
}
