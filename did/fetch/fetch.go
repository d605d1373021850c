// Package fetch gets files from https addresses that strangers name, for package
// did. It owns the guard against addresses of the own network, redirects, sizes and
// times. It must not know what it fetches.
package fetch

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/did"
)

// ErrAddress: the name leads to an address that is not fetched from.
var ErrAddress = errors.New("an address of this machine, its network, or nobody")

// Options of [New]; the zero value is the one for use.
type Options struct {
	// Timeout bounds one fetch, from the name's look-up to the last byte; 0: 30 s.
	Timeout time.Duration
	// Roots replaces the system's certificate authorities.
	Roots *x509.CertPool
	// Allow lists networks that may be fetched from although they are not public.
	Allow []netip.Prefix

	dial func(context.Context, *net.Dialer, string) (net.Conn, error) // tests: where a name leads
}

// Client fetches. Its methods may be called at once from several goroutines.
type Client struct {
	http *http.Client
}

var _ did.Fetcher = (*Client)(nil)

// New gives a client. Settings for proxies are ignored: a proxy would hide the address
// that is dialled.
func New(o Options) *Client {
	if o.Timeout <= 0 {
		o.Timeout = 30 * time.Second
	}
	d := &net.Dialer{
		Timeout: o.Timeout,
		// On the address that is about to be dialled, whatever a name gave before.
		Control: func(_, address string, _ syscall.RawConn) error { return check(address, o.Allow) },
	}
	return &Client{&http.Client{
		Timeout: o.Timeout,
		Transport: &http.Transport{
			DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
				if o.dial != nil {
					return o.dial(ctx, d, address)
				}
				return d.DialContext(ctx, "tcp", address)
			},
			TLSClientConfig:        &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: o.Roots},
			DisableKeepAlives:      true, // rarely the same host twice
			DisableCompression:     true, // what is counted is what was sent
			MaxResponseHeaderBytes: 16 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Fetch gets at most limit bytes from an https address. Errors wrap
// [did.ErrNotFound] for 404 and 410, and [ErrAddress].
func (c *Client) Fetch(ctx context.Context, url string, limit int64) ([]byte, error) {
	if !strings.HasPrefix(url, "https://") {
		return nil, fmt.Errorf("fetch %s: want https", chain.Clip(url))
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, fmt.Errorf("fetch: %w", err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("fetch: %w", err)
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
	case http.StatusNotFound, http.StatusGone:
		return nil, fmt.Errorf("fetch %s: %w", chain.Clip(url), did.ErrNotFound)
	default:
		return nil, fmt.Errorf("fetch %s: status %d", chain.Clip(url), resp.StatusCode)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, limit+1))
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", chain.Clip(url), err)
	}
	if int64(len(b)) > limit {
		return nil, fmt.Errorf("fetch %s: more than %d bytes", chain.Clip(url), limit)
	}
	return b, nil
}

// nowhere are networks that lead to nobody public and that the standard library has no word for.
var nowhere = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"),
	netip.MustParsePrefix("100.64.0.0/10"), // carrier NAT
	netip.MustParsePrefix("192.0.0.0/24"),
	netip.MustParsePrefix("192.0.2.0/24"),
	netip.MustParsePrefix("192.88.99.0/24"),
	netip.MustParsePrefix("198.18.0.0/15"),
	netip.MustParsePrefix("198.51.100.0/24"),
	netip.MustParsePrefix("203.0.113.0/24"),
	netip.MustParsePrefix("240.0.0.0/4"),
	netip.MustParsePrefix("2001::/23"), // Teredo among them
	netip.MustParsePrefix("2001:db8::/32"),
	netip.MustParsePrefix("2002::/16"), // 6to4
	netip.MustParsePrefix("3fff::/20"),
}

// everybody is what public IPv6 addresses are from. Outside of it are, beside what nobody
// has, many ways to write or to translate an IPv4 address.
var everybody = netip.MustParsePrefix("2000::/3")

// check refuses an address that is about to be dialled, unless it is allowed.
func check(address string, allow []netip.Prefix) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return fmt.Errorf("%w: %s", ErrAddress, chain.Clip(address))
	}
	ip := at.Addr().Unmap().WithZone("")
	for _, p := range allow {
		if p.Contains(ip) {
			return nil
		}
	}
	bad := !ip.IsGlobalUnicast() || ip.IsPrivate() || ip.Is6() && !everybody.Contains(ip)
	for _, p := range nowhere {
		bad = bad || p.Contains(ip)
	}
	if bad {
		return fmt.Errorf("%w: %s", ErrAddress, ip)
	}
	return nil
}
