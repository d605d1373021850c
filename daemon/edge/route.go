package edge

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
)

// Names of routes, as the log has them: the paths of openapi.yaml.
const (
	routeModels = "/v1/models"
	routeModel  = "/v1/models/{id}"
	routeChat   = "/v1/chat/completions"
	routeWork   = "/api/v1/work/{primitive}"
	routeInlet  = "/v1/inlet"
	routeOutlet = "/v1/outlet"
	routeHealth = "/healthz"

	routeProviders = "/api/v1/providers"
	routeEvents    = "/api/v1/providers/{id}/events"
	routeClaim     = "/api/v1/providers/{id}/jobs"
	routeHeartbeat = "/api/v1/jobs/{id}/heartbeat"
	routeResult    = "/api/v1/jobs/{id}/result"

	routeReady = "/readyz"
)

// route is one path of openapi.yaml.
type route struct {
	name     string
	method   string
	allow    string
	open     bool // answered without a key
	provider bool // for the key of a provider, and no other
	serve    func(x *exchange, arg string) *Refusal
}

// routes are all of them. A test holds them against openapi.yaml.
var routes = map[string]*route{
	routeModels:    {name: routeModels, method: http.MethodGet, allow: "GET, HEAD", serve: (*exchange).listModels},
	routeModel:     {name: routeModel, method: http.MethodGet, allow: "GET, HEAD", serve: (*exchange).getModel},
	routeChat:      {name: routeChat, method: http.MethodPost, allow: "POST", serve: (*exchange).createChatCompletion},
	routeWork:      {name: routeWork, method: http.MethodPost, allow: "POST", serve: (*exchange).doWork},
	routeInlet:     {name: routeInlet, method: http.MethodPost, allow: "POST", serve: (*exchange).postInlet},
	routeOutlet:    {name: routeOutlet, method: http.MethodPost, allow: "POST", serve: (*exchange).postOutlet},
	routeProviders: {name: routeProviders, method: http.MethodPost, allow: "POST", open: true, serve: (*exchange).postProvider},
	routeEvents:    {name: routeEvents, method: http.MethodGet, allow: "GET", provider: true, serve: (*exchange).watchJobs},
	routeClaim:     {name: routeClaim, method: http.MethodGet, allow: "GET", provider: true, serve: (*exchange).claimJobs},
	routeHeartbeat: {name: routeHeartbeat, method: http.MethodPost, allow: "POST", provider: true, serve: (*exchange).postHeartbeat},
	routeResult:    {name: routeResult, method: http.MethodPost, allow: "POST", provider: true, serve: (*exchange).postResult},
	routeHealth:    {name: routeHealth, method: http.MethodGet, allow: "GET, HEAD", open: true, serve: (*exchange).getHealth},
	routeReady:     {name: routeReady, method: http.MethodGet, allow: "GET, HEAD", open: true, serve: (*exchange).getReadiness},
}

// find matches the path as it came, before any decoding or cleaning: a path is
// one of ours to the byte, or it is nothing. Nothing is ever redirected.
func find(r *http.Request) (to *route, arg string) {
	path := r.URL.Path
	if r.URL.RawPath != "" || path != routeChat { // that path has nothing to escape
		path = r.URL.EscapedPath()
	}
	if rest, ok := strings.CutPrefix(path, "/v1/models/"); ok {
		if id, err := url.PathUnescape(rest); err == nil && isCleanID(id) {
			return routes[routeModel], id
		}
		return nil, ""
	}
	if rest, ok := strings.CutPrefix(path, "/api/v1/work/"); ok {
		if _, err := chain.ParsePrimitive(rest); err == nil {
			return routes[routeWork], rest
		}
		return nil, ""
	}
	for _, name := range []string{routeEvents, routeClaim, routeHeartbeat, routeResult} {
		before, after, _ := strings.Cut(name, "{id}")
		if rest, ok := strings.CutPrefix(path, before); ok {
			if id, ok := strings.CutSuffix(rest, after); ok && fitsRequestID(id) {
				return routes[name], id
			}
		}
	}
	if strings.ContainsAny(path, "{}") {
		return nil, "" // the names of routes that have an argument
	}
	return routes[path], ""
}

// isCleanID refuses ids that are a walk through directories.
func isCleanID(id string) bool {
	for seg := range strings.SplitSeq(id, "/") {
		if seg == "" || seg == "." || seg == ".." {
			return false
		}
	}
	return true
}

// createChatCompletion serves POST /v1/chat/completions.
func (x *exchange) createChatCompletion(string) *Refusal {
	w := x.wishes
	w.Primitive = chain.LLMChat
	read := func(w *Work) *Refusal {
		c, err := readChat(w.Body, x.edge.limits)
		if err != nil {
			return asRefusal(err)
		}
		w.Model, w.Stream, w.Usage, w.Ask = c.model, c.stream, c.stream && c.usage, c.asked()
		x.carry(w, c.carries)
		return nil
	}
	return x.do(w, read, func(w *Work) walk.Deliver {
		if w.Stream {
			x.stream = x.newEvents()
			w.Comment = x.stream.comment
			return x.stream.deliver
		}
		return x.deliverWhole
	})
}

