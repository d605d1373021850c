package edge

import (
	"strings"
	"testing"

	"github.com/chordwheel/chordwheel/chain"
)

func TestCheckForeign(t *testing.T) {
	deep := `{"model":"m","messages":[{"role":"user","content":"x"}],"x":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + `}`
	for name, c := range map[string]struct {
		p      chain.Primitive
		body   string
		stream bool
		good   bool
	}{
		"a chat":                       {chain.LLMChat, `{"model":"auto","messages":[{"role":"user","content":"x"}]}`, false, true},
		"a streamed chat":              {"llm.t2", `{"model":"auto","stream":true,"messages":[{"role":"user","content":"x"}]}`, true, true},
		"deeper than our own limit":    {chain.LLMChat, deep, false, true},
		"work":                         {"embed.text", `{"input":["x"]}`, false, true},
		"a plain chat, said to stream": {chain.LLMChat, `{"model":"auto","messages":[{"role":"user","content":"x"}]}`, true, false},
		"a stream, said to be plain":   {chain.LLMChat, `{"model":"auto","stream":true,"messages":[{"role":"user","content":"x"}]}`, false, false},
		"work, said to stream":         {"embed.text", `{"input":["x"]}`, true, false},
		"no messages":                  {chain.LLMChat, `{"model":"auto"}`, false, false},
		"not JSON":                     {chain.LLMChat, `{"model":"auto","messages":[`, false, false},
		"a name twice":                 {chain.LLMChat, `{"model":"auto","stream":false,"stream":true,"messages":[{"role":"user"}]}`, true, false},
		"no input":                     {"embed.text", `{}`, false, false},
		"nothing":                      {chain.LLMChat, ``, false, false},
		"deeper than anybody's limit":  {chain.LLMChat, strings.ReplaceAll(deep, "[[", "[[[[[["), false, false},
	} {
		if err := CheckForeign(c.p, []byte(c.body), c.stream); (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
	}
}
