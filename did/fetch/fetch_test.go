package fetch

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/chordwheel/chordwheel/did"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The address that is dialled decides, in all its spellings.
func TestCheck(t *testing.T) {
	for _, address := range []string{
		"127.0.0.1:443", "127.8.9.1:443", "10.0.0.1:443", "172.16.0.1:443", "192.168.1.1:443", "169.254.169.254:80", "100.64.0.1:443", "0.0.0.0:443", "0.1.2.3:443",
		"224.0.0.1:443", "255.255.255.255:443", "240.0.0.1:443", "192.0.2.1:443", "198.18.0.1:443", "198.51.100.1:443", "203.0.113.9:443", "192.0.0.8:443",
		"[::1]:443", "[::]:443", "[fe80::1]:443", "[fe80::1%eth0]:443", "[fc00::1]:443", "[fd12::1]:443", "[ff02::1]:443", "[::ffff:127.0.0.1]:443", "[::ffff:10.0.0.1]:443",
		"[::127.0.0.1]:443", "[64:ff9b::7f00:1]:443", "[64:ff9b:1::1]:443", "[::ffff:0:127.0.0.1]:443", "[::ffff:0:a9fe:a9fe]:80", "[3fff::1]:443", "[5f00::1]:443", "[2002:7f00:1::]:443", "[2001::1]:443", "[2001:db8::1]:443", "[fec0::1]:443", "[100::1]:443",
		"example.com:443", "", "127.0.0.1",
	} {
		if err := check(address, nil); !errors.Is(err, ErrAddress) {
			t.Errorf("%s: %v", address, err)
		}
	}
	for _, address := range []string{"93.184.215.14:443", "[2606:4700::1111]:443", "1.1.1.1:8443"} {
		if err := check(address, nil); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
	allow := []netip.Prefix{netip.MustParsePrefix("192.168.1.0/24")}
	if err := errors.Join(check("192.168.1.7:443", allow), check("[::ffff:192.168.1.7]:443", allow)); err != nil {
		t.Error(err)
	}
	if err := check("192.168.2.7:443", allow); !errors.Is(err, ErrAddress) {
		t.Error(err)
	}
}

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// serve starts a server for example.com on loopback, and gives options with which the
// name leads there.
func serve(t *testing.T, h http.HandlerFunc) (Options, *atomic.Int32) {
	t.Helper()
	var hits atomic.Int32
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		h(w, r)
	}))
	t.Cleanup(s.Close)
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	return Options{Roots: pool, Allow: loopback, dial: func(ctx context.Context, d *net.Dialer, _ string) (net.Conn, error) {
		return d.DialContext(ctx, "tcp", s.Listener.Addr().String())
	}}, &hits
}

const url = "https://example.com/.well-known/did.jsonl"

func TestFetch(t *testing.T) {
	o, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/.well-known/did.jsonl":
			if r.Header.Get("Accept-Encoding") != "" {
				t.Errorf("accepts %q", r.Header.Get("Accept-Encoding"))
			}
			_, _ = w.Write([]byte("log"))
		case "/moved":
			http.Redirect(w, r, "/.well-known/did.jsonl", http.StatusFound)
		case "/gone":
			w.WriteHeader(http.StatusGone)
		case "/broken":
			w.WriteHeader(http.StatusInternalServerError)
		case "/endless":
			for {
				if _, err := w.Write(make([]byte, 4096)); err != nil {
					return
				}
			}
		default:
			http.NotFound(w, r)
		}
	})
	c := New(o)
	b, err := c.Fetch(t.Context(), url, 3)
	if err != nil || string(b) != "log" {
		t.Errorf("%q, %v", b, err)
	}
	for path, want := range map[string]string{
		"/.well-known/did.jsonl": "more than 2 bytes", "/moved": "status 302", "/gone": "not found", "/other": "not found", "/broken": "status 500", "/endless": "more than 2 bytes",
	} {
		if b, err := c.Fetch(t.Context(), "https://example.com"+path, 2); err == nil || !strings.Contains(err.Error(), want) || errors.Is(err, did.ErrNotFound) != (want == "not found") {
			t.Errorf("%s: %q, %v", path, b, err)
		}
	}
	for _, bad := range []string{"http://example.com/x", "file:///etc/passwd", "https://exa mple.com/"} {
		if _, err := c.Fetch(t.Context(), bad, 2); err == nil {
			t.Errorf("fetched %s", bad)
		}
	}
}

