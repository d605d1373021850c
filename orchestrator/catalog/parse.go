package catalog

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"

	"github.com/chordwheel/chordwheel/chain"
)

// Caps on what one file may hold.
const (
	MaxBytes      = 8 << 20
	maxProviders  = 10_000
	maxModels     = 1_000
	maxWorkspaces = 1_000_000
	maxPrimitives = 1_000
	maxNames      = 256 // in the smaller lists
	maxNesting    = 512
	maxFields     = 1024 // lines that look like fields, at one indentation beside each other
)

// Parse reads a catalogue. name stands before each fault. The error is an
// [*Invalid] with every fault; then the catalogue is empty and nothing of b is in
// force. Syntax that cannot be read at all gives its first fault only.
func Parse(name string, b []byte) (Catalog, error) {
	r := &reader{}
	c := r.file(b)
	if len(r.problems) > 0 {
		return Catalog{}, &Invalid{File: name, Problems: r.sorted()}
	}
	return c, nil
}

func (r *reader) file(b []byte) Catalog {
	var c Catalog
	b = bytes.TrimPrefix(b, []byte("\ufeff")) // as some editors begin a file
	start := &token.Position{Line: 1, Column: 1}
	if len(b) > MaxBytes {
		r.failAt(start, "the file has %d bytes, at most %d", len(b), MaxBytes)
		return c
	}
	if at, what := tooMuch(b); at > 0 {
		r.failAt(&token.Position{Line: at, Column: 1}, "%s", what)
		return c
	}
	file, err := parser.ParseBytes(b, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		r.failAt(syntaxError(err))
		return c
	}
	var root ast.Node
	for _, d := range file.Docs {
		switch {
		case root != nil:
			at := start
			if d.Start != nil && d.Start.Position != nil {
				at = d.Start.Position
			} else if d.Body != nil {
				at = position(d.Body)
			}
			r.failAt(at, "a second document: a catalogue is one document")
		case d.Body == nil || isNull(d.Body) || d.Body.Type() == ast.CommentType || d.Body.Type() == ast.CommentGroupType:
		default:
			root = d.Body
		}
	}
	if root == nil {
		r.failAt(start, "the file is empty: a catalogue declares at least one primitive")
		return c
	}
	r.catalog(root, &c)
	if len(r.problems) > 0 && !r.readable(root) {
		return c
	}
	c.index()
	for _, check := range r.later {
		check()
	}
	return c
}

// readable reports whether the root is a mapping at all: else references would only add noise.
func (r *reader) readable(root ast.Node) bool {
	_, ok := pairs(root)
	return ok
}

// syntaxError takes the place and the message out of the library's error.
func syntaxError(err error) (*token.Position, string) {
	at := &token.Position{Line: 1, Column: 1}
	var y yaml.Error
	if !errors.As(err, &y) {
		return at, "not YAML"
	}
	if t := y.GetToken(); t != nil && t.Position != nil {
		at = t.Position
	}
	return at, clip(strings.ReplaceAll(y.GetMessage(), "%", "%%"))
}

// tooMuch finds, before the parser starts, what it would take too long or too
// deep for: brackets and dashes within each other (it recurses), documents and
// fields beside each other (its time is quadratic in them). No catalogue has
// them. It gives the line and what is wrong with it, or 0.
func tooMuch(b []byte) (line int, what string) {
	brackets, documents := 0, 0
	var fields []int // by indentation, since the last line with less of it
	for text := range bytes.Lines(b) {
		line++
		dashes := 0
		for i, c := range text {
			switch c {
			case '[', '{':
				brackets++
			case ']', '}':
				brackets = max(0, brackets-1)
			case '-', '?':
				if i+1 < len(text) && (text[i+1] == ' ' || text[i+1] == '\t') {
					dashes++
				}
			}
			if brackets > maxNesting || dashes > maxNesting {
				return line, "nested too deep"
			}
		}
		if bytes.HasPrefix(text, []byte("---")) {
			if documents++; documents > 2 {
				return line, "a second document: a catalogue is one document"
			}
		}
		indent := len(text) - len(bytes.TrimLeft(text, " "))
		if indent >= maxNesting {
			return line, "nested too deep"
		}
		body := bytes.TrimRight(text[indent:], "\r\n")
		if len(body) == 0 || body[0] == '#' {
			continue
		}
		if len(fields) > indent+1 {
			fields = fields[:indent+1]
		}
		for len(fields) <= indent {
			fields = append(fields, 0)
		}
		if body[0] == '-' {
			continue
		}
		if fields[indent]++; fields[indent] > maxFields && bytes.ContainsRune(body, ':') {
			return line, "too many fields in one mapping"
		}
	}
	return 0, ""
}

