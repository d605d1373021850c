// Package adapter owns the contract between the daemon and what runs work on
// it. Each adapter is a package below this one. An adapter makes one attempt,
// classifies how it ended, and knows nothing of chains, other options, retries,
// peers or callers.
package adapter

import (
	"context"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
)

// Request is the work as the caller gave it. It is shared by all attempts of a
// request and must not be changed.
type Request struct {
	ID        string // the request_id of headers and logs
	Primitive chain.Primitive
	Body      []byte // for llm.*: the chat completion request as it came, byte for byte
	Model     string // the name the caller asked for: answers carry it
	Stream    bool   // the caller wants events; otherwise one whole answer
	Usage     bool   // the caller asked for the usage event of a stream
	MaxAnswer int64  // bytes of a plain answer that the caller has a use for; 0: as many as the adapter takes
}

// Call is one attempt at a request.
type Call struct {
	Request *Request
	Attempt walk.Attempt
	Secret  chain.Secret // the value of Attempt.Key; empty where none is needed
}

// Adapter runs calls. Run follows [walk.Runner]: one attempt, no retries, emit for
// each chunk, and it ends soon after ctx. A stream's chunk is the data of one
// event, JSON on one line, without "data:" and never "[DONE]"; a plain answer is
// one chunk. Run may be called from many goroutines.
type Adapter interface {
	Run(ctx context.Context, c Call, emit func(walk.Chunk) error) walk.Outcome
}