// A name that leads inside is not followed: the server there sees nothing. Nor
// does a proxy of the environment.
func TestNothingIsReachedInside(t *testing.T) {
	o, hits := serve(t, func(http.ResponseWriter, *http.Request) {})
	o.Allow = nil
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	if _, err := New(o).Fetch(t.Context(), url, 10); !errors.Is(err, ErrAddress) {
		t.Errorf("fetched: %v", err)
	}
	if hits.Load() != 0 {
		t.Error("the server was reached")
	}
}

// A name that leads to a good address at first and to a bad one then is refused then: each
// connection is looked at, and none is kept for the next fetch.
func TestANameThatChangesItsMind(t *testing.T) {
	o, hits := serve(t, func(http.ResponseWriter, *http.Request) {})
	o.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	inside, where := o.dial, []string{"127.0.0.1", "127.0.0.2", "::ffff:127.0.0.2", "127.0.0.1"}
	dialled := 0
	o.dial = func(ctx context.Context, d *net.Dialer, _ string) (net.Conn, error) {
		to := where[dialled]
		if dialled++; to == "127.0.0.1" {
			return inside(ctx, d, "")
		}
		return d.DialContext(ctx, "tcp", net.JoinHostPort(to, "443"))
	}
	c := New(o)
	for i, to := range where {
		if _, err := c.Fetch(t.Context(), url, 10); errors.Is(err, ErrAddress) != (to != "127.0.0.1") || dialled != i+1 {
			t.Errorf("%s: %v, dialled %d times", to, err, dialled)
		}
	}
	if hits.Load() != 2 {
		t.Errorf("%d requests", hits.Load())
	}
}

// Another certificate, another name, no answer.
func TestWhoIsNotBelieved(t *testing.T) {
	o, hits := serve(t, func(http.ResponseWriter, *http.Request) {})
	stranger := o
	stranger.Roots = x509.NewCertPool()
	if _, err := New(stranger).Fetch(t.Context(), url, 10); err == nil {
		t.Error("an unknown authority is believed")
	}
	if _, err := New(o).Fetch(t.Context(), "https://another.org/x", 10); err == nil {
		t.Error("another name is believed")
	}
	if hits.Load() != 0 {
		t.Error("a request was sent")
	}
	begun := make(chan struct{})
	o, _ = serve(t, func(_ http.ResponseWriter, r *http.Request) {
		close(begun)
		<-r.Context().Done()
	})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-begun
		cancel()
	}()
	if _, err := New(o).Fetch(ctx, url, 10); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// Who takes the connection and says nothing, or a byte now and then, is left
// after the time that a fetch has.
func TestSilence(t *testing.T) {
	for name, talk := range map[string]func(net.Conn){
		"nothing": func(c net.Conn) { _, _ = io.Copy(io.Discard, c) },
		"a byte now and then": func(c net.Conn) {
			go func() { _, _ = io.Copy(io.Discard, c) }()
			for {
				// The beginning of a TLS record that never ends.
				if _, err := c.Write([]byte{22}); err != nil {
					return
				}
				time.Sleep(time.Second)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ours, theirs := net.Pipe()
				done := make(chan struct{})
				go func() {
					defer close(done)
					talk(theirs)
				}()
				o := Options{dial: func(context.Context, *net.Dialer, string) (net.Conn, error) { return ours, nil }}
				began := time.Now()
				if _, err := New(o).Fetch(t.Context(), url, 10); err == nil {
					t.Error("fetched")
				}
				if d := time.Since(began); d > 31*time.Second {
					t.Errorf("waited %v", d)
				}
				_ = theirs.Close()
				_ = ours.Close()
				<-done
			})
		})
	}
}
