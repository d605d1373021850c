package pipeline

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/job"
	"github.com/chordwheel/chordwheel/daemon/pipeline/wave"
)

// ErrNoModels says that no model at all answered: the one case without an answer.
var ErrNoModels = errors.New("no model answers")

// ErrBroken says that an answer broke off after a part of it went to the caller,
// so that nothing else could take its place.
var ErrBroken = errors.New("the answer broke off")

// Request is one chat that goes through the pipeline.
type Request struct {
	Body   []byte        // a chat completion request, checked by the edge; nobody changes it
	Ask    string        // the last words of a user in it, where known: an easy question needs no look at the rest
	Stream bool          // the caller takes the answer as it is made
	Budget time.Duration // for the whole of it; 0: as long as the context allows
}

// Output takes what goes to the caller. Both are called from one goroutine at a
// time, and not after Run returned; Progress may be nil.
type Output struct {
	Text     func(piece string) error // the next piece of the answer; the only piece where nothing streams
	Progress func(Progress)
}

// Progress tells a person what is going on. It holds no content.
type Progress struct {
	Stage     job.Role
	State     job.State  // running, done or failed
	Task      string     // the name of the task, as in [wave.Task]
	Wave      int        // from 1; 0 outside of waves
	Waves     int        // how many there are; 0 unknown
	Done      int        // subtasks that ended
	Tasks     int        // of so many
	Iteration *Iteration // of a score that was read
}

// Iteration is one look at the answer: what the record of its score may hold.
type Iteration struct {
	Score     float64 // 0 to 1
	Unscored  bool    // no score could be read, so 1.0 was taken
	Issues    int     // that the scorer named
	Fixed     int     // of the best answer's before it, that are gone
	NewIssues int     // that the best answer before it did not have
	Model     string  // that gave the score
}

// Result is how a request went. The sum of what its jobs cost is the job table's.
type Result struct {
	Class   string      // simple, complex, agentic: what was decided
	Reasons []string    // why, in words of ours
	Notes   []string    // the fallbacks that were taken, each once, in order; see docs/pipeline.md
	Last    chain.Class // how the last task ended; the reason when no model answers

	Short bool // the model whose words the answer is stopped at a limit of length

	Scored       bool
	First, Score float64     // of the first answer, and of the one that was given
	Iterations   int         // rewrites that were made, taken or not
	Issues       int         // left in the answer that was given
	Unscored     int         // scores that could not be read
	Log          []Iteration // the scores in order, of the answer before any rewrite first
}

// Dispatcher runs the tasks of one wave side by side and gives their outcomes in
// the same order, soon after ctx ended at the latest. [wave.Waves] is one.
type Dispatcher interface {
	Do(ctx context.Context, tasks []wave.Task) []wave.Outcome
}

// Pipeline holds the settings, and counts what models got wrong. It may be used
// from many goroutines.
type Pipeline struct {
	settings Settings

	mu       sync.Mutex
	unscored map[string]int64
}

// New makes a pipeline. The error names each setting that is out of its range.
func New(s Settings) (*Pipeline, error) {
	if err := s.Validate(); err != nil {
		return nil, err
	}
	return &Pipeline{settings: s, unscored: make(map[string]int64)}, nil
}

// Settings gives the settings in force.
func (p *Pipeline) Settings() Settings { return p.settings }

// maxModels bounds for how many models unread scores are counted; those of
// further ones count as "other". A name of a model may be a peer's word.
const maxModels = 128

// Unscored counts, by model, the answers that were to be a score and could not be
// read as one.
func (p *Pipeline) Unscored() map[string]int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	counts := make(map[string]int64, len(p.unscored))
	for model, n := range p.unscored {
		counts[model] = n
	}
	return counts
}

func (p *Pipeline) countUnscored(model string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	model = chain.ClipTo(model, chain.MaxNameBytes)
	if _, known := p.unscored[model]; !known && len(p.unscored) >= maxModels {
		model = "other"
	}
	p.unscored[model]++
}
