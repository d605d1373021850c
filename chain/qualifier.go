package chain

import "strings"

// A scope's id may carry a qualifier: "workspace:home;stage=extract;instance=eu-1".
// Its chains are for requests that say so of themselves; membership, topics and
// keys are those of the scope without it. Because the qualifier is part of the
// scope's name, it is signed in the head, and a device that does not know of
// qualifiers never mistakes such a chain for the workspace's own.

// Qualifier is what a request says of where it comes from. Empty fields say nothing.
type Qualifier struct {
	Stage    string `json:"stage,omitempty"`    // of a pipeline: the step that asks
	Consumer string `json:"consumer,omitempty"` // the application that asks
	Instance string `json:"instance,omitempty"` // which of its running copies
}

// Overrides is the primitive under which a hub says by gossip that chains of a
// scope's qualifiers have changed, all in one, or how agents stand: devices visit.
const Overrides Primitive = "policy.overrides"

// qualifierNames are the names of the fields in the order in which they are written.
var qualifierNames = [...]string{"stage", "consumer", "instance"}

// QualifierWord reports whether s can stand in a qualifier: 1 to 64 printable
// ASCII characters without spaces, ";" and "=".
func QualifierWord(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] >= 0x7f || s[i] == ';' || s[i] == '=' {
			return false
		}
	}
	return s != "" && len(s) <= 64
}

// Base gives s without its qualifier.
func (s ScopeID) Base() ScopeID {
	base, _, _ := strings.Cut(string(s), ";")
	return ScopeID(base)
}

// With gives the scope of s, which has none yet, with qualifier q. Words that
// cannot stand in a qualifier are left out.
func (s ScopeID) With(q Qualifier) ScopeID {
	if q == (Qualifier{}) {
		return s
	}
	var b strings.Builder
	b.WriteString(string(s))
	for i, word := range [...]string{q.Stage, q.Consumer, q.Instance} {
		if QualifierWord(word) {
			b.WriteString(";" + qualifierNames[i] + "=" + word)
		}
	}
	return ScopeID(b.String())
}

// Qualifier gives what s says beside its base. ok is false if it is not in the
// form that With writes.
func (s ScopeID) Qualifier() (q Qualifier, ok bool) {
	_, rest, has := strings.Cut(string(s), ";")
	if !has {
		return q, true
	}
	for _, part := range strings.Split(rest, ";") {
		name, word, _ := strings.Cut(part, "=")
		switch name {
		case "stage":
			q.Stage = word
		case "consumer":
			q.Consumer = word
		case "instance":
			q.Instance = word
		}
	}
	return q, s.Base().With(q) == s
}

// Wider gives q and every qualifier that says less than q, the most specific
// first: an instance says more than a consumer, a consumer more than a stage. The
// last one is empty. It is the order in which a device looks for a chain.
func (q Qualifier) Wider() []Qualifier {
	words := [...]string{q.Stage, q.Consumer, q.Instance}
	var out []Qualifier
	for mask := 7; mask >= 0; mask-- {
		var kept [3]string
		whole := true
		for i, word := range words {
			if mask&(1<<i) != 0 {
				whole = whole && QualifierWord(word)
				kept[i] = word
			}
		}
		if whole {
			out = append(out, Qualifier{kept[0], kept[1], kept[2]})
		}
	}
	return out
}
