package edge

import "net/http"

// Guard puts the checks of a loopback listener in front of another handler: the
// Host must be a name of this machine or a configured one, and a web origin must
// be listed, so that no page in the owner's browser reaches it by a trick.
func (e *Edge) Guard(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		refusal := e.checkHost(r)
		if refusal == nil {
			_, refusal = e.checkOrigin(r, true)
		}
		if refusal != nil {
			http.Error(w, refusal.Message, http.StatusForbidden)
			return
		}
		h.ServeHTTP(w, r)
	})
}
