package wave

import (
	"errors"
	"fmt"
	"time"
)

// Settings are the owner's, of the section pipeline of a device's configuration.
type Settings struct {
	Parallel    int           // subtasks of a wave that run at once, 1 to 20
	Race        bool          // several copies of a task of RaceTiers begin together
	Replicas    int           // how many, 1 to 5
	RaceTiers   []int         // each 1 to 3
	Alpha       float64       // of a worker's rank: 1 is quality alone, 0 speed alone
	Floor       float64       // a speed below it counts as it, 0 to 1
	Window      time.Duration // what is remembered of speed and hedges, 1 h to 168 h
	TierDown    bool          // a hedge may go one tier lower
	HedgeAfter  time.Duration // a copy that runs longer gets a second one; 0 never
	HedgeBudget float64       // hedges are at most this part of the jobs of a window, 0 to 1
}

// Default gives the settings of a device whose owner said nothing.
func Default() Settings {
	return Settings{
		Parallel: 5, Replicas: 2, RaceTiers: []int{1, 2}, Alpha: 1, Floor: 0.1, Window: 24 * time.Hour,
		TierDown: true, HedgeAfter: 75 * time.Second, HedgeBudget: 0.05,
	}
}

// Validate names each setting that is out of its range, as it is called in a
// configuration, with the range.
func (s Settings) Validate() error {
	var wrong []error
	within := func(name string, value, low, high float64) {
		if !(value >= low && value <= high) {
			wrong = append(wrong, fmt.Errorf("%s is %g: it goes from %g to %g", name, value, low, high))
		}
	}
	within("max_parallel_subtasks", float64(s.Parallel), 1, 20)
	within("race_replicas", float64(s.Replicas), 1, 5)
	for _, tier := range s.RaceTiers {
		within("race_tiers", float64(tier), 1, 3)
	}
	within("throughput_alpha", s.Alpha, 0, 1)
	within("throughput_floor", s.Floor, 0, 1)
	within("throughput_window_hours", s.Window.Hours(), 1, 168)
	within("hedge_budget", s.HedgeBudget, 0, 1)
	if s.HedgeAfter < 0 {
		wrong = append(wrong, fmt.Errorf("hedge_after is %s: it is not below 0", s.HedgeAfter))
	}
	return errors.Join(wrong...)
}
