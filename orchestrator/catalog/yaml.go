package catalog

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"

	"github.com/chordwheel/chordwheel/chain"
)

// Problem is one fault of a catalogue.
type Problem struct {
	Line    int    `json:"line"`   // from 1
	Column  int    `json:"column"` // from 1
	Message string `json:"message"`
}

// Invalid is the error of [Parse]: every fault that was found, in the order of
// the file.
type Invalid struct {
	File     string
	Problems []Problem
}

// Error gives one line per fault: file:line:column: message.
func (e *Invalid) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = fmt.Sprintf("%s:%d:%d: %s", e.File, p.Line, p.Column, p.Message)
	}
	return strings.Join(lines, "\n")
}

// maxProblems bounds what is said about one file.
const maxProblems = 100

// reader walks the syntax tree and collects faults, so that one reading names
// them all. Its methods return zero values for what they refused.
type reader struct {
	problems []Problem
	later    []func() // checks that need the whole file
}

func (r *reader) fail(n ast.Node, format string, args ...any) {
	r.failAt(position(n), format, args...)
}

func (r *reader) failAt(at *token.Position, format string, args ...any) {
	r.problems = append(r.problems, Problem{Line: at.Line, Column: at.Column, Message: fmt.Sprintf(format, args...)})
}

// sorted gives the faults in the order of the file, without repeats.
func (r *reader) sorted() []Problem {
	slices.SortStableFunc(r.problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Message, b.Message))
	})
	p := slices.Compact(r.problems)
	if len(p) > maxProblems {
		last := p[maxProblems]
		last.Message = fmt.Sprintf("and %d faults more from here on", len(p)-maxProblems)
		p = append(p[:maxProblems], last)
	}
	return p
}

// position is where a reader should look: the first character of n.
func position(n ast.Node) *token.Position {
	first := n
	for {
		switch v := first.(type) {
		case *ast.MappingNode:
			if !v.IsFlowStyle && len(v.Values) > 0 {
				first = v.Values[0].Key
				continue
			}
		case *ast.MappingValueNode:
			first = v.Key
			continue
		}
		break
	}
	if t := first.GetToken(); t != nil && t.Position != nil {
		return t.Position
	}
	return &token.Position{Line: 1, Column: 1}
}

// field is one key of an object.
type field struct {
	name     string
	required bool
	read     func(n ast.Node)
}

// object reads a mapping whose keys are all known. what names it in faults.
func (r *reader) object(n ast.Node, what string, fields ...field) {
	values, ok := pairs(n)
	if !ok {
		r.fail(n, "%s: want a mapping of fields, found %s", what, kindOf(n))
		return
	}
	seen := map[string]bool{}
	for _, v := range values {
		key := keyText(v.Key)
		i := slices.IndexFunc(fields, func(f field) bool { return f.name == key })
		switch {
		case v.Key.IsMergeKey():
			r.fail(v.Key, "%s: merge keys are not allowed", what)
		case i < 0:
			r.fail(v.Key, "%s: unknown field %q%s", what, clip(key), suggest(key, fields))
		case seen[key]:
			r.fail(v.Key, "%s: field %q stands twice", what, key)
		case isNull(v.Value) && fields[i].required:
			r.fail(v.Key, "%s: field %q has no value", what, key)
		case isNull(v.Value): // as if it were absent
		default:
			fields[i].read(v.Value)
		}
		seen[key] = true
	}
	for _, f := range fields {
		if f.required && !seen[f.name] {
			r.fail(n, "%s: required field %q is missing", what, f.name)
		}
	}
}

func pairs(n ast.Node) ([]*ast.MappingValueNode, bool) {
	switch v := n.(type) {
	case *ast.MappingNode:
		return v.Values, true
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{v}, true
	}
	return nil, false
}

// list reads a sequence of at most limit elements.
func (r *reader) list(n ast.Node, what string, limit int, read func(n ast.Node)) {
	s, ok := n.(*ast.SequenceNode)
	if !ok {
		r.fail(n, "%s: want a list, found %s", what, kindOf(n))
		return
	}
	if len(s.Values) > limit {
		r.fail(n, "%s: %d elements, at most %d", what, len(s.Values), limit)
		return
	}
	for _, v := range s.Values {
		if v == nil || isNull(v) {
			r.fail(n, "%s: an element is empty", what)
			continue
		}
		read(v)
	}
}