// doWork serves POST /api/v1/work/{primitive}.
func (x *exchange) doWork(primitive string) *Refusal {
	w := x.wishes
	w.Primitive = chain.Primitive(primitive)
	read := func(w *Work) *Refusal {
		model, payload, err := readWork(w.Body, w.Primitive, x.edge.limits)
		if err != nil {
			return asRefusal(err)
		}
		w.Model, w.Body, w.Received = model, payload, w.Body
		return nil
	}
	return x.do(w, read, func(*Work) walk.Deliver { return x.deliverOutput })
}

// asRefusal gives an error of the scanner as what it is.
func asRefusal(err error) *Refusal {
	if r, ok := err.(*Refusal); ok { //nolint:errorlint // the scanner wraps nothing
		return r
	}
	return Refuse(InternalError, "an error of the edge itself")
}

// deliverWhole is the walk.Deliver of a plain chat: the answer goes out as it
// came, in one write.
func (x *exchange) deliverWhole(a walk.Attempt, data [][]byte) error {
	if len(data) == 1 {
		return x.answer(a, data[0])
	}
	return x.answer(a, bytes.Join(data, nil))
}

// deliverOutput is the walk.Deliver of POST /api/v1/work.
func (x *exchange) deliverOutput(a walk.Attempt, data [][]byte) error {
	output := bytes.Join(data, nil)
	var body bytes.Buffer
	enc := json.NewEncoder(&body)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(WorkResponse{Output: output, Option: string(a.Option.ID), Attempts: a.Number, RequestID: x.id}); err != nil {
		x.option = string(a.Option.ID)
		x.spoilt = Refuse(UpstreamError, "the answer of %s is not JSON", a.Option.ID)
		return x.spoilt
	}
	return x.answer(a, body.Bytes())
}

// answer writes a whole answer and names what gave it.
func (x *exchange) answer(a walk.Attempt, body []byte) error {
	if x.wrote {
		return errEnded
	}
	x.nameRunner(a)
	h := x.w.Header()
	h["Content-Type"] = jsonType
	h["Content-Length"] = []string{strconv.Itoa(len(body))}
	x.status, x.wrote = http.StatusOK, true
	x.w.WriteHeader(http.StatusOK)
	return x.write(body)
}

// listModels serves GET /v1/models.
func (x *exchange) listModels(string) *Refusal {
	m := x.edge.worker.Models(x.app)
	list := ModelList{Object: "list", Data: []ModelObject{autoModel(m)}}
	if x.edge.agents {
		for _, a := range m.Agents {
			list.Data = append(list.Data, a.object())
		}
	}
	return x.reply(http.StatusOK, list)
}

// getModel serves GET /v1/models/{id}.
func (x *exchange) getModel(id string) *Refusal {
	m := x.edge.worker.Models(x.app)
	if id == Auto {
		return x.reply(http.StatusOK, autoModel(m))
	}
	for _, is := range []func(Model) bool{func(m Model) bool { return m.ID == id }, func(m Model) bool { return m.Name == id }} {
		if i := slices.IndexFunc(m.Agents, is); i >= 0 {
			found := m.Agents[i]
			found.ID = id // the name that was asked for, as in answers
			return x.reply(http.StatusOK, found.object())
		}
	}
	return Refuse(ModelNotFound, "there is no model %q: GET /v1/models lists what there is", chain.ClipTo(id, 128))
}

func autoModel(m Models) ModelObject {
	return Model{ID: Auto, Name: "Auto", OwnedBy: "chordwheel", Created: m.Issued}.object()
}

func (m Model) object() ModelObject {
	o := ModelObject{ID: m.ID, Name: m.Name, Object: "model", OwnedBy: m.OwnedBy}
	if !m.Created.IsZero() {
		o.Created = m.Created.Unix()
	}
	return o
}

// getHealth serves GET /healthz.
func (x *exchange) getHealth(string) *Refusal { return x.reply(http.StatusOK, Health{Status: "ok"}) }

// getReadiness serves GET /readyz.
func (x *exchange) getReadiness(string) *Refusal {
	if x.edge.places.closing() {
		return Refuse(Overloaded, "the device is shutting down")
	}
	ready := Health{Status: "ready"}
	err := x.edge.worker.Ready()
	if desk := x.edge.desk; err == nil && desk != nil && desk.Snapshot != nil {
		err = desk.Snapshot.Fresh(x.began)
		ready.Truncated = desk.Snapshot.Truncated(x.began)
	}
	if err != nil {
		f := failureOf(err)
		if f.status < http.StatusInternalServerError {
			f.status = http.StatusServiceUnavailable
		}
		x.refuse(f)
		return nil
	}
	return x.reply(http.StatusOK, ready)
}

// reply writes v as a whole answer.
func (x *exchange) reply(status int, v any) *Refusal {
	b, err := json.Marshal(v)
	if err != nil {
		return Refuse(InternalError, "an error of the edge itself")
	}
	x.json(status, b)
	return nil
}
