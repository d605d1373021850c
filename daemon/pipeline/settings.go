package pipeline

import (
	"errors"
	"fmt"
	"strings"

	"github.com/chordwheel/chordwheel/daemon/pipeline/wave"
)

// Settings are what the owner says under pipeline in a device's configuration.
// [Default] gives the defaults; the zero value is not one.
type Settings struct {
	Enabled                bool    // off: every request is one walk
	MinComplexity          int     // 0 every request, 1 complex ones and up, 2 agentic ones only
	ClassifierEnabled      bool    // a T1 is asked where the heuristics are uncertain
	SupervisorFallbackTier int     // 2 or 3: who supervises when no T3 answers; 3 is nobody else
	MaxRewriteIterations   int     // 0 to 10; 0: no scores either, and the answer streams as it is made
	RewriteScoreThreshold  float64 // 0 to 1: answers below it are rewritten

	Waves wave.Settings // how tasks are run
}

// Default gives the settings of a device whose owner said nothing.
func Default() Settings {
	return Settings{
		MinComplexity: 1, ClassifierEnabled: true, SupervisorFallbackTier: 2, MaxRewriteIterations: 3, RewriteScoreThreshold: 0.7,
		Waves: wave.Default(),
	}
}

// Validate names each setting that is out of its range, as it is called in a
// configuration, with the range, all on one line.
func (s Settings) Validate() error {
	var wrong []string
	within := func(name string, value, low, high float64) {
		if !(value >= low && value <= high) { // not a number is out of each range
			wrong = append(wrong, fmt.Sprintf("%s is %g: it goes from %g to %g", name, value, low, high))
		}
	}
	within("min_complexity", float64(s.MinComplexity), 0, 2)
	within("supervisor_fallback_tier", float64(s.SupervisorFallbackTier), 2, 3)
	within("max_rewrite_iterations", float64(s.MaxRewriteIterations), 0, 10)
	within("rewrite_score_threshold", s.RewriteScoreThreshold, 0, 1)
	if err := s.Waves.Validate(); err != nil {
		wrong = append(wrong, strings.Split(err.Error(), "\n")...)
	}
	if len(wrong) > 0 {
		return errors.New("pipeline: " + strings.Join(wrong, "; "))
	}
	return nil
}
