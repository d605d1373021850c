package builtin

import (
	"math"
	"regexp"
	"strconv"
	"strings"
)

// sum answers a question that is nothing but a calculation or a conversion of
// units. It reports false for anything else.
func sum(question string) (string, bool) {
	if len(question) > 200 {
		return "", false
	}
	q := strings.ToLower(strings.TrimSpace(question))
	q = strings.TrimRight(q, " ?=.!")
	for trimmed := true; trimmed; {
		trimmed = false
		for _, lead := range []string{"please ", "what is ", "what's ", "whats ", "what are ", "how much is ", "how many is ", "calculate ", "compute ",
			"solve ", "evaluate ", "and ", "can you ", "tell me ", "convert ", "work out "} {
			if rest, ok := strings.CutPrefix(q, lead); ok {
				q, trimmed = strings.TrimSpace(rest), true
			}
		}
	}
	if a, ok := converted(q); ok {
		return a, true
	}
	for _, w := range []struct{ from, to string }{{"divided by", "/"}, {"multiplied by", "*"}, {"to the power of", "^"}, {"plus", "+"}, {"minus", "-"},
		{"times", "*"}, {"over", "/"}, {"percent of", "% of"}, {"% of", "/100*"}, {"percent", "/100"}, {"squared", "^2"}, {"×", "*"}, {"÷", "/"}, {"−", "-"}, {"**", "^"}} {
		q = strings.ReplaceAll(q, w.from, w.to)
	}
	e := expression{text: q}
	n := e.terms()
	if e.blank(); e.failed || e.at != len(e.text) || e.operators == 0 {
		return "", false
	}
	if math.IsNaN(n) || math.IsInf(n, 0) {
		return "That has no result that I could write down.", true
	}
	return number(n), true
}

func number(n float64) string {
	if n == math.Trunc(n) && math.Abs(n) < 1e15 {
		return strconv.FormatFloat(n, 'f', -1, 64)
	}
	s := strconv.FormatFloat(n, 'g', 10, 64)
	if r, err := strconv.ParseFloat(s, 64); err == nil && math.Abs(r) < 1e15 && math.Abs(r) >= 1e-6 {
		return strconv.FormatFloat(r, 'f', -1, 64)
	}
	return s
}

// expression reads + - * / ^ ( ) and sqrt, by precedence.
type expression struct {
	text      string
	at        int
	depth     int
	operators int
	failed    bool
}

func (e *expression) blank() {
	for e.at < len(e.text) && e.text[e.at] == ' ' {
		e.at++
	}
}

func (e *expression) take(c string) bool {
	if e.blank(); strings.HasPrefix(e.text[e.at:], c) {
		e.at += len(c)
		return true
	}
	return false
}

func (e *expression) terms() float64 {
	n := e.factors()
	for !e.failed {
		switch {
		case e.take("+"):
			e.operators++
			n += e.factors()
		case e.take("-"):
			e.operators++
			n -= e.factors()
		default:
			return n
		}
	}
	return n
}

func (e *expression) factors() float64 {
	n := e.power()
	for !e.failed {
		switch {
		case e.take("*"), e.take("x "), e.take("· "):
			e.operators++
			n *= e.power()
		case e.take("/"):
			e.operators++
			n /= e.power()
		default:
			return n
		}
	}
	return n
}

func (e *expression) power() float64 {
	if e.take("-") {
		if e.depth++; e.depth > 32 {
			e.failed = true
			return 0
		}
		n := -e.power()
		e.depth--
		return n
	}
	n := e.operand()
	if !e.failed && e.take("^") {
		e.operators++
		if e.depth++; e.depth > 32 {
			e.failed = true
			return 0
		}
		n = math.Pow(n, e.power())
		e.depth--
	}
	return n
}

func (e *expression) operand() float64 {
	root := e.take("square root of") || e.take("the square root of") || e.take("sqrt")
	if root {
		e.operators++
	}
	var n float64
	if e.take("(") {
		if e.depth++; e.depth > 32 {
			e.failed = true
			return 0
		}
		n = e.terms()
		e.depth--
		e.failed = e.failed || !e.take(")")
	} else {
		n = e.literal()
	}
	if root {
		n = math.Sqrt(n)
	}
	return n
}

