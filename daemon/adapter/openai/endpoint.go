package openai

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strings"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/lan"
)

// Refusals of an endpoint.
var (
	// ErrEndpoint means that an endpoint is not a usable http or https URL.
	ErrEndpoint = errors.New("endpoint: want http://host:port/v1 or https://host/v1, without user or fragment")
	// ErrPlainHTTP means that plain http would leave the local network.
	ErrPlainHTTP = errors.New("plain http is for loopback and LAN addresses only: use https")
)

const (
	completionsPath = "/chat/completions"
	modelsPath      = "/models"
)

// join gives the URL of one of the API's paths below an endpoint. An endpoint
// without any path gets /v1; one that already ends with the path of chat
// completions is cut back to its base; a query stays (some providers keep their
// API version there).
func join(endpoint, path string) (*url.URL, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.Fragment != "" {
		return nil, fmt.Errorf("%q: %w", chain.Clip(endpoint), ErrEndpoint)
	}
	if u.Path == "" {
		u.Path = "/v1"
	}
	base := strings.TrimRight(strings.TrimSuffix(strings.TrimRight(u.EscapedPath(), "/"), completionsPath), "/")
	if u.Path, err = url.PathUnescape(base + path); err != nil {
		return nil, fmt.Errorf("%q: %w", chain.Clip(endpoint), ErrEndpoint)
	}
	u.RawPath = base + path
	return u, nil
}

// local reports whether addr (host:port, the host an IP address) is on this
// machine or in its LAN.
func local(addr string) bool {
	ap, err := netip.ParseAddrPort(addr)
	return err == nil && lan.Near(ap.Addr())
}
