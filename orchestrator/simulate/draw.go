package simulate

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"math"
	"strings"
)

// Sizes of the drawing, in pixels.
const (
	drawWide  = 980
	drawLeft  = 70
	drawRight = 150
	drawTop   = 64
	panelHigh = 130
	panelGap  = 42
)

// drawn are the policies that have a line of their own, with their colours: one that
// stands apart for the product, quiet ones for what it is compared with.
var drawn = []struct{ policy, colour, width string }{
	{FixedOrder, "#b8a1c9", "1"}, {LeastTime, "#e3a857", "1"}, {Cheapest, "#7fb08a", "1"}, {Greedy, "#d98c8c", "1"}, {C2, "#8a8a8a", "1.5"}, {C1, "#444444", "1.5"}, {Product, "#1f5fbf", "2"},
}

// panel is one chart over time.
type panel struct {
	title string
	of    func(*Hour) float64
	over  bool     // how much that is above what who knows everything has, as a share
	who   []string // policies; nil: all that are drawn
	share bool     // of 100 %
	log   bool
}

var panels = []panel{
	{title: "cost of a request, micro-dollars (logarithmic)", of: func(h *Hour) float64 { return h.Cost }, log: true},
	{title: "regret: by how much it is dearer than c1 in the same hour", of: func(h *Hour) float64 { return h.Cost }, who: []string{Product, C2}, over: true, share: true},
	{title: "mean time to the end of a request, seconds (logarithmic)", of: func(h *Hour) float64 { return h.Seconds }, log: true},
	{title: "requests that tried the best option of the moment first", of: func(h *Hour) float64 { return h.Best }, share: true},
	{title: "requests that first tried an option that had been down for over 5 minutes", of: func(h *Hour) float64 { return h.Dead }, who: []string{Product, C2}, share: true},
	{title: "how much dearer the hub's order is than the best, for the middle of the fleet", of: func(h *Hour) float64 { return h.Hub }, who: []string{Product}, share: true},
	{title: "options that a device moved by itself, in an hour", of: func(h *Hour) float64 { return h.Reorders }, who: []string{Product}},
	{title: "requests that got an answer", of: func(h *Hour) float64 { return h.Answered }, share: true},
	{title: "escalations: protests, an hour", of: func(h *Hour) float64 { return h.Protests }, who: []string{Product}},
	{title: "bytes between a device and the hub, an hour", of: func(h *Hour) float64 { return h.Bytes }, who: []string{Product}},
	{title: "requests, an hour", of: func(h *Hour) float64 { return h.Requests }, who: []string{Product}},
}

// Draw makes a picture of a result, in SVG.
func Draw(r *Result) []byte {
	var b bytes.Buffer
	high := drawTop + len(panels)*(panelHigh+panelGap) + 10
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", drawWide, high, drawWide, high)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", drawWide, high)
	text(&b, drawLeft, 26, "#222222", "start", 16, r.Name)
	text(&b, drawLeft, 46, "#666666", "start", 12, fmt.Sprintf("%s; seed %d, %d devices, %d options", r.About, r.Seed, r.Devices, r.Options))
	for i := range panels {
		panels[i].draw(&b, r, drawTop+i*(panelHigh+panelGap)+20)
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

func text(b *bytes.Buffer, x, y float64, colour, anchor string, size int, s string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" fill="%s" text-anchor="%s" font-size="%d">`, x, y, colour, anchor, size)
	_ = xml.EscapeText(b, []byte(s)) // a buffer takes everything
	b.WriteString("</text>\n")
}

// scale is where values stand on a panel's axis.
type scale struct {
	low, high float64
	step      float64 // between marks; 0: four parts
	log       bool
	top       int
}

func (s scale) y(v float64) float64 {
	low, high := s.low, s.high
	if s.log {
		v, low, high = math.Log(max(v, s.low)), math.Log(low), math.Log(high)
	}
	part := min(max((v-low)/(high-low), 0), 1)
	return float64(s.top) + panelHigh*(1-part)
}

func (p *panel) draws(policy string) bool {
	if p.who == nil {
		return true
	}
	for _, w := range p.who {
		if w == policy {
			return true
		}
	}
	return false
}

// draw puts a panel whose upper edge is at top.
func (p *panel) draw(b *bytes.Buffer, r *Result, top int) {
	s, hours := p.scale(r, top), 0
	for i := range r.Outcomes {
		hours = max(hours, len(r.Outcomes[i].Series))
	}
	wide := float64(drawWide - drawLeft - drawRight)
	x := func(hour float64) float64 { return drawLeft + wide*hour/math.Max(float64(hours), 1) }
	text(b, drawLeft, float64(top)-8, "#222222", "start", 12, p.title)
	for _, v := range s.marks() {
		fmt.Fprintf(b, `<line x1="%d" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#e6e6e6"/>`+"\n", drawLeft, s.y(v), x(float64(hours)), s.y(v))
		text(b, drawLeft-8, s.y(v)+4, "#666666", "end", 11, p.label(v))
	}
	step := 24.0
	for hours > 24*14 && float64(hours)/step > 14 {
		step *= 2
	}
	for h := 0.0; h <= float64(hours); h += step {
		fmt.Fprintf(b, `<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#e6e6e6"/>`+"\n", x(h), top, x(h), top+panelHigh)
		text(b, x(h), float64(top+panelHigh+14), "#666666", "middle", 10, fmt.Sprintf("day %g", h/24))
	}
	legend := 0
	for i := range drawn {
		d := &drawn[i]
		o := r.Of(d.policy)
		if o == nil || !p.draws(d.policy) {
			continue
		}
		var points []string
		for h := range o.Series {
			if o.Series[h].Requests > 0 {
				points = append(points, fmt.Sprintf("%.1f,%.1f", x(float64(h)+0.5), s.y(p.value(r, o, h))))
			}
		}
		fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="%s" points="%s"/>`+"\n", d.colour, d.width, strings.Join(points, " "))
		y := float64(top + panelHigh - 4 - 17*legend)
		fmt.Fprintf(b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="%s" stroke-width="3"/>`+"\n", x(float64(hours))+12, y-4, x(float64(hours))+32, y-4, d.colour)
		text(b, x(float64(hours))+38, y, "#444444", "start", 11, d.policy)
		legend++
	}
}

