package builtin

import (
	"strings"
	"unicode"
)

// words cuts text into stemmed words in lower case. At most limit are taken.
func words(text string, limit int) []string {
	var out []string
	for _, w := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '\'' && r != '’'
	}) {
		w, _, _ = strings.Cut(strings.ReplaceAll(w, "’", "'"), "'") // what's, I'm, device's
		if w == "" {
			continue
		}
		if len(out) == limit {
			break
		}
		out = append(out, canonical(w))
	}
	return out
}

// canonical stems w and folds words that mean the same here into one.
func canonical(w string) string {
	if s, ok := same[w]; ok {
		return s
	}
	w = stem(w)
	if s, ok := same[w]; ok {
		return s
	}
	return w
}

// same maps words to the one that stands for them. Keys are whole words or stems.
var same = map[string]string{
	"laptop": "device", "computer": "device", "machine": "device", "pc": "device", "desktop": "device", "nas": "device",
	"phone": "device", "node": "device", "devic": "device", "server": "server", "hub": "hub", "orchestrator": "hub",
	"delete": "remove", "delet": "remove", "erase": "remove", "eras": "remove", "remov": "remove",
	"picture": "image", "pictur": "image", "photo": "image", "imag": "image",
	"cost": "price", "pric": "price", "expensiv": "price", "money": "price", "cheap": "price", "charge": "price", "charg": "price",
	"begin": "start", "launch": "start", "launche": "start", "secret": "key", "credential": "key", "password": "key",
	"llm": "model", "ai": "model", "fix": "repair", "folder": "directory", "dir": "directory", "setup": "install", "instal": "install",
	"config": "configure", "configur": "configure", "configuration": "configure", "setting": "configure", "sett": "configure",
	"hi": "hello", "hey": "hello", "hiya": "hello", "greeting": "hello", "howdy": "hello", "thx": "thank", "cheer": "thank",
	"bye": "goodbye", "cya": "goodbye", "prompt": "message", "messag": "message", "question": "question", "conversation": "message",
	"convers": "message", "chat": "chat", "offline": "offline", "disk": "disk", "store": "save", "stor": "save", "sav": "save", "log": "log",
	"kept": "save", "keep": "save", "persist": "save", "record": "save", "fails": "fail", "failure": "fail", "failur": "fail", "broken": "fail",
	"error": "error", "crash": "fail", "die": "fail", "down": "down", "quit": "stop", "exit": "stop", "shutdown": "stop", "end": "stop", "halt": "stop",
	"docs": "documentation", "doc": "documentation", "manual": "documentation", "documentat": "documentation",
	"invitation": "invite", "invit": "invite", "invitat": "invite", "join": "join", "enrol": "join", "enroll": "join",
	"plug": "add", "attach": "add", "register": "add", "pair": "join", "connect": "connect", "link": "connect", "cap": "limit", "spend": "price",
	"spent": "price", "spending": "price", "pay": "price", "bill": "price", "quota": "limit", "occupied": "used", "taken": "used", "drive": "disk",
	"hard-drive": "disk", "db": "database", "cloud": "provider", "vendor": "provider", "upstream": "provider", "hacker": "attacker", "evil": "attacker",
	"choose": "order", "pick": "order", "select": "order", "prefer": "order", "rank": "order", "sort": "order", "dead": "fail", "dies": "fail", "smart": "better", "intelligent": "better",
	"large": "better", "big": "better", "stronger": "better", "stupid": "bad", "dumb": "bad", "forever": "long", "age": "long", "shell": "terminal", "console": "terminal",
	"number": "number", "revok": "remove", "revoke": "remove", "throw": "remove", "kick": "remove", "lost": "stolen", "url": "address", "host": "address", "location": "where",
	"safety": "secure", "protect": "secure", "tls": "https", "auth": "authenticate", "login": "authenticate", "unauthorized": "401", "unauthorised": "401", "forbidden": "403",
	"catalog": "catalogue", "safe": "secure", "secur": "secure", "security": "secure", "privacy": "private", "privat": "private",
}

// stem takes common English endings off w. It is rough: two words that should
// meet have to get the same stem, whether or not that is a word.
func stem(w string) string {
	n := len(w)
	switch {
	case n > 5 && strings.HasSuffix(w, "sses"):
		w = w[:n-2]
	case n > 4 && strings.HasSuffix(w, "ies"):
		w = w[:n-3] + "y"
	case n > 3 && strings.HasSuffix(w, "s") && !strings.HasSuffix(w, "ss") && !strings.HasSuffix(w, "us") && !strings.HasSuffix(w, "is"):
		w = w[:n-1]
	}
	for range 2 { // ordered -> order -> ord, as order itself
		for _, ending := range []string{"ation", "ingly", "edly", "ment", "ness", "able", "ing", "ed", "er", "ly"} {
			if len(w)-len(ending) >= 3 && strings.HasSuffix(w, ending) {
				w = w[:len(w)-len(ending)]
				if k := len(w); w[k-1] == w[k-2] && !strings.ContainsRune("aeiouls", rune(w[k-1])) {
					w = w[:k-1] // running, stopped
				}
				break
			}
		}
	}
	if n := len(w); n > 3 && w[n-1] == 'e' {
		w = w[:n-1]
	}
	return w
}

// stop are words that carry little: they count, but for little, so that
// "who are you" can still be told from "how are you".
var stop = func() map[string]bool {
	m := map[string]bool{}
	for _, w := range strings.Fields(`a an the of to in on at by for with from as is are was were be been am do does did done has have had
		i you he she it we they me my your his her its our their this that these those what which who whom whose how why when where
		can could may might must shall should will would and or but if then than so not no yes there here about into over under again
		please tell explain describe show give make let get got go want need use using any some all just only also very too much many
		really actually mean like know one something anything everything way out exactly precisely able possible thing stuff now today
		currently already still ever never maybe perhaps quite just simply basically first few several other another each every own self
		itself myself anybody anyone somebody someone everybody everyone once whole next else either both thus hence same different kind sort say said happen behave see look help try put take around before after during while because since without
		within per via inside outside ok okay well`) {
		m[canonical(w)] = true
	}
	return m
}()

// trade are words of chordwheel's trade. A question with one of them is likely
// to be about chordwheel, so that less likeness is asked for.
var trade = func() map[string]bool {
	m := map[string]bool{}
	for _, w := range words(`chordwheel mesh hub daemon edge provider catalogue primitive ollama llama vllm openai groq openrouter mistral anthropic
		stream endpoint api invite join protest chain failover workspace scope capability curl port 7420 7421 7400 7411 11434 http https json token
		prompt model membership peer adapter cli command dashboard database telemetry privacy 401 429 502 503 504 400 request binary spoke chord
		wheel yaml config sdk upstream completion permission chmod option device budget attempt policy signed retry chat log key primer lan directory
		identity header install terminal rate limit`, longest*4) {
		m[w] = true
	}
	return m
}()

// trigrams gives the set of three-letter pieces of w, with its ends marked.
func trigrams(w string) map[string]bool {
	r := []rune("^" + w + "$")
	m := make(map[string]bool, len(r))
	for i := 0; i+3 <= len(r); i++ {
		m[string(r[i:i+3])] = true
	}
	return m
}

// alike is the share of pieces that two words have in common, 0 to 1.
func alike(a, b map[string]bool) float64 {
	if len(a) == 0 || len(b) == 0 {
		return 0
	}
	both := 0
	for g := range a {
		if b[g] {
			both++
		}
	}
	return 2 * float64(both) / float64(len(a)+len(b))
}
