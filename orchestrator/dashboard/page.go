package dashboard

import (
	"bytes"
	"crypto/rand"
	_ "embed" // the page
	"fmt"
	"html/template"
	"math"
	"net/http"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/orchestrator"
	"github.com/chordwheel/chordwheel/orchestrator/authority"
)

//go:embed page.html
var source string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"clock": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") },
	"ms":    func(t chain.Instant) string { return t.Time().Format("15:04:05.000") },
	"f":     func(x float64) string { return fmt.Sprintf("%.4g", x) },
	"amount": func(calls bool, n int64) string {
		if calls {
			return fmt.Sprint(n)
		}
		return fmt.Sprintf("$%.4f", float64(n)/1e6)
	},
	"count": func(n int, word string) string {
		if n != 1 {
			word += "s"
		}
		return fmt.Sprintf("%d %s", n, word)
	},
	"whole":   func(x float64) string { return fmt.Sprintf("%.0f", x) },
	"percent": func(share float64) string { return fmt.Sprintf("%.0f %%", share*100) },
	"zero":    func(n *uint64) bool { return *n == 0 },
	"own":     func(c chain.Capability) bool { _, own := c.Device(); return own }, // every device has its own
	"short":   func(s any) string { return shorten(fmt.Sprint(s)) },
}).Parse(source))

// shorten keeps the telling end of an identifier.
func shorten(s string) string {
	if len(s) <= 14 {
		return s
	}
	return "…" + s[len(s)-10:]
}

// view is what the page is made of.
type view struct {
	Nonce      string
	Status     orchestrator.Status
	Wheel      wheel
	Chains     []explained
	More       int // chains beyond those explained
	MoreChords int // chords beyond those listed
	Operations []orchestrator.Operation
	now        time.Time
}

// Since tells how long ago t was, in one unit.
func (v view) Since(t time.Time) string {
	switch d := max(0, v.now.Sub(t)); {
	case t.IsZero():
		return "–"
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	default:
		return fmt.Sprintf("%d days ago", int(d.Hours()/24))
	}
}

type explained struct {
	orchestrator.ChainSummary
	Why orchestrator.Explanation
}

// wheel is the hub in the middle and its devices on the rim.
type wheel struct {
	Spokes []rimmed
	Chords []line
	Labels bool
	More   int // devices for which the rim has no room
}

type rimmed struct {
	X, Y, TX, TY                   float64 // the device, its label
	Anchor                         string
	Radius                         float64
	Name, State                    string
	Peer                           chain.PeerID
	InnerX, OuterX, InnerY, OuterY float64 // the spoke's ends
}

// line is a chord between two devices on the rim.
type line struct {
	X1, Y1, X2, Y2 float64
	QX, QY         float64 // what it bends towards; the middle for most: those are straight
	What           string
}

// chord joins two devices. One that would pass behind the hub, over the spokes of
// both, goes around it: else two devices would show none.
func chord(a, b *rimmed, what string) line {
	l := line{a.X, a.Y, b.X, b.Y, (a.X + b.X) / 2, (a.Y + b.Y) / 2, what}
	if math.Hypot(l.QX-wheelX, l.QY-wheelY) < hubRadius {
		long := math.Hypot(b.X-a.X, b.Y-a.Y)
		l.QX += 4 * hubRadius * (a.Y - b.Y) / long
		l.QY += 4 * hubRadius * (b.X - a.X) / long
	}
	return l
}

// The wheel's middle, and the hub's size.
const (
	wheelX, wheelY = 300, 210
	hubRadius      = 34
)

// chordsOf draws the chords of the devices that have a place on the rim.
func chordsOf(spokes []rimmed, chords []orchestrator.ChordView) []line {
	at := map[chain.PeerID]*rimmed{}
	for i := range spokes {
		at[spokes[i].Peer] = &spokes[i]
	}
	var list []line
	for _, k := range chords {
		a, b := at[k.A], at[k.B]
		if a == nil || b == nil || len(list) == maxChords {
			continue
		}
		list = append(list, chord(a, b, fmt.Sprintf("%s – %s · %.1f ms", k.NameA, k.NameB, k.RTT)))
	}
	return list
}

// Bounds of a page.
const (
	maxRim       = 120
	maxLabels    = 40
	maxChords    = 600
	maxExplained = 12
	maxShown     = 60 // operations, chords
)

func wheelOf(devices []orchestrator.DeviceView) wheel {
	var on []orchestrator.DeviceView
	for _, d := range devices {
		if d.State != "revoked" {
			on = append(on, d)
		}
	}
	w := wheel{Labels: len(on) <= maxLabels}
	if len(on) > maxRim {
		w.More = len(on) - maxRim
		on = on[:maxRim]
	}
	radius := 11.0
	if n := float64(len(on)); n > 24 {
		radius = max(3, 11*24/n)
	}
	const cx, cy, rim = wheelX, wheelY, 150
	for i, d := range on {
		angle := 2*math.Pi*float64(i)/float64(len(on)) - math.Pi/2
		sin, cos := math.Sincos(angle)
		r := rimmed{X: cx + rim*cos, Y: cy + rim*sin, TX: cx + (rim+radius+9)*cos, TY: cy + (rim+radius+9)*sin + 4, Radius: radius,
			Name: d.Name, State: d.State, Peer: d.PeerID, Anchor: "middle",
			InnerX: cx + hubRadius*cos, InnerY: cy + hubRadius*sin, OuterX: cx + (rim-radius)*cos, OuterY: cy + (rim-radius)*sin}
		if cos > 0.3 {
			r.Anchor = "start"
		} else if cos < -0.3 {
			r.Anchor = "end"
		}
		w.Spokes = append(w.Spokes, r)
	}
	return w
}

// page renders the hub as it is now: one document, nothing else is loaded.
func (p *Pages) page(w http.ResponseWriter, r *http.Request) {
	s, err := p.hub.Status(r.Context())
	if err != nil {
		answer(w, nil, err)
		return
	}
	v := view{Nonce: rand.Text(), Status: s, Wheel: wheelOf(s.Devices), now: time.Now()}
	v.Wheel.Chords = chordsOf(v.Wheel.Spokes, s.Chords)
	if len(v.Status.Chords) > maxShown {
		v.MoreChords = len(v.Status.Chords) - maxShown
		v.Status.Chords = v.Status.Chords[:maxShown]
	}
	for i, c := range s.Chains {
		if i == maxExplained {
			v.More = len(s.Chains) - i + s.MoreChains
			break
		}
		why, err := p.hub.Explain(r.Context(), chain.Slot{Scope: c.Scope, Primitive: c.Primitive})
		if err != nil {
			continue // withdrawn since
		}
		v.Chains = append(v.Chains, explained{c, why})
	}
	list := p.hub.Operations(0, maxShown)
	for i := len(list) - 1; i >= 0; i-- { // newest first
		v.Operations = append(v.Operations, list[i])
	}
	var b bytes.Buffer
	if err := page.Execute(&b, v); err != nil {
		fail(w, authority.Overloaded, "the page cannot be made")
		return
	}
	headers(w, "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'nonce-"+v.Nonce+"'; script-src 'nonce-"+v.Nonce+"'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	_, _ = w.Write(b.Bytes())
}
