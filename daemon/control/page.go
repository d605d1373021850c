package control

import (
	"embed"
	"fmt"
	"html/template"
	"net/http"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/delta"
	"github.com/chordwheel/chordwheel/daemon/job"
)

//go:embed page.html
var pages embed.FS

var pageTemplate = template.Must(template.New("page.html").Funcs(template.FuncMap{
	"clock": func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05Z") },
	"score": func(x *float64) string { return fmt.Sprintf("%.2f", *x) },
	"f": func(x float64) string {
		if x >= 999.5 { // %g would turn to 1e+03
			return fmt.Sprintf("%.0f", x)
		}
		return fmt.Sprintf("%.3g", x)
	},
	"ms":      func(x float64) string { return fmt.Sprintf("%.0f", x) },
	"percent": func(share float64) string { return fmt.Sprintf("%.3g", share*100) },
	"state": func(s string) string {
		if words := stateWords[s]; words != "" {
			return words
		}
		return s
	},
	"short": func(p chain.PeerID) string {
		if len(p) > 14 {
			return "…" + string(p[len(p)-10:])
		}
		return string(p)
	},
}).ParseFS(pages, "page.html"))

// stateWords are the states of a peer for people.
var stateWords = map[string]string{"live": "in contact", "silent": "silent", "parted": "out of contact", "heard_of": "only heard of"}

// Bounds of the page: what is beyond them the commands tell.
const (
	maxPagePeers  = 64
	maxPageChains = 16
	maxPageJobs   = 8
)

// view is what the page is made of.
type view struct {
	Status     Status
	Peers      []Peer
	MorePeers  int
	Chains     []pageChain
	MoreChains int
	Jobs       []job.Record
	now        time.Time
}

// pageChain is a held chain with the device's own order beside the hub's.
type pageChain struct {
	Summary ChainSummary
	Own     []delta.Row
}

// Since tells how long ago t was, in one unit.
func (v view) Since(t time.Time) string {
	switch d := max(0, v.now.Sub(t)); {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	default:
		return fmt.Sprintf("%d days", int(d.Hours()/24))
	}
}

func viewOf(d Device, now time.Time) view {
	v := view{Status: d.Status(), Peers: d.Peers(), Jobs: d.Jobs().Roots(maxPageJobs), now: now}
	if n := len(v.Peers); n > maxPagePeers {
		v.Peers, v.MorePeers = v.Peers[:maxPagePeers], n-maxPagePeers
	}
	summaries := v.Status.Chains
	if n := len(summaries); n > maxPageChains {
		summaries, v.MoreChains = summaries[:maxPageChains], n-maxPageChains
	}
	for _, s := range summaries {
		c := pageChain{Summary: s}
		if held, err := d.Chain(chain.Slot{Scope: s.Scope, Primitive: s.Primitive}); err == nil {
			c.Own = held.Own
		}
		v.Chains = append(v.Chains, c)
	}
	return v
}

// page writes the device's own page: one document without a script, a font or
// an image from anywhere.
func page(w http.ResponseWriter, d Device) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	_ = pageTemplate.Execute(w, viewOf(d, time.Now())) // a failed write means that the reader left
}
