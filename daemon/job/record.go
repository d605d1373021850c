package job

import (
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// State is where a job is in its life.
type State string

// The states of a job. Only the first two go on.
const (
	Pending    State = "pending"    // nobody accepted it yet
	Running    State = "running"    // somebody accepted it
	Done       State = "done"       // it has a result
	Failed     State = "failed"     // nobody could do it; Reason says why
	Superseded State = "superseded" // another copy of it was faster
	Cancelled  State = "cancelled"  // nobody wants it any more
)

// Ended reports whether nothing more happens to a job in state s.
func (s State) Ended() bool { return s != Pending && s != Running }

// Role is what a job is for.
type Role string

// The roles of jobs.
const (
	Root       Role = "root"       // the whole request
	Direct     Role = "direct"     // one walk that answers the request
	Classify   Role = "classify"   // how complex is it
	Decompose  Role = "decompose"  // what are its parts
	Subtask    Role = "subtask"    // one part
	Synthesise Role = "synthesise" // one answer of the parts
	Score      Role = "score"      // how good is the answer
	Rewrite    Role = "rewrite"    // a better one
	Provided   Role = "provided"   // work of this device that a provider over HTTP does
)

// Hedge says how a job that was run in several copies came out.
type Hedge string

// What a copy can be.
const (
	Winner Hedge = "winner"
	Loser  Hedge = "loser"
)

// Record is what is known of a job, and all that may be shown or kept of it: it
// holds no word of what it is about. Task names are this device's own (s1, s2, …),
// never a model's.
type Record struct {
	ID          string `json:"id"`
	Root        string `json:"root"`              // the job that it is a part of; its own ID for a root
	CopyOf      string `json:"copy_of,omitempty"` // of a race's or hedge's later copy: the first one
	RequestID   string `json:"request_id"`
	Transaction string `json:"transaction_id,omitempty"` // of the receipts

	Role      Role            `json:"role"`
	Primitive chain.Primitive `json:"primitive"`
	Task      string          `json:"task,omitempty"`  // of a subtask: s1, s2, …
	After     []string        `json:"after,omitempty"` // the subtasks that it builds on
	Wave      int             `json:"wave,omitempty"`  // from 1; 0 outside of waves

	State  State  `json:"state"`
	Reason string `json:"reason,omitempty"` // of a failed or cancelled one: an outcome class, not_accepted, restart, …
	Hedge  Hedge  `json:"hedge_role,omitempty"`
	Rung   int    `json:"rung,omitempty"` // of the hedge ladder, 1 to 3; 0 for a first copy or a race

	Option   chain.OptionID `json:"option,omitempty"`
	Peer     chain.PeerID   `json:"peer,omitempty"`     // of a slot
	Device   string         `json:"device,omitempty"`   // that peer's name, "" for this device
	Provider string         `json:"provider,omitempty"` // over HTTP: its ID
	Attempts int            `json:"attempts,omitempty"` // upstream calls

	Created  time.Time `json:"created"`
	Accepted time.Time `json:"accepted,omitzero"`
	Ended    time.Time `json:"ended,omitzero"`

	Input   int64          `json:"input_tokens,omitempty"`
	Output  int64          `json:"output_tokens,omitempty"`
	Cost    chain.MicroUSD `json:"cost_micro_usd,omitempty"`
	AtLeast bool           `json:"at_least,omitempty"` // a part of tokens and cost is unknown

	// Of a score, and of a root: the first and the last.
	Score     *float64 `json:"score,omitempty"` // 0 to 1
	First     *float64 `json:"first_score,omitempty"`
	Unscored  bool     `json:"unscored,omitempty"` // no score could be read, so 1.0 was taken
	Iteration int      `json:"iteration,omitempty"`
	Issues    int      `json:"issues,omitempty"`
	Fixed     int      `json:"fixed,omitempty"`
	NewIssues int      `json:"new_issues,omitempty"`

	// Of a root.
	Class   string   `json:"class,omitempty"`   // simple, complex, agentic
	Reasons []string `json:"reasons,omitempty"` // why, in the classifier's own words
	Notes   []string `json:"notes,omitempty"`   // fallbacks that were taken, in fixed words

	RequestHash  string `json:"request_hash,omitempty"`
	ResponseHash string `json:"response_hash,omitempty"`
}
