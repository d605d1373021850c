package pipeline

import (
	"strings"
	"time"
)

// What models may cost here. Whatever is longer is cut, or taken for what it is
// not: a plan that is too long is no plan.
const (
	maxSubtasks   = 3         // of a plan
	maxPlan       = 64 << 10  // bytes of a text that is looked through for a plan or a score
	maxObjects    = 128       // places in such a text where JSON may begin: each costs a look at the rest
	maxPrompt     = 16 << 10  // of one subtask
	maxID         = 128       // of a subtask, in a plan
	maxPart       = 64 << 10  // of a result, where others build on it
	maxIssues     = 20        // of one score; further ones are dropped
	maxIssue      = 500       // of one of them
	maxFixed      = 40        // issues that a rewriter is told of as fixed
	maxRewritable = 256 << 10 // of an answer that is scored: a longer one stands
	maxAsked      = 4 << 10   // of a request that a T1 classifies
	maxContext    = 32 << 10  // of the talk before it, for those who do not get the messages themselves
)

// classifyLimit is how long a T1 may think about how complex a request is: the
// caller waits for it before anything else happens.
const classifyLimit = 2 * time.Second

// tail is the end of s, in at most so many bytes.
func tail(s string, most int) string {
	if len(s) > most {
		return "…" + strings.ToValidUTF8(s[len(s)-most:], "")
	}
	return s
}

// blank reports whether s says nothing.
func blank(s string) bool { return strings.TrimSpace(s) == "" }
