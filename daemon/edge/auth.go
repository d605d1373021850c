package edge

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/apps"
)

// keys are the digests of the bearer keys that are accepted.
type keys struct {
	set       bool
	key, next [sha256.Size]byte
}

func newKeys(key, next chain.Secret) keys {
	if next == "" {
		next = key
	}
	return keys{key != "", sha256.Sum256([]byte(key.Reveal())), sha256.Sum256([]byte(next.Reveal()))}
}

// check decides on a request's credentials, and finds the application that they are
// of; nil for the device's own key. It looks at all values of Authorization, for
// another reader may take another than the first, and compares digests, so that
// neither the length of a key nor where it differs shows in time.
func (k *keys) check(h http.Header, book *apps.Book) (*apps.App, *Refusal) {
	values := h["Authorization"]
	if !k.set && (book == nil || len(values) != 1) {
		return nil, nil
	}
	switch {
	case len(values) == 0:
		return nil, Refuse(Unauthorized, "the Authorization header is missing: send \"Bearer \" and the edge's key")
	case len(values) > 1:
		return nil, Refuse(Unauthorized, "there is more than one Authorization header: send one")
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	if k.set && (!ok || !strings.EqualFold(scheme, "Bearer") || token == "") {
		return nil, Refuse(Unauthorized, "the Authorization header is not \"Bearer \" and a key")
	}
	got := sha256.Sum256([]byte(token))
	if k.set && subtle.ConstantTimeCompare(got[:], k.key[:])|subtle.ConstantTimeCompare(got[:], k.next[:]) == 1 {
		return nil, nil
	}
	if book != nil {
		if app := book.Find(got); app != nil {
			return app, nil
		}
	}
	if !k.set { // whatever it is, no key is asked for
		return nil, nil
	}
	return nil, Refuse(Unauthorized, "the key is wrong: `chordwheel key` prints the right one, unless ORCH_API_KEY sets it")
}

// checkHost refuses names under which a page in the owner's browser reaches a
// loopback listener by a DNS answer of its own choice.
func (e *Edge) checkHost(r *http.Request) *Refusal {
	if name, _, _ := strings.Cut(r.Host, ":"); name == "127.0.0.1" || name == "localhost" { // the usual case
		return nil
	}
	name := hostname(r.Host)
	if isLoopbackName(name) || e.hosts[name] {
		return nil
	}
	return invalid("Host: %q is not a name of this listener: use 127.0.0.1, or list it in CHORDWHEEL_HOSTS", chain.Clip(r.Host))
}

// checkOrigin finds the web origin of a request. A listed one gets CORS headers;
// on a loopback listener any other that is not the listener itself is refused.
func (e *Edge) checkOrigin(r *http.Request, loopback bool) (listed string, refusal *Refusal) {
	values := r.Header["Origin"]
	if len(values) == 0 {
		return "", nil
	}
	origin := strings.ToLower(values[0])
	if len(values) == 1 && e.origins[origin] {
		return values[0], nil
	}
	host := strings.ToLower(r.Host)
	if !loopback || len(values) == 1 && (origin == "http://"+host || origin == "https://"+host) {
		return "", nil
	}
	return "", invalid("Origin: %q may not call this listener: list it in CHORDWHEEL_ORIGINS", chain.Clip(values[0]))
}

// hostname gives the name of a Host header: lower case, without port, brackets
// and the root's dot.
func hostname(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

func isLoopbackName(name string) bool {
	if name == "localhost" {
		return true
	}
	a, err := netip.ParseAddr(name)
	return err == nil && !a.Is4In6() && a.IsLoopback()
}

// isLoopback reports whether only this machine can reach a listener at a.
func isLoopback(a net.Addr) bool {
	t, ok := a.(*net.TCPAddr)
	return !ok || t.IP.IsLoopback()
}
