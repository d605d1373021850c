package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"
)

// newTransport is what both proxies reach the provider with: enough idle
// connections that none is dialled during a run.
func newTransport() *http.Transport {
	return &http.Transport{MaxIdleConns: 512, MaxIdleConnsPerHost: 512, IdleConnTimeout: time.Minute, DisableCompression: true}
}

// lean is the least that a gateway on net/http can be: it reads the request,
// sends it on, and copies the answer, a stream as it comes. What the edge takes
// beyond this is the price of what the edge does.
type lean struct {
	upstream  *url.URL
	transport *http.Transport
}

func newLean(upstream string) http.Handler {
	u, err := url.Parse(upstream)
	if err != nil {
		u = &url.URL{Scheme: "http"}
	}
	return &lean{upstream: u, transport: newTransport()}
}

func (l *lean) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	target := *l.upstream
	target.Path = r.URL.Path
	out, err := http.NewRequestWithContext(r.Context(), r.Method, target.String(), bytes.NewReader(body))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	out.Header.Set("Content-Type", "application/json")
	res, err := l.transport.RoundTrip(out)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer res.Body.Close()
	for _, name := range []string{"Content-Type", "Content-Length"} {
		if v := res.Header[name]; v != nil {
			w.Header()[name] = v
		}
	}
	w.WriteHeader(res.StatusCode)
	copyThrough(w, res.Body, res.ContentLength < 0)
}

var buffers = sync.Pool{New: func() any { b := make([]byte, 16<<10); return &b }}

// copyThrough copies an answer, a stream as it comes.
func copyThrough(w http.ResponseWriter, from io.Reader, stream bool) {
	flush := http.NewResponseController(w)
	pooled := buffers.Get().(*[]byte)
	defer buffers.Put(pooled)
	for buf := *pooled; ; {
		n, err := from.Read(buf)
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return
			}
			if stream && flush.Flush() != nil {
				return
			}
		}
		if err == io.EOF {
			return
		}
		if err != nil {
			// The provider broke off: so does this, visibly.
			panic(http.ErrAbortHandler)
		}
	}
}

// newReverse is the proxy that everybody has at hand.
func newReverse(upstream string) http.Handler {
	u, err := url.Parse(upstream)
	if err != nil {
		u = &url.URL{Scheme: "http"}
	}
	proxy := &httputil.ReverseProxy{
		Transport:     newTransport(),
		FlushInterval: -1,
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(u) },
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// An early answer would otherwise close the request's body under the
		// transport that still reads it.
		_ = http.NewResponseController(w).EnableFullDuplex()
		proxy.ServeHTTP(w, r)
	})
}
