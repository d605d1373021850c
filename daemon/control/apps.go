package control

import (
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/apps"
)

// Applications is the part of a [Device] that knows its applications.
type Applications interface {
	AddApp(rule apps.Rule) (chain.Secret, error) // an Asked where the rule is at fault
	RemoveApp(name string) error                 // Asked if there is none
	Apps() []apps.View                           // sorted by name
	Usage(since time.Time) []apps.Row            // the newest day first
}

// App is one application, as the socket shows it. Money is in micro-dollars.
type App struct {
	Name    string        `json:"name"`
	Scope   chain.ScopeID `json:"scope,omitempty"`
	Models  []string      `json:"models,omitempty"`
	Rate    int           `json:"rate,omitempty"`   // requests a minute
	Budget  int64         `json:"budget,omitempty"` // a month
	Spent   int64         `json:"spent"`            // of it, this month
	Created time.Time     `json:"created,omitzero"`
	Key     string        `json:"key,omitempty"` // only in the answer that made it
}

// maxUsageDays bounds how far back usage is asked for.
const maxUsageDays = 400

func serveApps(mux *http.ServeMux, d Device) {
	mux.HandleFunc("GET /api/v1/apps", func(w http.ResponseWriter, _ *http.Request) {
		list := []App{}
		for _, v := range d.Apps() {
			list = append(list, App{Name: v.Name, Scope: v.Scope, Models: v.Models, Rate: v.Rate, Budget: v.Budget, Spent: v.Spent, Created: v.Created.Time().UTC()})
		}
		answer(w, map[string][]App{"apps": list})
	})
	mux.HandleFunc("POST /api/v1/apps", func(w http.ResponseWriter, r *http.Request) {
		var a App
		decode := json.NewDecoder(io.LimitReader(r.Body, maxRequest))
		decode.DisallowUnknownFields()
		if err := decode.Decode(&a); err != nil {
			fail(w, http.StatusBadRequest, "the body is not the JSON of an application")
			return
		}
		key, err := d.AddApp(apps.Rule{Name: a.Name, Scope: a.Scope, Models: a.Models, Rate: a.Rate, Budget: a.Budget})
		if err != nil {
			fail(w, statusOf(err), err.Error())
			return
		}
		a.Key = key.Reveal() // the one time that it is told
		answer(w, a)
	})
	mux.HandleFunc("DELETE /api/v1/apps/{name}", func(w http.ResponseWriter, r *http.Request) {
		if err := d.RemoveApp(r.PathValue("name")); err != nil {
			fail(w, statusOf(err), err.Error())
			return
		}
		answer(w, map[string]string{"removed": r.PathValue("name")})
	})
	mux.HandleFunc("GET /api/v1/usage", func(w http.ResponseWriter, r *http.Request) {
		days, err := strconv.Atoi(r.URL.Query().Get("days"))
		if err != nil || days < 1 || days > maxUsageDays {
			fail(w, http.StatusBadRequest, "days: want 1 to 400")
			return
		}
		answer(w, map[string][]apps.Row{"usage": d.Usage(time.Now().AddDate(0, 0, 1-days))})
	})
}
