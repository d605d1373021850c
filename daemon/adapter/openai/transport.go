package openai

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"syscall"
	"time"
)

// transport is the pair of connection pools of one adapter: plain for http,
// whose dialler refuses any address outside the local network, secure for
// https. Neither follows redirects, uses a proxy of the environment, asks for
// compression or has a limit in time behind the handshake.
type transport struct{ plain, secure *http.Transport }

func newTransport(connect time.Duration, roots *x509.CertPool) *transport {
	return &transport{
		plain: pool(connect, nil, &net.Dialer{Timeout: connect, Control: refuseRemote}),
		secure: pool(connect, &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			&net.Dialer{Timeout: connect}),
	}
}

func pool(connect time.Duration, config *tls.Config, d *net.Dialer) *http.Transport {
	return &http.Transport{
		DialContext:            d.DialContext,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    connect,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxIdleConns:           4096,
		MaxIdleConnsPerHost:    1024,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: 64 << 10,
		ReadBufferSize:         16 << 10,
		WriteBufferSize:        16 << 10,
		// A pooled HTTP/2 connection can die without a word, and would then
		// swallow every request until its limit: a quiet one is asked.
		HTTP2: &http.HTTP2Config{SendPingTimeout: 15 * time.Second, PingTimeout: 5 * time.Second},
	}
}

// refuseRemote looks at the address that is really dialled, behind any name.
func refuseRemote(_, address string, _ syscall.RawConn) error {
	if !local(address) {
		return fmt.Errorf("%s: %w", address, ErrPlainHTTP)
	}
	return nil
}

// roundTrip sends one request. The two transports of net/http send it again by
// themselves when a pooled connection turns out to be dead before a byte of the
// answer came; GetBody of [newRequest] lets them do so once.
func (t *transport) roundTrip(r *http.Request) (*http.Response, error) {
	if r.URL.Scheme == "https" {
		return t.secure.RoundTrip(r)
	}
	return t.plain.RoundTrip(r)
}

func (t *transport) close() {
	t.plain.CloseIdleConnections()
	t.secure.CloseIdleConnections()
}

// patience ends a read that may take some time, but not for ever: it cancels
// the request behind it. It is made when it is first needed.
type patience struct {
	cancel context.CancelFunc
	timer  *time.Timer
}

func (p *patience) limit(d time.Duration) {
	if p.timer == nil {
		p.timer = time.AfterFunc(d, p.cancel)
		return
	}
	p.timer.Reset(d)
}

func (p *patience) stop() {
	if p.timer != nil {
		p.timer.Stop()
	}
}