// value gives what a policy's line shows for an hour.
func (p *panel) value(r *Result, o *Outcome, hour int) float64 {
	v := p.of(&o.Series[hour])
	if c1 := r.Of(C1); p.over && c1 != nil && hour < len(c1.Series) {
		return v/max(p.of(&c1.Series[hour]), 1e-9) - 1
	}
	return v
}

// scale finds the range of a panel's values.
func (p *panel) scale(r *Result, top int) scale {
	s := scale{low: math.Inf(1), high: math.Inf(-1), log: p.log, top: top}
	for i := range r.Outcomes {
		if !p.shown(r.Outcomes[i].Policy) {
			continue
		}
		for h := range r.Outcomes[i].Series {
			if r.Outcomes[i].Series[h].Requests > 0 {
				v := p.value(r, &r.Outcomes[i], h)
				s.low, s.high = min(s.low, v), max(s.high, v)
			}
		}
	}
	switch {
	case s.low > s.high:
		s.low, s.high = 1, 2
	case p.log:
		s.low, s.high = max(s.low*0.95, 1e-3), max(s.high*1.05, 2e-3)
	case p.share && s.low > 0.9: // nearly all: what is missing is of interest
		s.low, s.high = min(s.low-0.001, 0.99), 1
	default:
		s.low, s.step = min(s.low, 0), nice(max(s.high-min(s.low, 0), 1e-3)/4)
		s.low, s.high = s.step*math.Floor(s.low/s.step), s.step*math.Ceil(max(s.high, 1e-3)/s.step)
	}
	return s
}

// nice rounds a step up to 1, 2, 2.5 or 5 times a power of ten.
func nice(step float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(step)))
	for _, m := range []float64{1, 2, 2.5, 5} {
		if m*power >= step*0.999 {
			return m * power
		}
	}
	return 10 * power
}

// shown reports whether a policy has a line on p.
func (p *panel) shown(policy string) bool {
	for i := range drawn {
		if drawn[i].policy == policy {
			return p.draws(policy)
		}
	}
	return false
}

// marks gives the values that have a line across.
func (s scale) marks() (list []float64) {
	for i := 0; s.step > 0 && s.low+float64(i)*s.step <= s.high*1.001; i++ {
		list = append(list, s.low+float64(i)*s.step)
	}
	if list != nil {
		return list
	}
	for i := range 5 {
		part := float64(i) / 4
		if s.log {
			list = append(list, s.low*math.Pow(s.high/s.low, part))
		} else {
			list = append(list, s.low+(s.high-s.low)*part)
		}
	}
	return list
}

func (p *panel) label(v float64) string {
	switch {
	case p.share:
		return fmt.Sprintf("%.3g %%", 100*v)
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.2g", v)
}
