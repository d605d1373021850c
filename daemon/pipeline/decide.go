package pipeline

import (
	"context"
	"strings"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/job"
	"github.com/chordwheel/chordwheel/daemon/pipeline/classify"
	"github.com/chordwheel/chordwheel/daemon/pipeline/wave"
)

// Decision is how a request is to be answered.
type Decision struct {
	Class   classify.Class // never uncertain
	Reasons []string       // in fixed words: of the classifier, then of this package
	Staged  bool           // through the stages by Run; else one walk with the request as it came

	ask *ask
}

// String is the decision on one line, for a header or a log: a class, and the
// reasons behind a colon. It holds no content.
func (d Decision) String() string { return classify.Line(d.Class, d.Reasons) }

// Decide says how req is to be answered. It asks a T1 where the heuristics are
// uncertain and the settings have it so; else do is not used. A request that
// cannot be cut, because it brings tools, images or a format for one model's own
// answer, is simple, with the reason "request:" and what it brings.
func (p *Pipeline) Decide(ctx context.Context, do Dispatcher, req Request) Decision {
	if !p.settings.Enabled {
		return Decision{Class: classify.Simple, Reasons: []string{"off"}}
	}
	if req.Ask != "" && p.settings.MinComplexity > 0 {
		if class, reasons := classify.Text(req.Ask); class == classify.Simple {
			return Decision{Class: class, Reasons: reasons}
		}
	}
	a, err := readAsk(req.Body)
	if err != nil {
		return Decision{Class: classify.Simple, Reasons: []string{"request:unread"}}
	}
	if a.unfit != "" {
		return Decision{Class: classify.Simple, Reasons: []string{"request:" + a.unfit}}
	}
	class, reasons := classify.Text(a.text)
	if class == classify.Uncertain {
		var word string
		class, word = p.askClass(ctx, do, a)
		reasons = append(reasons, word)
	}
	d := Decision{Class: class, Reasons: reasons, ask: a}
	switch class {
	case classify.Agentic:
		d.Staged = true
	case classify.Complex:
		d.Staged = p.settings.MinComplexity <= 1
	default:
		d.Staged = p.settings.MinComplexity == 0
	}
	return d
}

// askClass has a T1 say how complex the request is.
func (p *Pipeline) askClass(ctx context.Context, do Dispatcher, a *ask) (classify.Class, string) {
	if !p.settings.ClassifierEnabled {
		return classify.Simple, "classifier:off"
	}
	ctx, cancel := context.WithTimeout(ctx, classifyLimit)
	defer cancel()
	out := do.Do(ctx, []wave.Task{{
		Name: string(job.Classify), Role: job.Classify, Primitive: chain.T1, Tier: 1, Budget: classifyLimit,
		Body: instruct(classifyPrompt, quote("request", chain.ClipTo(a.text, maxAsked))),
	}})
	if len(out) != 1 || out[0].Class != chain.OK {
		return classify.Simple, "classifier:failed"
	}
	class, ok := parseClass(out[0].Text)
	if !ok {
		return classify.Simple, "classifier:unread"
	}
	return class, "classifier:" + string(class)
}

// parseClass finds the one class that a T1 named.
func parseClass(text string) (classify.Class, bool) {
	if len(text) > maxAsked {
		return "", false
	}
	var found classify.Class
	words := strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return r < 'a' || r > 'z' })
	for _, w := range words {
		c := classify.Class(w)
		if c != classify.Simple && c != classify.Complex && c != classify.Agentic {
			continue
		}
		if found != "" && found != c {
			return "", false
		}
		found = c
	}
	return found, found != ""
}
