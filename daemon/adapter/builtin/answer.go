package builtin

import "strings"

// no is what the model says when it does not know. It names the remedy.
const no = "I do not know. I am primer, the small model inside chordwheel: I can tell you about chordwheel itself, do sums and convert units, " +
	"and nothing else. Add a real model: start a local server such as Ollama, or put a provider into the catalogue and store its key with " +
	"`chordwheel keys set NAME`. The same request will then be answered by it."

// silent is the answer to a request without a word in it.
const silent = "Ask me something about chordwheel, or give me a sum. For everything else add a real model: " +
	"a local server such as Ollama, or a provider with its key (`chordwheel keys set NAME`)."

// perhaps stands before a passage that may be the wrong one.
const perhaps = "I am not sure that I understood you; this may help. "

// reply answers one question, and says what its answer is worth.
func reply(question string) (string, certainty) {
	if strings.TrimSpace(question) == "" {
		return silent, unknown
	}
	if s, ok := sum(question); ok {
		return s, known
	}
	switch p, _, worth := load().find(question); worth {
	case known:
		return p.text, known
	case unsure:
		return perhaps + p.text, unsure
	}
	return no, unknown
}
