package daemon

import (
	"slices"
	"strings"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/apps"
	"github.com/chordwheel/chordwheel/daemon/edge"
	"github.com/chordwheel/chordwheel/daemon/selection"
)

// Models lists what a request of app may name: the options of the chat chain in
// order, then those of what the taxonomy knows.
func (d *Daemon) Models(app *apps.App) edge.Models {
	var models edge.Models
	primitives := []chain.Primitive{chain.LLMChat}
	if t := d.cfg.Selection.Taxonomy; t != nil {
		for _, c := range t.Capabilities() {
			if !slices.Contains(primitives, c.Primitive) {
				primitives = append(primitives, c.Primitive)
			}
		}
	}
	for _, p := range primitives {
		c := d.cfg.Chains.Get(chain.Slot{Scope: d.scopeOf(app), Primitive: p})
		if c == nil {
			continue
		}
		if p == chain.LLMChat {
			models.Issued = c.Head().Issued.Time()
		}
		models.Agents = d.modelsOf(models.Agents, c, app)
	}
	return models
}

// modelsOf appends the models of c that app may use and that are not in list yet.
func (d *Daemon) modelsOf(list []edge.Model, c *chain.Chain, app *apps.App) []edge.Model {
	for _, o := range d.effective(c.Options()) {
		id := string(o.ID)
		if o.Kind == chain.Peer || !app.Allows(id, o.Model, selection.AgentOf(&o, d.did)) || slices.ContainsFunc(list, func(m edge.Model) bool { return m.ID == id }) {
			continue
		}
		owner, _, _ := strings.Cut(id, "/")
		list = append(list, edge.Model{ID: id, Name: o.Model, OwnedBy: owner, Created: c.Head().Issued.Time()})
	}
	return list
}

// modelNames tells a caller what could have been asked for, of the chain where no
// model was found.
func (d *Daemon) modelNames(w *edge.Work, c *chain.Chain) string {
	models := d.modelsOf(nil, c, w.App)
	if w.Ask != nil {
		models = d.Models(w.App).Agents
	}
	names := []string{edge.Auto}
	for _, m := range models {
		names = append(names, m.ID)
	}
	if len(names) > maxNamed {
		names = append(names[:maxNamed], "…")
	}
	return strings.Join(names, ", ")
}

// maxNamed bounds how many models an error names.
const maxNamed = 8
