package builtin

import "strings"

// unknown is what the model says when it does not know. It names the remedy.
const unknown = "I do not know. I am primer, the small model inside chordwheel: I can tell you about chordwheel itself, do sums and convert units, " +
	"and nothing else. Add a real model: start a local server such as Ollama, or put a provider into the catalogue and store its key with " +
	"`chordwheel keys set NAME`. The same request will then be answered by it."

// silent is the answer to a request without a word in it.
const silent = "Ask me something about chordwheel, or give me a sum. For everything else add a real model: " +
	"a local server such as Ollama, or a provider with its key (`chordwheel keys set NAME`)."

// reply answers one question. known is false when it is the honest no.
func reply(question string) (text string, known bool) {
	if strings.TrimSpace(question) == "" {
		return silent, false
	}
	if s, ok := sum(question); ok {
		return s, true
	}
	if p, sure := load().find(question); sure >= threshold {
		return p.text, true
	}
	return unknown, false
}
