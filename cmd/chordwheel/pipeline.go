package main

import (
	"time"

	"github.com/chordwheel/chordwheel/daemon/pipeline"
	"github.com/chordwheel/chordwheel/daemon/pipeline/wave"
)

// pipelineConfig is `pipeline:` of a config.yaml: what becomes of hard questions.
// docs/configuration.md describes each field.
type pipelineConfig struct {
	Enabled                bool          `yaml:"enabled" env:"CHORDWHEEL_PIPELINE"`
	MinComplexity          int           `yaml:"min_complexity"`
	ClassifierEnabled      bool          `yaml:"classifier_enabled"`
	SupervisorFallbackTier int           `yaml:"supervisor_fallback_tier"`
	MaxParallelSubtasks    int           `yaml:"max_parallel_subtasks"`
	RaceMode               bool          `yaml:"race_mode"`
	RaceReplicas           int           `yaml:"race_replicas"`
	RaceTiers              []int         `yaml:"race_tiers"`
	MaxRewriteIterations   int           `yaml:"max_rewrite_iterations"`
	RewriteScoreThreshold  float64       `yaml:"rewrite_score_threshold"`
	ThroughputAlpha        float64       `yaml:"throughput_alpha"`
	ThroughputFloor        float64       `yaml:"throughput_floor"`
	ThroughputWindowHours  float64       `yaml:"throughput_window_hours"`
	ThroughputTierDown     bool          `yaml:"throughput_hedge_tierdown"`
	HedgeAfter             time.Duration `yaml:"hedge_after"`
	HedgeBudget            float64       `yaml:"hedge_budget"`
}

// defaultPipeline gives what holds where the owner says nothing.
func defaultPipeline() pipelineConfig {
	s := pipeline.Default()
	w := s.Waves
	return pipelineConfig{Enabled: s.Enabled, MinComplexity: s.MinComplexity, ClassifierEnabled: s.ClassifierEnabled, SupervisorFallbackTier: s.SupervisorFallbackTier,
		MaxParallelSubtasks: w.Parallel, RaceMode: w.Race, RaceReplicas: w.Replicas, RaceTiers: w.RaceTiers, MaxRewriteIterations: s.MaxRewriteIterations,
		RewriteScoreThreshold: s.RewriteScoreThreshold, ThroughputAlpha: w.Alpha, ThroughputFloor: w.Floor, ThroughputWindowHours: w.Window.Hours(),
		ThroughputTierDown: w.TierDown, HedgeAfter: w.HedgeAfter, HedgeBudget: w.HedgeBudget}
}

// settings gives c as the device keeps it. Its error is one line that names every
// setting out of its range, also of a pipeline that is off.
func (c *pipelineConfig) settings() (pipeline.Settings, error) {
	// Beyond a year a duration overflows; what is refused needs no more.
	window := time.Duration(min(max(c.ThroughputWindowHours, -1), 24*366) * float64(time.Hour))
	s := pipeline.Settings{Enabled: c.Enabled, MinComplexity: c.MinComplexity, ClassifierEnabled: c.ClassifierEnabled, SupervisorFallbackTier: c.SupervisorFallbackTier,
		MaxRewriteIterations: c.MaxRewriteIterations, RewriteScoreThreshold: c.RewriteScoreThreshold,
		Waves: wave.Settings{Parallel: c.MaxParallelSubtasks, Race: c.RaceMode, Replicas: c.RaceReplicas, RaceTiers: c.RaceTiers, Alpha: c.ThroughputAlpha,
			Floor: c.ThroughputFloor, Window: window, TierDown: c.ThroughputTierDown, HedgeAfter: c.HedgeAfter, HedgeBudget: c.HedgeBudget}}
	return s, s.Validate()
}