func (r *reader) catalog(n ast.Node, c *Catalog) {
	r.object(n, "catalogue",
		field{"tiers", false, func(n ast.Node) { c.Tiers = r.tiers(n) }},
		field{"providers", false, func(n ast.Node) {
			r.list(n, "providers", maxProviders, func(n ast.Node) { c.Providers = append(c.Providers, r.provider(n)) })
			r.unique(n, "provider", "name")
		}},
		field{"primitives", true, func(n ast.Node) {
			r.list(n, "primitives", maxPrimitives, func(n ast.Node) { c.Primitives = append(c.Primitives, r.primitive(n, c)) })
			r.unique(n, "primitive", "name")
			if s, ok := n.(*ast.SequenceNode); ok && len(s.Values) == 0 {
				r.fail(n, "primitives: at least one is needed")
			}
		}},
		field{"workspaces", false, func(n ast.Node) {
			r.list(n, "workspaces", maxWorkspaces, func(n ast.Node) { c.Workspaces = append(c.Workspaces, r.workspace(n, c)) })
			r.unique(n, "workspace", "id")
		}},
		field{"ceilings", false, func(n ast.Node) {
			r.list(n, "ceilings", maxNames, func(n ast.Node) { c.Ceilings = append(c.Ceilings, r.ceiling(n, c, true)) })
		}},
		field{"agents", false, func(n ast.Node) {
			r.list(n, "agents", maxProviders, func(n ast.Node) { c.Agents = append(c.Agents, r.agent(n)) })
		}},
	)
}

// unique refuses two elements of a list with the same value under key.
func (r *reader) unique(n ast.Node, what, key string) {
	s, ok := n.(*ast.SequenceNode)
	if !ok {
		return
	}
	seen := map[string]int{}
	for _, element := range s.Values {
		values, _ := pairs(element)
		for _, v := range values {
			if keyText(v.Key) != key || isNull(v.Value) || v.Value.GetToken() == nil {
				continue
			}
			name := v.Value.GetToken().Value
			if line, twice := seen[name]; twice {
				r.fail(v.Value, "%s %q stands twice: first on line %d", what, clip(name), line)
				continue
			}
			seen[name] = position(v.Value).Line
		}
	}
}

func (r *reader) provider(n ast.Node) Provider {
	var p Provider
	text := func(to *string, what string, check func(string) error) func(ast.Node) {
		return func(n ast.Node) { *to = r.text(n, what, check) }
	}
	endpoint := false
	r.object(n, "provider",
		field{"name", true, text(&p.Name, "provider name", providerName)},
		field{"adapter", true, text(&p.Adapter, "adapter", word)},
		field{"endpoint", false, func(n ast.Node) { endpoint = true; p.Endpoint = r.text(n, "endpoint", endpointURL) }},
		field{"keys", false, func(n ast.Node) { p.Keys = r.names(n, "keys", 16, keyName) }},
		field{"domain", false, text(&p.Domain, "domain", printableName)},
		field{"geo", false, text(&p.Geo, "geo", geo)},
		field{"models", true, func(n ast.Node) {
			r.list(n, "models", maxModels, func(n ast.Node) { p.Models = append(p.Models, r.model(n)) })
			r.unique(n, "model", "name")
			if s, ok := n.(*ast.SequenceNode); ok && len(s.Values) == 0 {
				r.fail(n, "models: at least one is needed")
			}
		}},
	)
	if !endpoint && (p.Adapter == "openai" || p.Adapter == "anthropic") {
		r.fail(n, "provider: required field \"endpoint\" is missing: adapter %s needs one", p.Adapter)
	}
	if p.Domain == "" {
		p.Domain = p.Name
	}
	return p
}