// text reads a plain or quoted scalar; check may refuse it with a reason.
func (r *reader) text(n ast.Node, what string, check func(string) error) string {
	var s string
	switch v := n.(type) {
	case *ast.StringNode:
		s = v.Value
	case *ast.LiteralNode:
		s = v.Value.Value
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		s = n.GetToken().Value
	default:
		r.fail(n, "%s: want text, found %s", what, kindOf(n))
		return ""
	}
	if err := check(s); err != nil {
		r.fail(n, "%s: %v", what, err)
		return ""
	}
	return s
}

// number reads a number between least and most.
func (r *reader) number(n ast.Node, what string, least, most float64) float64 {
	x, ok := 0.0, false
	switch v := n.(type) {
	case *ast.IntegerNode:
		switch i := v.Value.(type) {
		case int64:
			x, ok = float64(i), true
		case uint64:
			x, ok = float64(i), true
		}
	case *ast.FloatNode:
		x, ok = v.Value, true
	}
	switch {
	case !ok:
		r.fail(n, "%s: want a number, found %s", what, kindOf(n))
		return least
	case math.IsNaN(x) || x < least:
		r.fail(n, "%s: %s is below %s", what, clip(n.GetToken().Value), plain(least))
		return least
	case x > most:
		r.fail(n, "%s: %s is above %s", what, clip(n.GetToken().Value), plain(most))
		return least
	}
	return x
}

func plain(x float64) string { return strconv.FormatFloat(x, 'f', -1, 64) }

// integer reads a whole number between least and most.
func (r *reader) integer(n ast.Node, what string, least, most int64) int64 {
	x := r.number(n, what, float64(least), float64(most))
	if x != math.Trunc(x) {
		r.fail(n, "%s: want a whole number", what)
		return least
	}
	return int64(x)
}

func (r *reader) boolean(n ast.Node, what string) bool {
	if b, ok := n.(*ast.BoolNode); ok {
		return b.Value
	}
	r.fail(n, "%s: want true or false, found %s", what, kindOf(n))
	return false
}

// duration reads "2s" or "1m30s": more than nothing, at most a year.
func (r *reader) duration(n ast.Node, what string) time.Duration {
	s, ok := n.(*ast.StringNode)
	if !ok {
		r.fail(n, "%s: want a duration with its unit, such as 5s, found %s", what, kindOf(n))
		return 0
	}
	d, err := time.ParseDuration(s.Value)
	switch {
	case err != nil:
		r.fail(n, "%s: %q is not a duration, such as 5s or 1m30s", what, clip(s.Value))
	case d < time.Millisecond || d > 365*24*time.Hour:
		r.fail(n, "%s: %s is outside 1ms to a year", what, clip(s.Value))
	default:
		return d
	}
	return 0
}

func isNull(n ast.Node) bool { return n == nil || n.Type() == ast.NullType }

func keyText(k ast.MapKeyNode) string {
	if s, ok := k.(*ast.StringNode); ok {
		return s.Value
	}
	if t := k.GetToken(); t != nil {
		return t.Value
	}
	return ""
}

// kindOf names a node for people.
func kindOf(n ast.Node) string {
	switch n.Type() {
	case ast.MappingType, ast.MappingValueType:
		return "a mapping"
	case ast.SequenceType:
		return "a list"
	case ast.NullType:
		return "nothing"
	case ast.AnchorType, ast.AliasType:
		return "an anchor or alias, which are not allowed"
	case ast.TagType:
		return "a tag, which is not allowed"
	case ast.StringType, ast.LiteralType:
		return "text"
	case ast.BoolType:
		return "true or false"
	}
	return "a number"
}

// suggest finds a field that was probably meant.
func suggest(key string, fields []field) string {
	names := make([]string, len(fields))
	for i := range fields {
		names[i] = fields[i].name
	}
	if best := Nearest(key, names); best != "" {
		return fmt.Sprintf("; did you mean %q?", best)
	}
	return ""
}

// Nearest gives that of names which was probably meant by a misspelt word, "" if none is within
// two edits of it. It is for short words: none is near to one of over 32 bytes.
func Nearest(word string, names []string) string {
	best, distance := "", 3
	for _, name := range names {
		if d := edits(word, name, distance); d < distance {
			best, distance = name, d
		}
	}
	return best
}

// edits is the edit distance of two short words, or limit if it is not below that.
func edits(a, b string, limit int) int {
	if len(a) > 32 || len(a)-len(b) >= limit || len(b)-len(a) >= limit {
		return limit
	}
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return min(row[len(b)], limit)
}

// clip keeps foreign text short and on one line.
func clip(s string) string {
	s = strings.Map(func(c rune) rune {
		if c < ' ' || c == 0x7f || c >= 0x80 && c < 0xa0 {
			return '?'
		}
		return c
	}, s)
	return chain.Clip(s)
}
