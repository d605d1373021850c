package main

import (
	"fmt"
	"html"
	"io"
	"math"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/job"
)

// Measures of a drawn timeline, in pixels.
const (
	svgLabel  = 190 // the column with what a job is for
	svgTime   = 640 // the column with the bars
	svgRight  = 250 // the column with who ran it
	svgRow    = 26
	svgBar    = 14
	svgHead   = 78
	svgFoot   = 60
	svgMargin = 24
)

// svgStyle follows the reader's choice of a light or dark page.
const svgStyle = `<style>
text{font:12px ui-sans-serif,system-ui,sans-serif;fill:#1d2126}.soft{fill:#69707a}.title{font-size:16px;font-weight:600}.n{text-anchor:middle}.paper{fill:#fbfbfa}
.grid{stroke:#e2e4e7}.band{fill:#f1f2f4}.wait{fill:#c3c9d1}.done{fill:#2f7fd6}.winner{fill:#17803d}.superseded{fill:#b9a6dd}.failed{fill:#c8452f}.cancelled{fill:#d39a3a}.running{fill:#7fb2e8}.root{fill:#8d96a1}
@media (prefers-color-scheme:dark){text{fill:#e4e7ea}.soft{fill:#98a1ab}.paper{fill:#14171a}.grid{stroke:#2b3036}.band{fill:#1b1f23}.wait{fill:#4a525c}.superseded{fill:#8a74b8}}
</style>`

// timeline draws when each job of a tree waited and ran.
type timeline struct {
	w     io.Writer
	now   time.Time
	from  time.Time
	whole time.Duration
	width int
	y     int // of the next row
}

// drawTimeline writes an SVG of when each job of a tree waited and ran.
func drawTimeline(w io.Writer, tree []job.Record, now time.Time) {
	root := &tree[0]
	parts := partsOf(tree)
	t := &timeline{w: w, now: now, from: root.Created, whole: max(time.Millisecond, lastEnd(tree, now).Sub(root.Created)),
		width: 2*svgMargin + svgLabel + svgTime + svgRight, y: svgHead}
	height := svgHead + svgRow*(len(parts)+1) + svgFoot
	fmt.Fprintf(w, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %d %d" role="img" aria-label="when the jobs of a request ran">`+"\n%s\n", t.width, height, t.width, height, svgStyle)
	fmt.Fprintf(w, `<rect class="paper" width="%d" height="%d"/>`+"\n", t.width, height)
	text(w, svgMargin, 32, "title", fmt.Sprintf("%s request, %s after %s", classOf(root), root.State, took(root, now)))
	line := fmt.Sprintf("job %s · %s · %s", root.ID, count(len(parts), "job"), count(root.Attempts, "attempt"))
	if s := scores(root); s != "" {
		line += " · score " + s
	}
	if c := costs(root); c != "—" {
		line += " · " + c
	}
	text(w, svgMargin, 52, "soft", line)
	axis(w, t.whole, svgHead, height-svgFoot)
	t.row(root, "the whole request", "root")
	for _, r := range parts {
		t.row(r, label(r), colourOf(r))
	}
	legend(w, height-16)
	fmt.Fprintln(w, "</svg>")
}

// x is where a moment is drawn.
func (t *timeline) x(at time.Time) float64 {
	return svgMargin + svgLabel + svgTime*min(1, max(0, float64(at.Sub(t.from))/float64(t.whole)))
}

// row draws one job below the last one.
func (t *timeline) row(r *job.Record, name, colour string) {
	w, y := t.w, t.y
	t.y += svgRow
	if r.Wave%2 == 1 {
		fmt.Fprintf(w, `<rect class="band" x="%d" y="%d" width="%d" height="%d"/>`, svgMargin, y, t.width-2*svgMargin, svgRow)
	}
	text(w, svgMargin+6, y+17, "", name)
	begin, end := t.x(r.Created), t.x(endOf(r, t.now))
	run := end
	if !r.Accepted.IsZero() {
		run = t.x(r.Accepted)
	}
	top := y + (svgRow-svgBar)/2
	fmt.Fprintf(w, `<g><title>%s</title>`, html.EscapeString(fmt.Sprintf("%s, %s, %s", name, r.State, took(r, t.now))))
	if run-begin >= 0.5 {
		fmt.Fprintf(w, `<rect class="wait" x="%.1f" y="%d" width="%.1f" height="%d" rx="2"/>`, begin, top+4, run-begin, svgBar-8)
	}
	if !r.Accepted.IsZero() || r.State == job.Done {
		fmt.Fprintf(w, `<rect class="%s" x="%.1f" y="%d" width="%.1f" height="%d" rx="3"/>`, colour, run, top, max(2, end-run), svgBar)
	}
	fmt.Fprint(w, "</g>")
	who := whom(r) + " · " + took(r, t.now)
	if s := scores(r); s != "" && r.ID != r.Root {
		who += " · " + s
	}
	text(w, svgMargin+svgLabel+svgTime+12, y+17, "soft", chain.ClipTo(who, 42))
	fmt.Fprintln(w)
}

func text(w io.Writer, x, y int, class, s string) {
	fmt.Fprintf(w, `<text x="%d" y="%d" class="%s" xml:space="preserve">%s</text>`+"\n", x, y, class, html.EscapeString(s))
}

// colourOf gives the style of a job's bar.
func colourOf(r *job.Record) string {
	if r.Hedge == job.Winner {
		return "winner"
	}
	if r.State == job.Pending {
		return "wait"
	}
	return string(r.State)
}

// axis draws a few round times.
func axis(w io.Writer, whole time.Duration, top, bottom int) {
	step := math.Pow(10, math.Floor(math.Log10(whole.Seconds())))
	for _, part := range []float64{0.1, 0.2, 0.5, 1} {
		if whole.Seconds()/(step*part) <= 8 {
			step *= part
			break
		}
	}
	for i := 0; float64(i)*step <= whole.Seconds(); i++ {
		at := svgMargin + svgLabel + int(svgTime*float64(i)*step/whole.Seconds())
		fmt.Fprintf(w, `<line class="grid" x1="%d" y1="%d" x2="%d" y2="%d"/>`, at, top, at, bottom+4)
		text(w, at, bottom+18, "soft n", figures(float64(i)*step, 3)+" s")
	}
}

func legend(w io.Writer, y int) {
	x := svgMargin + svgLabel
	for _, l := range []struct{ class, name string }{{"wait", "waits"}, {"done", "done"}, {"winner", "won against a copy"}, {"superseded", "superseded"}, {"failed", "failed"}, {"cancelled", "cancelled"}} {
		fmt.Fprintf(w, `<rect class="%s" x="%d" y="%d" width="10" height="10" rx="2"/>`, l.class, x, y-9)
		text(w, x+15, y, "soft", l.name)
		x += 36 + 7*len(l.name)
	}
}
