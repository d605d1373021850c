// Package authority is how a device reaches the services that it was told to trust:
// registry, trust server, ledger. It owns the connection: TLS 1.3 with a pinned
// certificate or a known authority, no redirects, no proxies, no compression, and
// bounds on time and size. It must not know what is asked.
package authority

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Errors of this package.
var (
	ErrURL     = errors.New("want https://HOST[:PORT], or http:// of this machine or its LAN")
	ErrPin     = errors.New("the server's certificate is not the pinned one")
	ErrAddress = errors.New("plain http to an address that is neither of this machine nor of its LAN")
	ErrLarge   = errors.New("the answer is too large")
)

// Options of [New]. The zero value trusts the system's authorities.
type Options struct {
	// Pin is the SHA-256 of the server's certificate (DER) in hex. With it, nothing
	// else of the certificate counts.
	Pin string
	// Roots are the authorities that may vouch for the server; nil: the system's.
	Roots *x509.CertPool
	// ConnectTimeout bounds dialling and the handshake; 0: 5 s.
	ConnectTimeout time.Duration
	// Transport replaces the connection altogether, in tests.
	Transport http.RoundTripper
}

// Client asks one server. Its methods may be called at once from several
// goroutines.
type Client struct {
	base string
	http *http.Client
}

// Answer is a whole answer.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// New makes a client for a server at base, which may have a path. Errors wrap
// [ErrURL].
func New(base string, o Options) (*Client, error) {
	u, err := url.Parse(base)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http":
		return nil, fmt.Errorf("%w, not %q", ErrURL, chain.Clip(base))
	case u.Scheme == "http" && !near(u.Hostname()):
		return nil, fmt.Errorf("%w: write https://%s", ErrURL, chain.Clip(u.Host))
	}
	if o.ConnectTimeout <= 0 {
		o.ConnectTimeout = 5 * time.Second
	}
	transport := o.Transport
	if transport == nil {
		config, err := tlsConfig(o)
		if err != nil {
			return nil, err
		}
		transport = overTCP(u.Scheme == "http", config, o.ConnectTimeout)
	}
	return &Client{strings.TrimSuffix(u.String(), "/"), &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func overTCP(plain bool, config *tls.Config, timeout time.Duration) *http.Transport {
	d := &net.Dialer{Timeout: timeout}
	if plain { // on the address that is about to be dialled, whatever its name
		d.Control = func(_, address string, _ syscall.RawConn) error {
			if at, err := netip.ParseAddrPort(address); err != nil || !nearAddr(at.Addr()) {
				return fmt.Errorf("%w: %s", ErrAddress, chain.Clip(address))
			}
			return nil
		}
	}
	return &http.Transport{
		DialContext: d.DialContext, TLSClientConfig: config, TLSHandshakeTimeout: timeout, ForceAttemptHTTP2: true, DisableCompression: true,
		MaxResponseHeaderBytes: 16 << 10, MaxIdleConns: 4, MaxIdleConnsPerHost: 2, MaxConnsPerHost: 8, IdleConnTimeout: 90 * time.Second,
	}
}

func tlsConfig(o Options) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS13, RootCAs: o.Roots}
	if o.Pin == "" {
		return config, nil
	}
	pin, err := hex.DecodeString(o.Pin)
	if err != nil || len(pin) != sha256.Size {
		return nil, fmt.Errorf("the pinned certificate: want 64 hex digits of a SHA-256, not %q", chain.Clip(o.Pin))
	}
	config.InsecureSkipVerify = true // VerifyConnection decides, for resumed sessions too
	config.VerifyConnection = func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return ErrPin
		}
		if sum := sha256.Sum256(s.PeerCertificates[0].Raw); subtle.ConstantTimeCompare(sum[:], pin) != 1 {
			return ErrPin
		}
		return nil
	}
	return config, nil
}

// near reports whether a host's name may be of this machine or its LAN; the address
// that it leads to is checked again when it is dialled.
func near(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return nearAddr(ip)
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || strings.HasSuffix(host, ".local") || !strings.Contains(host, ".")
}

func nearAddr(ip netip.Addr) bool {
	ip = ip.Unmap()
	return ip.IsLoopback() || ip.IsPrivate() || ip.IsLinkLocalUnicast()
}

// Origin is scheme, host and port of the server.
func (c *Client) Origin() string {
	scheme, rest, _ := strings.Cut(c.base, "://")
	host, _, _ := strings.Cut(rest, "/")
	return scheme + "://" + host
}

// Do asks for a path below the base, and reads at most limit bytes of the answer;
// more is [ErrLarge]. A redirect is an answer like any other. ctx bounds the time,
// also that of the body.
func (c *Client) Do(ctx context.Context, method, path string, header http.Header, body []byte, limit int64) (Answer, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return Answer{}, fmt.Errorf("ask %s: %w", chain.Clip(c.base), err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return Answer{}, fmt.Errorf("ask: %w", err)
	}
	defer resp.Body.Close()
	if e := resp.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return Answer{}, fmt.Errorf("ask %s: a body in %q, which nobody asked for", chain.Clip(c.base), chain.Clip(e))
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return Answer{}, fmt.Errorf("ask %s: %w", chain.Clip(c.base), err)
	}
	if int64(len(b)) > limit {
		return Answer{}, fmt.Errorf("ask %s: %w: more than %d bytes", chain.Clip(c.base), ErrLarge, limit)
	}
	return Answer{resp.StatusCode, resp.Header, b}, nil
}

// Close lets idle connections go.
func (c *Client) Close() { c.http.CloseIdleConnections() }
