package pipeline

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// part is one subtask of a plan. The model's own name for it is gone.
type part struct {
	name   string // s1, s2, …
	kind   string // one of kinds
	prompt string
	tier   int   // 1 to 3
	after  []int // the parts that it builds on
}

// plan is how a request is cut.
type plan struct {
	parts  []part
	rule   bool    // the results are put one after the other; else a supervisor writes the answer
	whole  bool    // one part, the request itself
	levels [][]int // the parts in waves: each after all that it builds on
}

// errNoPlan says that a text holds no plan: it is the supervisor's own answer.
var errNoPlan = errors.New("no plan in the text")

// errBadPlan says that a plan cannot be followed.
var errBadPlan = errors.New("bad plan")

// kinds are the words for types of subtasks, by what models call them.
var kinds = map[string]string{
	"code": "code", "coding": "code", "programming": "code",
	"math": "math", "calculation": "math",
	"writing": "writing", "creative": "writing", "draft": "writing",
	"research": "research", "search": "research", "lookup": "research",
	"analysis": "analysis", "reasoning": "analysis", "compare": "analysis", "comparison": "analysis",
	"translation": "translation", "translate": "translation",
	"summary": "summary", "summarize": "summary", "summarise": "summary", "summarization": "summary",
}

// kindOf is the word of ours for a model's.
func kindOf(foreign string) string {
	if k, ok := kinds[strings.ToLower(strings.TrimSpace(foreign))]; ok {
		return k
	}
	return "general"
}

type foreignPart struct {
	ID        loose   `json:"id"`
	Type      loose   `json:"type"`
	Prompt    string  `json:"prompt"`
	Tier      loose   `json:"tier"`
	DependsOn []loose `json:"depends_on"`
}

// loose is a string or a number, whichever a model wrote.
type loose string

func (l *loose) UnmarshalJSON(b []byte) error {
	var s string
	if len(b) > 0 && b[0] == '"' {
		if err := json.Unmarshal(b, &s); err != nil {
			return err
		}
	} else if b[0] != 'n' { // null is nothing
		if _, err := strconv.ParseFloat(string(b), 64); err != nil {
			return errors.New("want a string or a number")
		}
		s = string(b)
	}
	*l = loose(s)
	return nil
}

// parsePlan reads the plan in a supervisor's text. It is errNoPlan if there is
// none, and wraps errBadPlan, with words of ours, if it cannot be followed.
func parsePlan(text string) (plan, error) {
	var found struct {
		Subtasks  json.RawMessage `json:"subtasks"`
		Synthesis loose           `json:"synthesis"`
	}
	ok := findJSON(text, func(raw []byte) bool {
		found.Subtasks, found.Synthesis = nil, ""
		if raw[0] == '[' {
			var list []foreignPart
			if json.Unmarshal(raw, &list) != nil || len(list) == 0 || list[0].Prompt == "" {
				return false
			}
			found.Subtasks = raw
			return true
		}
		return json.Unmarshal(raw, &found) == nil && found.Subtasks != nil
	})
	if !ok {
		return plan{}, errNoPlan
	}
	var list []foreignPart
	if err := json.Unmarshal(found.Subtasks, &list); err != nil {
		return plan{}, fmt.Errorf("%w: subtasks of another form", errBadPlan)
	}
	p := plan{rule: strings.EqualFold(string(found.Synthesis), "rule")}
	if err := p.take(list); err != nil {
		return plan{}, err
	}
	if !p.order() {
		return plan{}, fmt.Errorf("%w: its subtasks wait for each other", errBadPlan)
	}
	return p, nil
}

// take checks the subtasks and gives them names of ours.
func (p *plan) take(list []foreignPart) error {
	if len(list) == 0 || len(list) > maxSubtasks {
		return fmt.Errorf("%w: %d subtasks, want 1 to %d", errBadPlan, len(list), maxSubtasks)
	}
	at := make(map[string]int, len(list))
	for i, f := range list {
		id := strings.TrimSpace(string(f.ID))
		if id == "" && len(list) == 1 {
			id = "1"
		}
		_, twice := at[id]
		switch {
		case id == "" || len(id) > maxID:
			return fmt.Errorf("%w: subtask %d has no usable id", errBadPlan, i+1)
		case twice:
			return fmt.Errorf("%w: two subtasks of one id", errBadPlan)
		case blank(f.Prompt) || len(f.Prompt) > maxPrompt:
			return fmt.Errorf("%w: the prompt of subtask %d has %d bytes, want 1 to %d", errBadPlan, i+1, len(f.Prompt), maxPrompt)
		}
		at[id] = i
		p.parts = append(p.parts, part{name: "s" + strconv.Itoa(i+1), kind: kindOf(string(f.Type)), prompt: f.Prompt, tier: tierOf(string(f.Tier))})
	}
	for i, f := range list {
		if len(f.DependsOn) > maxSubtasks {
			return fmt.Errorf("%w: subtask %d names %d others", errBadPlan, i+1, len(f.DependsOn))
		}
		seen := map[int]bool{}
		for _, d := range f.DependsOn {
			j, known := at[strings.TrimSpace(string(d))]
			switch {
			case !known:
				return fmt.Errorf("%w: subtask %d builds on one that is not there", errBadPlan, i+1)
			case j == i:
				return fmt.Errorf("%w: subtask %d builds on itself", errBadPlan, i+1)
			case !seen[j]:
				seen[j] = true
				p.parts[i].after = append(p.parts[i].after, j)
			}
		}
	}
	return nil
}

// tierOf reads 1, 2 or 3, also with a T in front; anything else is a worker's 2.
func tierOf(foreign string) int {
	switch strings.TrimPrefix(strings.ToUpper(strings.TrimSpace(foreign)), "T") {
	case "1":
		return 1
	case "3":
		return 3
	}
	return 2
}

// order puts the parts into levels: each after all that it builds on. It is false
// if some wait for each other.
func (p *plan) order() bool {
	placed := make([]bool, len(p.parts))
	for left := len(p.parts); left > 0; {
		var level []int
		for i, t := range p.parts {
			ready := !placed[i]
			for _, j := range t.after {
				ready = ready && placed[j]
			}
			if ready {
				level = append(level, i)
			}
		}
		if len(level) == 0 {
			return false
		}
		for _, i := range level {
			placed[i] = true
		}
		p.levels = append(p.levels, level)
		left -= len(level)
	}
	return true
}

// wholePlan is the plan where there is none to follow: the request itself, done
// by one worker.
func wholePlan() plan {
	return plan{parts: []part{{name: "s1", kind: "general", tier: 2}}, rule: true, whole: true, levels: [][]int{{0}}}
}

// alone reports whether the plan is one part whose result is the answer.
func (p *plan) alone() bool { return len(p.parts) == 1 && p.rule }
