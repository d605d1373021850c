// Package exec owns the stream protocol by which one device runs another's work:
// the submitter's half, the executor's half, and what each refuses. A stream is one
// attempt: the submitter sends a signed request and right behind it the payload; the
// executor decides before it reads the payload, and sends chunks of the answer and a
// trailer, or one refusal. Whether a request is authorised, and what running it
// means, is the [Executor]'s; the package knows frames, credit and deadlines. It does
// not know how connections come about, nor what is in a payload, an answer or a
// signature.
//
// # Credit
//
// The submitter keeps its write half open until the trailer. On it travel grants:
// varints, each the bytes of data frames that its caller took. The executor is never
// more than [Window] bytes ahead of them, and the submitter always reads, so that a
// caller who does not read holds up its own stream and nobody else's. And because
// the executor always reads too, a reset is seen at once, also while it is silent.
package exec

import (
	"context"
	"errors"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// Protocol is the ID under which executors serve.
const Protocol = "/chordwheel/exec/1.0.0"

// Window is how far an executor may be ahead of the submitter's grants, in bytes as
// cost counts them.
const Window = 64 << 10

// frameCost is added to the payload of each data frame where credit is counted:
// what a queued frame takes besides its bytes. Without it, empty frames were free.
const frameCost = 64

// grantAfter is what a caller takes before the submitter grants it: few grants, and
// no executor waits for one while its window is half empty.
const grantAfter = Window / 4

// resetCanceled is the code with which a submitter that lost its interest resets.
const resetCanceled network.StreamErrorCode = 0x2001

// Deadlines.
const (
	openTimeout    = 10 * time.Second // from the stream to its whole opening frame
	payloadTimeout = 10 * time.Second // for each payloadStep bytes: whoever is slower is not waited for
	payloadStep    = 256 << 10
	writeTimeout   = 30 * time.Second // of one write; the reader at the other end always reads
	stallTimeout   = 2 * time.Minute  // without a grant while one is waited for
	refuseTimeout  = 2 * time.Second  // from a refusal until the submitter has ended the stream
	lingerTimeout  = 5 * time.Second  // from the trailer until then
	longest        = time.Hour        // of a job whose terms say nothing
)

// Emit takes one chunk of an answer: see walk.Chunk for what the flags mean. It
// returns when the chunk is on its way (executor) or was taken by the caller
// (submitter). After an error the answer is of no more use to anybody.
type Emit func(data []byte, meaningful, more bool) error

// Executor decides about foreign work and runs it.
type Executor interface {
	// Admit decides whether the request may run, before the payload is read. from
	// is the peer that the transport authenticated. It must not wait: a peer
	// without room says so. Errors are *wire.ExecRefusal, which goes to the
	// submitter as it is; any other is logged and crosses as ExecInternal. open is
	// well-formed and nothing more. Admit is called from many goroutines.
	Admit(ctx context.Context, from chain.PeerID, open *wire.ExecOpen) (Job, error)
}

// Job is one admitted request. Its methods are called one at a time: Terms, then
// Run and Sign or neither, and Release once, always.
type Job interface {
	Terms() Terms
	// Run does the work. payload is the one that was signed; it is the job's. ctx
	// ends when the submitter leaves, its connection dies, Terms.Until passes or
	// the server closes. emit is called from one goroutine at a time, and not
	// after Run returned.
	Run(ctx context.Context, payload []byte, emit Emit) wire.ExecTrailer
	// Sign completes the trailer that Run gave. The last chunk is already on its
	// way, so that no caller waits for a signature.
	Sign(t *wire.ExecTrailer)
	Release()
}

// Terms are what the request, as it was verified, says about its payload and time.
type Terms struct {
	PayloadBytes int64
	PayloadHash  []byte    // SHA-256
	Until        time.Time // zero: an hour
}

// ErrBroken is the error of an attempt whose stream ended without a trailer after
// the request was sent: the work may have run, in part or whole.
var ErrBroken = errors.New("the stream to the executor broke")
