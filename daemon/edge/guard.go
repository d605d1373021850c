package edge

import (
	"net/http"
	"time"
)

// Guard puts the checks of a loopback listener in front of another handler: the
// Host must be a name of this machine or a configured one, a web origin must
// be listed, so that no page in the owner's browser reaches it by a trick, and a body
// must be JSON, which such a page cannot send unasked. Refusals are as the edge's.
func (e *Edge) Guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refusal := e.checkHost(r)
		if refusal == nil {
			_, refusal = e.checkOrigin(r, true)
		}
		if refusal == nil && r.ContentLength != 0 {
			refusal = checkContent(r.Header)
		}
		if refusal == nil {
			h.ServeHTTP(w, r)
			return
		}
		x := &exchange{edge: e, w: w, r: r, rc: http.NewResponseController(w), id: requestID(r.Header), began: time.Now()}
		w.Header()[headerRequestID] = []string{x.id}
		x.refuse(refusal.fail())
	})
}
