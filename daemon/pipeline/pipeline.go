package pipeline

import (
	"errors"
	"time"

	"github.com/chordwheel/chordwheel/daemon/job"
)

// ErrNoModels says that no model at all answered: the one case without an answer.
var ErrNoModels = errors.New("no model answers")

// Request is one chat that goes through the pipeline.
type Request struct {
	Body   []byte        // a chat completion request, checked by the edge; nobody changes it
	Stream bool          // the caller takes the answer as it is made
	Budget time.Duration // for the whole of it
}

// Output takes what goes to the caller. Both are called from one goroutine at a
// time; Progress may be nil.
type Output struct {
	Text     func(piece string) error // the next piece of the answer; the only piece where nothing streams
	Progress func(Progress)
}

// Progress tells a person what is going on. It holds no content.
type Progress struct {
	Stage job.Role
	State job.State
	Task  string // of a subtask
	Wave  int
	Waves int     // how many there are; 0 unknown
	Done  int     // subtasks that ended
	Tasks int     // of so many
	Score float64 // of an ended score
}

// Result is how a request went. The sum of what its jobs cost is the job table's.
type Result struct {
	Class   string   // simple, complex, agentic: what was decided
	Reasons []string // why, in words of ours
	Notes   []string // the fallbacks that were taken, in fixed words, in order

	Scored       bool
	First, Score float64 // the first score and the last
	Iterations   int     // rewrites
	Issues       int     // left at the end
	Unscored     int     // scores that could not be read
}
