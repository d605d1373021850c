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
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/lan"
)

// Errors of this package.
var (
	ErrURL     = errors.New("want https://HOST[:PORT]")
	ErrPin     = errors.New("the server's certificate is not the pinned one")
	ErrAddress = errors.New("plain http to an address to which it may not go")
	ErrLarge   = errors.New("the answer is too large")
	ErrUnknown = errors.New("it is not known yet where the server is") // for what is given to [Follow]
)

// Options say how a server is known. The zero value trusts the system's authorities.
type Options struct {
	// Pin is the SHA-256 of the server's certificate (DER) in hex. With it, nothing
	// else of the certificate counts.
	Pin string
	// Roots are the authorities that may vouch for the server; nil: the system's.
	Roots *x509.CertPool
	// LAN lets plain http go to the LAN, and not to this machine alone. What is said there
	// can be read and changed by others in it: it must be neither secret nor simply believed.
	LAN bool
	// ConnectTimeout bounds dialling and the handshake; 0: 5 s.
	ConnectTimeout time.Duration
	// Transport replaces the connection altogether, in tests.
	Transport http.RoundTripper
}

// Target is a server: where it is, and how it is known.
type Target struct {
	URL string // which may have a path
	Options
}

// Check reports what is wrong with the URL of a server. Errors wrap [ErrURL].
func Check(base string, o Options) error {
	_, err := parse(base, o.LAN)
	return err
}

func parse(base string, inLAN bool) (*url.URL, error) {
	u, err := url.Parse(base)
	switch {
	case strings.ContainsAny(base, "@?#"): // not repeated: it may be a secret
		return nil, fmt.Errorf("%w: without user, query and fragment", ErrURL)
	case err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http":
		return nil, fmt.Errorf("%w, not %q", ErrURL, chain.Clip(base))
	case !isPort(u.Port()):
		return nil, fmt.Errorf("%w: a port from 1 to 65535, not %s", ErrURL, chain.Clip(u.Port()))
	case u.Scheme == "http" && !near(u.Hostname(), inLAN):
		return nil, fmt.Errorf("%w: plain http is for %s: write https://%s", ErrURL, reach(inLAN), chain.Clip(u.Host))
	}
	return u, nil
}

// reach says where plain http may go.
func reach(inLAN bool) string {
	if inLAN {
		return "this machine and its LAN alone"
	}
	return "this machine alone"
}

// isPort also accepts none.
func isPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return port == "" || err == nil && n > 0
}

// Client asks one server. Its methods may be called at once from several
// goroutines.
type Client struct {
	target func() (Target, error)

	mu  sync.Mutex
	now *connection // to the target of the last call; nil before the first
}

// connection is the way to one target.
type connection struct {
	to   Target
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
	c := Follow(func() (Target, error) { return Target{base, o}, nil })
	_, err := c.connection()
	return c, err
}

// Follow makes a client for the server that target names at each call: that may not
// be known yet, and may move.
func Follow(target func() (Target, error)) *Client { return &Client{target: target} }

// connection gives the way to where the server is now.
func (c *Client) connection() (*connection, error) {
	t, err := c.target()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now != nil && c.now.to.URL == t.URL && c.now.to.Pin == t.Pin && c.now.to.Roots == t.Roots && c.now.to.LAN == t.LAN {
		return c.now, nil
	}
	n, err := connect(t)
	if err != nil {
		return nil, err
	}
	if c.now != nil {
		c.now.http.CloseIdleConnections()
	}
	c.now = n
	return n, nil
}

func connect(t Target) (*connection, error) {
	u, err := parse(t.URL, t.LAN)
	if err != nil {
		return nil, err
	}
	timeout := t.ConnectTimeout
	if timeout <= 0 {
		timeout = 5 * time.Second
	}
	transport := t.Transport
	if transport == nil {
		config, err := tlsConfig(t.Options)
		if err != nil {
			return nil, err
		}
		transport = overTCP(u.Scheme == "http", t.LAN, config, timeout)
	}
	return &connection{t, strings.TrimSuffix(u.String(), "/"), &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

func overTCP(plain, inLAN bool, config *tls.Config, timeout time.Duration) *http.Transport {
	d := &net.Dialer{Timeout: timeout}
	if plain { // on the address that is about to be dialled, whatever its name
		d.Control = func(_, address string, _ syscall.RawConn) error {
			if at, err := netip.ParseAddrPort(address); err != nil || !nearAddr(at.Addr(), inLAN) {
				return fmt.Errorf("%w: %s is not of %s", ErrAddress, chain.Clip(address), reach(inLAN))
			}
			return nil
		}
	}
	return &http.Transport{
		DialContext: d.DialContext, TLSClientConfig: config, TLSHandshakeTimeout: timeout, DisableCompression: true,
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

// near reports whether a host's name may be of this machine, or with inLAN of its LAN; the
// address that it leads to is checked again when it is dialled.
func near(host string, inLAN bool) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return nearAddr(ip, inLAN)
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || inLAN && (strings.HasSuffix(host, ".local") || !strings.Contains(host, "."))
}

func nearAddr(ip netip.Addr, inLAN bool) bool {
	return ip.Unmap().IsLoopback() || inLAN && lan.Near(ip)
}

// Origin is scheme, host and port of the server; "" while it is not known.
func (c *Client) Origin() string {
	n, err := c.connection()
	if err != nil {
		return ""
	}
	scheme, rest, _ := strings.Cut(n.base, "://")
	host, _, _ := strings.Cut(rest, "/")
	return scheme + "://" + host
}

// Do asks for a path below the base, and reads at most limit bytes of the answer;
// more is [ErrLarge]. A redirect is an answer like any other. ctx bounds the time,
// also that of the body. What was wrong with the body alone is an error beside the
// answer's status and header.
func (c *Client) Do(ctx context.Context, method, path string, header http.Header, body []byte, limit int64) (Answer, error) {
	n, err := c.connection()
	if err != nil {
		return Answer{}, err
	}
	req, err := http.NewRequestWithContext(ctx, method, n.base+path, bytes.NewReader(body))
	if err != nil {
		return Answer{}, fmt.Errorf("ask %s: %w", chain.Clip(n.base), err)
	}
	for name, values := range header {
		req.Header[name] = values
	}
	req.Header.Set("Accept", "application/json")
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := n.http.Do(req)
	if err != nil {
		return Answer{}, fmt.Errorf("ask: %w", err)
	}
	defer resp.Body.Close()
	answer := Answer{Status: resp.StatusCode, Header: resp.Header}
	if e := resp.Header.Get("Content-Encoding"); e != "" && e != "identity" {
		return answer, fmt.Errorf("ask %s: a body in %q, which nobody asked for", chain.Clip(n.base), chain.Clip(e))
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return answer, fmt.Errorf("ask %s: %w", chain.Clip(n.base), err)
	}
	if int64(len(b)) > limit {
		return answer, fmt.Errorf("ask %s: %w: more than %d bytes", chain.Clip(n.base), ErrLarge, limit)
	}
	answer.Body = b
	return answer, nil
}

// Close lets idle connections go.
func (c *Client) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now != nil {
		c.now.http.CloseIdleConnections()
	}
}
