package simulate

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/chordwheel/chordwheel/chain"
)

// Bounds on what one file may ask for.
const (
	MaxBytes   = 64 << 10
	MaxDevices = 10_000
	MaxDays    = 62
	maxOptions = 64
	maxEvents  = 1000
	maxRate    = 3600 // requests an hour
	maxDepth   = 64   // brackets within each other, and levels of indentation
)

// Fault is one mistake in a scenario.
type Fault struct {
	Line    int    `json:"line"`  // from 1
	Field   string `json:"field"` // as in options[3].latency; "" where the text is no YAML
	Message string `json:"message"`
}

// Invalid is the error of [Parse]: every fault that was found, in the order of the
// file.
type Invalid struct {
	File   string
	Faults []Fault
}

// Error gives one line per fault: file:line: field: message.
func (e *Invalid) Error() string {
	lines := make([]string, len(e.Faults))
	for i, f := range e.Faults {
		lines[i] = fmt.Sprintf("%s:%d: ", e.File, f.Line)
		if f.Field != "" {
			lines[i] += f.Field + ": "
		}
		lines[i] += f.Message
	}
	return strings.Join(lines, "\n")
}

// Parse reads a scenario and fills in what it leaves open. name stands before each
// fault. The error is an [*Invalid].
func Parse(name string, b []byte) (*Scenario, error) {
	fail := func(line int, field, format string, args ...any) (*Scenario, error) {
		return nil, &Invalid{name, []Fault{{line, field, chain.ClipTo(fmt.Sprintf(format, args...), 256)}}}
	}
	switch line := tooDeep(b); {
	case len(b) > MaxBytes:
		return fail(1, "", "the file has %d bytes, at most %d", len(b), MaxBytes)
	case line > 0:
		return fail(line, "", "nested too deep")
	}
	file, err := parser.ParseBytes(b, 0)
	if err != nil {
		at, message := syntax(err)
		return fail(max(at.line, 1), "", "%s", message)
	}
	bodies := slices.DeleteFunc(slices.Clone(file.Docs), func(d *ast.DocumentNode) bool { return d.Body == nil })
	switch len(bodies) {
	case 0:
		return fail(1, "", "the file is empty: a scenario has at least options")
	case 1:
	default:
		return fail(bodies[1].Body.GetToken().Position.Line, "", "a second document: a scenario is one document")
	}
	s := defaults()
	if err := decode(bodies[0].Body, s); err != nil {
		at, message := syntax(err)
		if quoted := strings.Split(message, `"`); len(quoted) > 2 && at.line == 0 { // the library does not say where
			at = placeOf(bodies[0].Body, quoted[len(quoted)-2])
		}
		return fail(max(at.line, 1), fieldAt(b, at), "%s", message)
	}
	c := checker{s: s}
	c.check()
	if len(c.faults) == 0 {
		return s, nil
	}
	for i := range c.faults {
		c.faults[i].Line = lineOf(file, c.faults[i].Field)
	}
	slices.SortStableFunc(c.faults, func(a, b Fault) int { return cmp.Compare(a.Line, b.Line) })
	return nil, &Invalid{name, c.faults}
}

// decode reads a document into s.
func decode(n ast.Node, s *Scenario) (err error) {
	defer func() { // of the library: a tag without a value, such as "options: !x", is too much for it
		if recover() != nil {
			err = errors.New("a tag or an alias stands where a value should")
		}
	}()
	return yaml.NodeToValue(n, s, yaml.Strict(), yaml.DisallowUnknownField())
}

// tooDeep gives the line on which text nests deeper than any scenario, before a
// parser that recurses sees it; 0 for none.
func tooDeep(b []byte) (line int) {
	brackets := 0
	for text := range bytes.Lines(b) {
		line++
		dashes := bytes.Count(text, []byte("- ")) + bytes.Count(text, []byte("? "))
		brackets += bytes.Count(text, []byte("[")) + bytes.Count(text, []byte("{")) - bytes.Count(text, []byte("]")) - bytes.Count(text, []byte("}"))
		brackets = max(brackets, 0)
		indent := len(text) - len(bytes.TrimLeft(text, " "))
		if brackets+bytes.Count(text, []byte("["))+bytes.Count(text, []byte("{")) > maxDepth || dashes > maxDepth || indent > 4*maxDepth {
			return line
		}
	}
	return 0
}

