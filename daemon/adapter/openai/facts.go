package openai

import "math/bits"

// facts are what one event or plain answer says that an attempt must know.
type facts struct {
	edits           // the caller's model name; no usage where it is hidden
	meaningful bool // content, reasoning, a tool call or a refusal
	failed     bool // it is an error object
	counted    bool // it carries a usage
	filtered   bool // a choice was ended by the content filter
	choices    int  // how many it holds
	input      int64
	output     int64
}

// reading is what stays the same for all texts of one answer.
type reading struct {
	part  string // where a choice keeps its output: "delta" or "message"
	model []byte // the name that the caller gets to see, as JSON
	hide  bool   // the caller did not ask for the usage
	progress
}

// progress is which choices of an answer have begun and which are finished.
// The first 127 are told apart; further ones count as one.
type progress struct{ seen, ended [2]uint64 }

func (p *progress) note(index int64, ended bool) {
	i := min(index, 127)
	p.seen[i/64] |= 1 << (i % 64)
	if ended {
		p.ended[i/64] |= 1 << (i % 64)
	}
}

// complete reports whether every choice that began has its finish reason, and
// that these are at least n.
func (p *progress) complete(n int64) bool {
	ended := 0
	for i := range p.seen {
		if p.seen[i]&^p.ended[i] != 0 {
			return false
		}
		ended += bits.OnesCount64(p.ended[i])
	}
	return int64(ended) >= min(n, 128)
}

// read looks b over. It reports false when b is not one JSON object.
func (r *reading) read(b []byte) (f facts, ok bool) {
	s := scan{b: b}
	if !s.open('{') {
		return f, false
	}
	for s.member() {
		from := s.i
		switch {
		case s.is("choices"):
			r.readChoices(&s, &f)
		case s.is("model"):
			s.skip()
			f.add(from, s.i, r.model)
		case s.is("usage"):
			if readUsage(&s, &f) && r.hide {
				f.add(from, s.i, jsonNull)
			}
		case s.is("error"):
			if s.skip() {
				f.failed = true
			}
		case s.is("object"):
			if string(s.text()) == "error" {
				f.failed = true
			}
		default:
			s.skip()
		}
	}
	return f, s.end() && !f.over
}

var jsonNull = []byte("null")

func (r *reading) readChoices(s *scan, f *facts) {
	if !s.open('[') {
		s.skip()
		return
	}
	for s.element() {
		if !s.open('{') {
			s.skip()
			continue
		}
		f.choices++
		var index int64
		ended := false
		for s.member() {
			switch {
			case s.is("index"):
				index = s.count()
			case s.is(r.part):
				readOutput(s, f)
			case s.is("finish_reason"):
				reason := s.text()
				ended = len(reason) > 0
				switch string(reason) {
				case "content_filter":
					f.filtered = true
				case "error", "abort": // what some servers call a generation that broke off
					f.failed = true
				}
			case s.is("error"): // some gateways put it into the choice
				if s.skip() {
					f.failed = true
				}
			default:
				s.skip()
			}
		}
		r.note(index, ended)
	}
}

// readOutput looks into a delta or a message for anything that counts as
// output. A role alone does not, nor does empty text.
func readOutput(s *scan, f *facts) {
	if !s.open('{') {
		s.skip()
		return
	}
	for s.member() {
		counts := false
		if s.plain {
			switch string(s.key) {
			case "content", "reasoning", "reasoning_content", "reasoning_details", "tool_calls", "function_call", "refusal", "audio":
				counts = true
			}
		} else {
			counts = s.is("content") || s.is("tool_calls") || s.is("reasoning_content")
		}
		if s.skip() && counts {
			f.meaningful = true
		}
	}
}

// readUsage takes the token counts. It reports whether there were any.
func readUsage(s *scan, f *facts) bool {
	if !s.open('{') {
		return s.skip()
	}
	any := false
	for s.member() {
		any = true
		switch {
		case s.is("prompt_tokens"):
			f.input = s.count()
		case s.is("completion_tokens"):
			f.output = s.count()
		default:
			s.skip()
		}
	}
	f.counted = any
	return any
}