func (e *expression) literal() float64 {
	e.blank()
	from := e.at
	for e.at < len(e.text) && (e.text[e.at] >= '0' && e.text[e.at] <= '9' || e.text[e.at] == '.' || e.text[e.at] == ',') {
		e.at++
	}
	n, err := strconv.ParseFloat(strings.ReplaceAll(e.text[from:e.at], ",", ""), 64)
	e.failed = e.failed || err != nil
	return n
}

// unit is a name with its kind of quantity and its size in that kind's base.
type unit struct {
	kind   string
	factor float64
	offset float64 // for temperatures: base = (n + offset) * factor
}

var units = func() map[string]unit {
	m := map[string]unit{}
	for _, line := range strings.Split(`length 0.001 mm millimetre millimeter
length 0.01 cm centimetre centimeter
length 1 m metre meter
length 1000 km kilometre kilometer
length 0.0254 in inch inches "
length 0.3048 ft foot feet
length 0.9144 yd yard
length 1609.344 mi mile
mass 0.001 g gram gramme
mass 0.000001 mg milligram
mass 1 kg kilo kilogram
mass 1000 t tonne
mass 0.45359237 lb lbs pound
mass 0.028349523125 oz ounce
time 1 s sec second
time 0.001 ms millisecond
time 60 min minute
time 3600 h hr hour
time 86400 d day
time 604800 week
volume 1 l litre liter
volume 0.001 ml millilitre milliliter
volume 3.785411784 gal gallon
data 1 byte b
data 1000 kb kilobyte
data 1000000 mb megabyte
data 1000000000 gb gigabyte
data 1000000000000 tb terabyte
data 1024 kib kibibyte
data 1048576 mib mebibyte
data 1073741824 gib gibibyte`, "\n") {
		f := strings.Fields(line)
		factor, _ := strconv.ParseFloat(f[1], 64)
		for _, name := range f[2:] {
			u := unit{kind: f[0], factor: factor}
			m[name] = u
			if len(name) > 2 {
				m[name+"s"] = u
			}
		}
	}
	for _, name := range []string{"c", "°c", "celsius", "degrees celsius", "degrees c"} {
		m[name] = unit{"temperature", 1, 0}
	}
	for _, name := range []string{"f", "°f", "fahrenheit", "degrees fahrenheit", "degrees f"} {
		m[name] = unit{"temperature", 5.0 / 9, -32}
	}
	for _, name := range []string{"k", "kelvin"} {
		m[name] = unit{"temperature", 1, -273.15}
	}
	return m
}()

var (
	asConversion = regexp.MustCompile(`^(-?[0-9][0-9.,]*) ?([a-z°"]+(?: [a-z]+)?) (?:to|in|into|as) ([a-z°"]+(?: [a-z]+)?)$`)
	asHowMany    = regexp.MustCompile(`^how many ([a-z°]+) (?:are )?(?:there )?(?:are )?in (?:(an?|one|-?[0-9][0-9.,]*) ?)([a-z°]+)$`)
)

func converted(q string) (string, bool) {
	var value, from, to string
	if m := asConversion.FindStringSubmatch(q); m != nil {
		value, from, to = m[1], m[2], m[3]
	} else if m := asHowMany.FindStringSubmatch(q); m != nil {
		to, value, from = m[1], m[2], m[3]
		if value == "a" || value == "an" || value == "one" {
			value = "1"
		}
	}
	a, okA := units[from]
	b, okB := units[to]
	n, err := strconv.ParseFloat(strings.ReplaceAll(value, ",", ""), 64)
	if !okA || !okB || err != nil {
		return "", false
	}
	if a.kind != b.kind {
		return "I cannot turn a " + a.kind + " into a " + b.kind + ".", true
	}
	result := (n+a.offset)*a.factor/b.factor - b.offset
	if a.kind == "temperature" {
		result = math.Round(result*100) / 100
	} else if r, err := strconv.ParseFloat(strconv.FormatFloat(result, 'g', 6, 64), 64); err == nil {
		result = r
	}
	return number(n) + " " + from + " = " + number(result) + " " + to, true
}