// spot is where something stands, both from 1; 0 where that is not known.
type spot struct{ line, column int }

// syntax takes the place and the message out of the library's error.
func syntax(err error) (at spot, message string) {
	var y yaml.Error
	if !errors.As(err, &y) {
		return spot{}, "cannot be read: " + firstLine(err.Error())
	}
	at.line = 1
	if t := y.GetToken(); t != nil && t.Position != nil {
		at = spot{t.Position.Line, t.Position.Column}
	}
	return at, firstLine(y.GetMessage())
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

// placeOf gives where the first plain value stands that reads so.
func placeOf(n ast.Node, value string) (at spot) {
	ast.Walk(finder(func(n ast.Node) bool {
		if t := n.GetToken(); at.line == 0 && t != nil && t.Value == value {
			at = spot{t.Position.Line, t.Position.Column}
		}
		return at.line == 0
	}), n)
	return at
}

// finder visits nodes for as long as it wants to.
type finder func(ast.Node) bool

// Visit implements ast.Visitor.
func (f finder) Visit(n ast.Node) ast.Visitor {
	if f(n) {
		return f
	}
	return nil
}

// fieldAt gives the field that begins at a place, or else whose value does, for faults of
// the library that do not say it.
func fieldAt(b []byte, at spot) (name string) {
	n := 0
	for text := range bytes.Lines(b) {
		if n++; n != at.line {
			continue
		}
		for _, key := range keys.FindAllSubmatchIndex(text, -1) {
			if name == "" || key[2] < at.column {
				name = string(text[key[2]:key[3]])
			}
		}
	}
	return name
}

// keys finds the fields on a line.
var keys = regexp.MustCompile(`(?:^|[ {,-])([a-z_0-9]{1,64}):(?:\s|$)`)

// lineOf finds the line of a field such as options[3].prior.latency, or of what it
// would stand in.
func lineOf(file *ast.File, field string) int {
	for {
		path, err := yaml.PathString(strings.TrimSuffix("$."+field, "."))
		if err == nil {
			if n, err := path.FilterFile(file); err == nil && n != nil && n.GetToken() != nil {
				return start(n)
			}
		}
		at := strings.LastIndexAny(field, ".[")
		if at < 0 {
			return 1
		}
		field = field[:at]
	}
}

// start is the line of a node's first character.
func start(n ast.Node) int {
	switch v := n.(type) {
	case *ast.MappingNode:
		if !v.IsFlowStyle && len(v.Values) > 0 {
			return start(v.Values[0].Key)
		}
	case *ast.MappingValueNode:
		return start(v.Key)
	}
	return n.GetToken().Position.Line
}

// defaults is what holds where a scenario says nothing.
func defaults() *Scenario {
	return &Scenario{
		Seed: 1, Days: 7, Limit: 20 * time.Second,
		Fleet:   Fleet{Devices: 200, Least: 1, Most: 60, Night: 0.2, Spread: 0.25, Distance: 0.35},
		Weights: Weights{Second: 200, Failure: 5000, Quality: 2000, Exhausted: 20000},
		Profile: Profile{Input: 1000, Output: 300},
		Rules:   Rules{Sampling: 0.1, Exploration: 0.3, Reorder: 0.1},
		Storm:   Storm{Option: 20 * time.Minute, Domain: 40 * time.Minute},
	}
}

// checker holds a scenario to its bounds and fills in what hangs on other values.
type checker struct {
	s      *Scenario
	faults []Fault
}

func (c *checker) fail(field, format string, args ...any) {
	c.faults = append(c.faults, Fault{Field: field, Message: fmt.Sprintf(format, args...)})
}

func (c *checker) within(field string, x, least, most float64) {
	if !(x >= least && x <= most) {
		c.fail(field, "%g is outside %g to %g", x, least, most)
	}
}

func (c *checker) time(field string, d, least, most time.Duration) {
	if d < least || d > most {
		c.fail(field, "%s is outside %s to %s", d, least, most)
	}
}

func (c *checker) check() {
	s, f := c.s, &c.s.Fleet
	c.within("days", s.Days, 0.01, MaxDays)
	c.time("limit", s.Limit, time.Second, time.Minute)
	c.within("fleet.devices", float64(f.Devices), 1, MaxDevices)
	c.within("fleet.least", f.Least, 0.01, maxRate)
	c.within("fleet.most", f.Most, math.Max(f.Least, 0.01), maxRate)
	c.within("fleet.night", f.Night, 0.01, 1)
	c.within("fleet.spread", f.Spread, 0, 2)
	c.within("fleet.distance", f.Distance, 0, 2)
	c.within("fleet.sleepy", f.Sleepy, 0, 1)
	for name, w := range map[string]float64{"second": s.Weights.Second, "failure": s.Weights.Failure, "quality": s.Weights.Quality, "exhausted": s.Weights.Exhausted} {
		c.within("weights."+name, w, 0, 1e6)
	}
	c.within("profile.input", float64(s.Profile.Input), 0, 1e6)
	c.within("profile.output", float64(s.Profile.Output), 0, 1e6)
	c.within("rules.sampling", s.Rules.Sampling, 0.001, 1)
	c.within("rules.reorder", s.Rules.Reorder, 0.001, 1)
	c.within("rules.exploration", s.Rules.Exploration, 0, 60)
	c.options()
	for i := range f.Far {
		at := fmt.Sprintf("fleet.far[%d].", i)
		c.domain(at+"domain", f.Far[i].Domain)
		c.within(at+"share", f.Far[i].Share, 0, 1)
		c.within(at+"factor", f.Far[i].Factor, 0.01, 100)
	}
	c.events()
	for i := range s.Ceilings {
		l, at := &s.Ceilings[i], fmt.Sprintf("ceilings[%d].", i)
		if l.Options == "" {
			c.fail(at+"options", "want a pattern such as alpha/*")
		}
		if (l.USDPerMonth > 0) == (l.CallsPerDay > 0) {
			c.fail(at+"options", "want either usd_per_month or calls_per_day, above 0")
		}
		c.within(at+"usd_per_month", l.USDPerMonth, 0, 1e6)
		c.within(at+"calls_per_day", float64(l.CallsPerDay), 0, 1e9)
	}
	c.liars()
	for i, b := range s.Baselines {
		if !slices.Contains(Names(), b) || b == Product {
			c.fail(fmt.Sprintf("baselines[%d]", i), "%q: want one of %s", chain.Clip(b), strings.Join(Names()[1:], ", "))
		}
	}
	slices.SortFunc(c.faults, func(a, b Fault) int { return cmp.Compare(a.Field, b.Field) })
}

func (c *checker) options() {
	s := c.s
	if len(s.Options) == 0 || len(s.Options) > maxOptions {
		c.fail("options", "%d of them: want 1 to %d", len(s.Options), maxOptions)
		return
	}
	open := false
	for i := range s.Options {
		o, at := &s.Options[i], fmt.Sprintf("options[%d].", i)
		if o.Name == "" || len(o.Name) > chain.MaxNameBytes || strings.ContainsFunc(o.Name, func(r rune) bool { return r <= ' ' || r > '~' }) {
			c.fail(at+"name", "%q: want 1 to %d printable characters without spaces", chain.Clip(o.Name), chain.MaxNameBytes)
		}
		if slices.IndexFunc(s.Options, func(p Option) bool { return p.Name == o.Name }) < i {
			c.fail(at+"name", "%q stands twice", chain.Clip(o.Name))
		}
		if o.Domain == "" {
			o.Domain = o.Name
		}
		if len(o.Domain) > chain.MaxNameBytes {
			c.fail(at+"domain", "longer than %d bytes", chain.MaxNameBytes)
		}
		c.within(at+"input", o.Input, 0, 1e4)
		c.within(at+"output", o.Output, 0, 1e4)
		c.within(at+"quality", o.Quality, 0, 1)
		c.time(at+"latency", o.Latency, time.Millisecond, time.Hour)
		or(&o.Spread, 0.4)
		c.within(at+"spread", o.Spread, 0, 2)
		or(&o.Reliability, 0.99)
		c.within(at+"reliability", o.Reliability, 0.001, 1)
		typical := min(max(o.Latency, time.Millisecond), time.Hour) // one mistake is told once
		or(&o.Failure, typical/3)
		c.time(at+"failure", o.Failure, time.Millisecond/4, time.Hour)
		or(&o.Prior.Latency, typical)
		c.time(at+"prior.latency", o.Prior.Latency, time.Millisecond, time.Hour)
		or(&o.Prior.Reliability, o.Reliability)
		c.within(at+"prior.reliability", o.Prior.Reliability, 0.001, 1)
		c.time(at+"from", o.From, 0, MaxDays*24*time.Hour)
		open = open || !o.Withheld && o.From == 0
	}
	if !open {
		c.fail("options", "none of them can be used from the beginning")
	}
}

func or[T comparable](field *T, fallback T) {
	var zero T
	if *field == zero {
		*field = fallback
	}
}

func (c *checker) events() {
	s, longest := c.s, time.Duration(MaxDays*24)*time.Hour
	if len(s.Outages) > maxEvents || len(s.Changes) > maxEvents {
		c.fail("outages", "too many events: at most %d of a kind", maxEvents)
	}
	for i := range s.Outages {
		o, at := &s.Outages[i], fmt.Sprintf("outages[%d].", i)
		switch {
		case (o.Option == "") == (o.Domain == ""):
			c.fail(at+"option", "want either an option or a domain")
		case o.Option != "":
			c.option(at+"option", o.Option)
		default:
			c.domain(at+"domain", o.Domain)
		}
		c.time(at+"from", o.From, 0, longest)
		c.time(at+"for", o.For, time.Second, longest)
	}
	c.within("storm.options", s.Storm.Options, 0, 100)
	c.within("storm.domains", s.Storm.Domains, 0, 100)
	c.within("storm.hang", s.Storm.Hang, 0, 1)
	c.time("storm.option", s.Storm.Option, time.Second, longest)
	c.time("storm.domain", s.Storm.Domain, time.Second, longest)
	for i := range s.Changes {
		x, at := &s.Changes[i], fmt.Sprintf("changes[%d].", i)
		c.option(at+"option", x.Option)
		c.time(at+"at", x.At, 0, longest)
		c.time(at+"over", x.Over, 0, longest)
		c.within(at+"slower", x.Slower, 0, 100)
		c.within(at+"dearer", x.Dearer, 0, 100)
		c.within(at+"reliability", x.Reliability, 0, 1)
	}
}

func (c *checker) option(field, name string) {
	if !slices.ContainsFunc(c.s.Options, func(o Option) bool { return o.Name == name }) {
		c.fail(field, "there is no option %q", chain.Clip(name))
	}
}

func (c *checker) domain(field, name string) {
	if !slices.ContainsFunc(c.s.Options, func(o Option) bool { return o.Domain == name }) {
		c.fail(field, "no option is in domain %q", chain.Clip(name))
	}
}

func (c *checker) liars() {
	l := &c.s.Liars
	c.within("liars.share", l.Share, 0, 1)
	c.time("liars.from", l.From, 0, MaxDays*24*time.Hour)
	switch {
	case l.Share == 0:
	case l.Kind == Favourite:
		c.option("liars.favourite", l.Favourite)
	case l.Kind != Slow && l.Kind != Random:
		c.fail("liars.kind", "%q: want %s, %s or %s", chain.Clip(l.Kind), Slow, Random, Favourite)
	}
}
