package pipeline

import (
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"unicode"

	"github.com/chordwheel/chordwheel/chain"
)

// verdict is what a scorer said of an answer.
type verdict struct {
	score  float64 // 0 to 1
	issues []string
	read   bool // false: nothing could be read, the score is 1
}

// parseScore reads a scorer's text. What cannot be read is a full score without
// issues: a broken scorer must not send good answers round and round.
func parseScore(text string) verdict {
	v := verdict{score: 1}
	v.read = findJSON(text, func(raw []byte) bool {
		var f struct {
			Score  *loose          `json:"score"`
			Issues json.RawMessage `json:"issues"`
		}
		if raw[0] != '{' || json.Unmarshal(raw, &f) != nil || f.Score == nil {
			return false
		}
		score, err := strconv.ParseFloat(strings.TrimSpace(string(*f.Score)), 64)
		if err != nil || math.IsNaN(score) || math.IsInf(score, 0) {
			return false
		}
		v.score = min(max(score, 0), 1)
		v.issues = readIssues(listed(f.Issues))
		return true
	})
	return v
}

// listed gives the members of a list; whatever else stands in its place is the only
// one.
func listed(raw json.RawMessage) []json.RawMessage {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil && len(raw) > 0 {
		list = []json.RawMessage{raw}
	}
	return list
}

// readIssues takes each issue once: a string, or an object that has one.
func readIssues(raw []json.RawMessage) []string {
	var issues []string
	seen := map[string]bool{}
	for _, r := range raw {
		if len(issues) == maxIssues {
			break
		}
		s := strings.Join(strings.Fields(issueText(r)), " ")
		if key := issueKey(s); s != "" && !seen[key] {
			seen[key] = true
			issues = append(issues, chain.ClipTo(s, maxIssue))
		}
	}
	return issues
}

func issueText(raw json.RawMessage) string {
	var s string
	if json.Unmarshal(raw, &s) == nil {
		return s
	}
	var o struct{ Issue, Description, Text, Message string }
	if json.Unmarshal(raw, &o) != nil {
		return ""
	}
	for _, s := range []string{o.Issue, o.Description, o.Text, o.Message} {
		if s != "" {
			return s
		}
	}
	return ""
}

// prefix is how many characters two issues must share to be the same one: models
// repeat how a sentence begins, and not how it ends.
const prefix = 24

// issueKey is what the same issues have in common: how they begin, whatever the
// case and the spaces.
func issueKey(s string) string {
	s = strings.Join(strings.Fields(strings.Map(unicode.ToLower, s)), " ")
	n := 0
	for i := range s {
		if n == prefix {
			return s[:i]
		}
		n++
	}
	return s
}

// compare says which issues of before are gone, and how many of now are new.
func compare(before, now []string) (fixed []string, fresh int) {
	old, still := map[string]bool{}, map[string]bool{}
	for _, s := range before {
		old[issueKey(s)] = true
	}
	for _, s := range now {
		still[issueKey(s)] = true
		if !old[issueKey(s)] {
			fresh++
		}
	}
	for _, s := range before {
		if !still[issueKey(s)] {
			fixed = append(fixed, s)
		}
	}
	return fixed, fresh
}
