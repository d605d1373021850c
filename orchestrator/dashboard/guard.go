package dashboard

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/chordwheel/chordwheel/orchestrator/authority"
)

// guard keeps the pages of other sites out: a name that was made to point here
// (DNS rebinding) fails by its Host, a request from a foreign page by its Origin.
func guard(next http.Handler, hosts, origins []string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !knownHost(r, hosts) {
			refuse(w, &authority.Refusal{Code: forbidden, As: http.StatusForbidden, Message: "this host name is not one of the hub's: use its loopback address, or list the name in CHORDWHEEL_HOSTS"})
			return
		}
		if o := r.Header.Get("Origin"); o != "" && !sameOrigin(o, r.Host) && !slices.Contains(origins, o) {
			refuse(w, &authority.Refusal{Code: forbidden, As: http.StatusForbidden, Message: "this origin may not read the hub: list it in CHORDWHEEL_ORIGINS"})
			return
		}
		if o := r.Header.Get("Origin"); slices.Contains(origins, o) {
			w.Header().Set("Access-Control-Allow-Origin", o)
			w.Header().Set("Vary", "Origin")
		}
		next.ServeHTTP(w, r)
	})
}

func knownHost(r *http.Request, hosts []string) bool {
	host := hostOnly(r.Host)
	if strings.EqualFold(host, "localhost") || slices.ContainsFunc(hosts, func(h string) bool { return strings.EqualFold(h, host) || strings.EqualFold(h, r.Host) }) {
		return true
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return false
	}
	if ip.IsLoopback() {
		return true
	}
	// A literal address cannot be rebound: it is fine if it is the one that was connected to.
	local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return false
	}
	at, err := netip.ParseAddrPort(local.String())
	return err == nil && at.Addr().Unmap() == ip.Unmap()
}

// hostOnly takes the port off a Host header, and the brackets off an address.
func hostOnly(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		return h
	}
	return strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
}

func sameOrigin(origin, host string) bool {
	_, at, ok := strings.Cut(origin, "://")
	return ok && strings.EqualFold(at, host)
}
