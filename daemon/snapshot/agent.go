package snapshot

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"net/url"
	"strings"

	"github.com/chordwheel/chordwheel/chain"
)

// Status is what the registry says of an agent.
type Status string

// Statuses.
const (
	StatusActive       Status = "active"
	StatusSuspended    Status = "suspended"
	StatusDeregistered Status = "deregistered"
)

// Agent is a registered provider of one capability.
type Agent struct {
	DID        string `json:"did"`
	Capability string `json:"capability"`
	Endpoint   string `json:"endpoint"` // "" for a device of the own mesh, which is reached as a peer
	Status     Status `json:"status"`
	ModelID    string `json:"model_id"`
}

// key names an agent: one DID may be registered for several capabilities.
type key struct{ did, capability string }

func (a Agent) key() key { return key{a.DID, a.Capability} }

// readAgent reads one record; false for one that cannot be used. own: the registry is the
// own mesh's, where agents may be devices, and providers may be in the LAN.
func readAgent(raw json.RawMessage, own bool) (Agent, bool) {
	var m map[string]json.RawMessage // by name with its case, which a struct would not mind
	if json.Unmarshal(raw, &m) != nil || m == nil {
		return Agent{}, false
	}
	var a Agent
	for name, to := range map[string]*string{"did": &a.DID, "capability": &a.Capability, "endpoint": &a.Endpoint, "status": (*string)(&a.Status), "model_id": &a.ModelID} {
		if v, there := m[name]; there && json.Unmarshal(v, to) != nil {
			return Agent{}, false
		}
	}
	return a, a.usable(own)
}

func (a Agent) usable(own bool) bool {
	switch a.Status {
	case StatusActive, StatusSuspended, StatusDeregistered:
	default:
		return false
	}
	if !chain.IsDID(a.DID) || a.Capability == "" || !plain(a.Capability, 128) || !plain(a.ModelID, 256) {
		return false
	}
	return usableEndpoint(a.Endpoint, own)
}

// plain reports whether s is short and without spaces and control characters.
func plain(s string, most int) bool {
	return len(s) <= most && strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\uFFFD' }) < 0
}

// usableEndpoint takes https addresses that are not plainly of a private network. Where
// a name leads is checked when it is dialled.
func usableEndpoint(s string, own bool) bool {
	if s == "" {
		return own
	}
	u, err := url.Parse(s)
	if err != nil || len(s) > 1024 || u.Host == "" || u.User != nil || u.Fragment != "" {
		return false
	}
	if own {
		return u.Scheme == "https" || u.Scheme == "http"
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	if ip, err := netip.ParseAddr(host); err == nil {
		ip = ip.Unmap()
		if !ip.IsGlobalUnicast() || ip.IsPrivate() {
			return false
		}
	}
	return u.Scheme == "https" && host != "localhost" && !strings.HasSuffix(host, ".localhost") && !strings.HasSuffix(host, ".local")
}

// merge makes one list of records as they came. What came twice in the same words
// counts once; of what came in different words nobody knows which is true: none of
// them is used. conflicts names those, with hashes of their endpoints.
func merge(records []Agent) (agents []Agent, conflicts []string) {
	at := map[key]int{}
	bad := map[key]bool{}
	for _, a := range records {
		i, again := at[a.key()]
		switch {
		case !again:
			at[a.key()] = len(agents)
			agents = append(agents, a)
		case agents[i] != a:
			if !bad[a.key()] {
				conflicts = append(conflicts, a.DID+" "+a.Capability+": "+shortHash(agents[i].Endpoint)+" and "+shortHash(a.Endpoint))
			}
			bad[a.key()] = true
		}
	}
	if len(bad) == 0 {
		return agents, nil
	}
	kept := agents[:0]
	for _, a := range agents {
		if !bad[a.key()] {
			kept = append(kept, a)
		}
	}
	return kept, conflicts
}

func shortHash(s string) string {
	sum := sha256.Sum256([]byte(s))
	return "sha256:" + hex.EncodeToString(sum[:6])
}