func (r *reader) model(n ast.Node) Model {
	m := Model{Prior: DefaultPrior()}
	r.object(n, "model",
		field{"name", true, func(n ast.Node) { m.Name = r.text(n, "model name", printableName) }},
		field{"primitives", true, func(n ast.Node) {
			for _, s := range r.names(n, "primitives of a model", maxNames, primitiveName) {
				m.Primitives = append(m.Primitives, chain.Primitive(s))
			}
			if s, ok := n.(*ast.SequenceNode); ok && len(s.Values) == 0 {
				r.fail(n, "primitives of a model: at least one is needed")
			}
		}},
		field{"tier", false, func(n ast.Node) { m.Tier = int(r.integer(n, "tier", 0, 3)) }},
		field{"price", false, func(n ast.Node) { m.Price = r.price(n) }},
		field{"prior", false, func(n ast.Node) { m.Prior = r.prior(n) }},
		field{"context", false, func(n ast.Node) { m.Limits.Context = int(r.integer(n, "context", 1, 1<<31)) }},
		field{"limits", false, func(n ast.Node) { r.limits(n, &m.Limits) }},
	)
	return m
}

func (r *reader) price(n ast.Node) Price {
	var p Price
	usd := func(name string, to *chain.MicroUSD) field {
		return field{name, false, func(n ast.Node) { *to = r.usd(n, name) }}
	}
	r.object(n, "price", usd("input_per_mtok", &p.InputPerMtok), usd("output_per_mtok", &p.OutputPerMtok), usd("per_call", &p.PerCall))
	return p
}

// usd reads US dollars: not negative, at most a million.
func (r *reader) usd(n ast.Node, what string) chain.MicroUSD {
	return chain.MicroUSD(r.number(n, what, 0, 1e6)*1e6 + 0.5)
}

func (r *reader) prior(n ast.Node) Prior {
	p := DefaultPrior()
	r.object(n, "prior",
		field{"latency_ms", false, func(n ast.Node) { p.Latency = chain.Millis(r.integer(n, "latency_ms", 1, 24*3600*1000)) }},
		field{"reliability", false, func(n ast.Node) { p.Reliability = r.number(n, "reliability", 0, 1) }},
		field{"quality", false, func(n ast.Node) { p.Quality = r.number(n, "quality", 0, 1) }},
	)
	return p
}

func (r *reader) limits(n ast.Node, l *chain.Limits) {
	duration := func(name string, to *chain.Millis) field {
		return field{name, false, func(n ast.Node) { *to = chain.MillisOf(r.duration(n, name)) }}
	}
	r.object(n, "limits",
		duration("first_output", &l.FirstOutput), duration("idle", &l.Idle), duration("total", &l.Total),
		field{"payload", false, func(n ast.Node) { l.Payload = r.integer(n, "payload", 1, 1<<40) }},
		field{"concurrency", false, func(n ast.Node) { l.Concurrency = int(r.integer(n, "concurrency", 1, 1<<20)) }},
		field{"features", false, func(n ast.Node) { l.Features = r.names(n, "features", 32, word) }},
		field{"thinking", false, func(n ast.Node) { l.Thinking = r.boolean(n, "thinking") }},
	)
}

// names reads a list of texts without repeats.
func (r *reader) names(n ast.Node, what string, limit int, check func(string) error) []string {
	var out []string
	r.list(n, what, limit, func(n ast.Node) {
		s := r.text(n, what, check)
		switch {
		case s == "":
		case slices.Contains(out, s):
			r.fail(n, "%s: %q stands twice", what, clip(s))
		default:
			out = append(out, s)
		}
	})
	return out
}

func (r *reader) agent(n ast.Node) Agent {
	a := Agent{Status: "active"}
	r.object(n, "agent",
		field{"did", true, func(n ast.Node) {
			a.DID = r.text(n, "did", func(s string) error {
				if !chain.IsDID(s) {
					return fmt.Errorf("%q: want a DID, such as did:key:z6Mk… or did:webvh:…", clip(s))
				}
				return nil
			})
		}},
		field{"capability", true, func(n ast.Node) { a.Capability = r.text(n, "capability", printableName) }},
		field{"endpoint", false, func(n ast.Node) { a.Endpoint = r.text(n, "endpoint", endpointURL) }},
		field{"model_id", true, func(n ast.Node) { a.ModelID = r.text(n, "model_id", printableName) }},
		field{"status", false, func(n ast.Node) { a.Status = r.text(n, "status", oneOf("active", "suspended", "deregistered")) }},
	)
	return a
}
