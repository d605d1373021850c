package wire

import (
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// MaxControl bounds one frame of the spoke, in bytes of payload: a body (512
// KiB), its head and room for the largest report fit, and a thousand peers
// that each hold one half-read frame stay under a gigabyte even in the worst
// case, which the session caps of package spoke make far smaller.
const MaxControl = 1 << 20

// MaxGossip bounds the payload of one gossip message. The message on the wire,
// with author, signature and topic, stays below 64 KiB: [MaxGossipMessage].
const MaxGossip = 60 << 10

// MaxGossipMessage bounds one gossip message with everything around it.
const MaxGossipMessage = 64 << 10

// MaxInvalidation bounds the payload of a message on a policy topic: a scope
// hash, a primitive, a number and a prefix take under 120 bytes.
const MaxInvalidation = 512

// MaxAnnounce bounds the payload of an announcement: a membership and a few
// hundred capabilities.
const MaxAnnounce = 48 << 10

// Bounds of an exec stream, in bytes.
const (
	// MaxExecOpen bounds the first frame: a body, its head, a membership, an
	// extension and a request, all of the largest.
	MaxExecOpen = 704 << 10
	// MaxExecPayload is the most that any executor takes; its owner's limit is
	// far lower.
	MaxExecPayload = 64 << 20
	// MaxExecData bounds the bytes of one data frame. Small, so that streams
	// that share a connection take turns.
	MaxExecData = 16 << 10
	// MaxExecChunk bounds a chunk that comes in parts: a plain answer is one
	// chunk, and adapters let none through that is longer.
	MaxExecChunk = 64 << 20
	// MaxExecAnswer bounds an upstream's refusal that is passed through. A longer
	// one is cut by whoever makes the trailer.
	MaxExecAnswer = 64 << 10
	// MaxExecReply bounds one frame of an executor: a trailer with an answer.
	MaxExecReply = 72 << 10
)

// Caps of lists and strings. Each is far above what an honest device needs
// and far below what would hurt its reader.
const (
	maxText         = 256  // versions, names, reasons: one line for people
	maxMessage      = 1024 // a refusal's sentence
	maxCapability   = 128  // "model:" and the longest model names seen are under 100
	maxCapabilities = 1024 // a device with hundreds of models
	maxLocals       = 128  // services of one device
	maxPrimitives   = 64   // of one local option
	maxScopes       = 64   // of one device
	maxSlots        = 4096 // scopes × primitives of one device
	maxHead         = 4096 // a signed head is under 600 bytes with the longest names
	maxMembership   = 16 << 10
	maxAddresses    = 32 // of one peer: every interface, twice
	maxPeers        = 256
	maxSecret       = 64   // 32 are used
	maxTopicKey     = 64   // 32 are used
	maxCounters     = 4096 // options × peers between two reports
	maxMeasurements = 4096 // they are sampled; the rest waits for the next report
	maxProtests     = 64   // queued while the hub was away
	maxProvided     = 64   // capabilities of a provider over HTTP, and patterns granted to it
	maxAsks         = 256  // ceilings × primitives of one device
	maxBlocks       = 1024 // with those that are over and not yet acknowledged
	maxFailures     = chain.MaxOptions
	maxScopeHash    = 32
	maxPrefix       = 16 // of a CID: enough to notice a difference
	maxCertificate  = 64 // a SHA-256, also in multihash form
	maxExecRequest  = 32 << 10
	maxToken        = 16 << 10
	maxID           = 128 // transactions, requests, hashes in text
	maxAttempts     = 256
	maxSignature    = 512 // 64, or its text form
	maxCount        = 1 << 40
	maxSequence     = 1 << 62
)

// MaxLocals is how many services of its own a device may declare.
const MaxLocals = maxLocals

// Times and durations outside these are refused: they come from a broken clock
// or from somebody who looks for an overflow.
var (
	maxInstant  = chain.InstantOf(time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC))
	maxDuration = chain.MillisOf(366 * 24 * time.Hour)
)
