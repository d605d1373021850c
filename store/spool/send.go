package spool

import (
	"context"
	"math/rand/v2"
	"strings"
	"time"
	"unicode"
)

// Sender hands one line on to whoever takes lines.
type Sender interface {
	// Send hands the line on, exactly as it was appended, and says what became of it. It returns
	// soon after ctx has ended, and does not keep the bytes. The same line may come
	// again, after a restart from far back: the other side has to know it by its ID.
	Send(ctx context.Context, line []byte) Outcome
}

// Outcome is what became of an attempt. The zero value means: try again.
type Outcome struct {
	Verdict Verdict
	After   time.Duration // Again: what the other side asked to wait; 0: it did not say
	Reason  string        // a few words for logs, a status and the rejected file; never content
}

// Verdict is the kind of an outcome.
type Verdict uint8

// Verdicts.
const (
	// Again: not taken, for a reason that is not the line's: no answer, too many,
	// not authorised. The line stays the next one for as long as that holds.
	Again Verdict = iota
	// Accepted: the other side has the line on disk, now or since before.
	Accepted
	// Rejected: the other side calls the line invalid. After five times it is
	// set aside.
	Rejected
	// Conflict: the other side has other bytes under the same ID. The line is
	// set aside at once.
	Conflict
)

// backOff gives the pause behind the n-th attempt (from 0) that did not succeed:
// what the other side asked for, within bounds, else a random part of a doubling
// span, so that many devices do not come back at once.
func backOff(n int, after time.Duration) time.Duration {
	if after > 0 && after <= sillyPause {
		return min(after, maxPause)
	}
	span := min(firstPause<<min(n, 16), maxPause)
	return max(span/10, rand.N(span))
}

// clip makes the other side's words fit for a line of a log.
func clip(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, strings.ToValidUTF8(text, "?"))
	if len(text) <= maxReason {
		return text
	}
	return strings.ToValidUTF8(text[:maxReason], "") + "…"
}
