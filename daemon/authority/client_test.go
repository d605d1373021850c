package authority

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestURLs(t *testing.T) {
	far := []string{"https://hub.example", "https://hub.example:7443/x/", "https://[2001:db8::1]:1", "https://192.168.1.7"}
	here := []string{"http://127.0.0.1:7443", "http://[::1]:1", "http://localhost:80", "http://a.localhost"}
	lan := []string{"http://192.168.1.7", "http://nas.local", "http://hub", "http://[fe80::1]"}
	for _, o := range []Options{{}, {LAN: true}} {
		good := slices.Concat(far, here)
		if o.LAN {
			good = slices.Concat(good, lan)
		}
		for _, base := range good {
			c, err := New(base, o)
			if err := errors.Join(err, Check(base, o)); err != nil {
				t.Errorf("%s: %v", base, err)
				continue
			}
			if o := c.Origin(); strings.Count(o, "/") != 2 || !strings.HasPrefix(base, o) {
				t.Errorf("%s: origin %s", base, o)
			}
		}
		bad := []string{"", "hub.example", "ftp://hub.example", "http://hub.example", "http://93.184.215.14", "http://169.254.169.254/latest", "http://[fd00:ec2::254]", "https://", "https://user:pw@hub.example", "https://hub.example?x=1", "https://hub.example#x", "https://user:pw%zz@hub.example", "https://hub.example:0", "http://127.0.0.1:99999", "http://localhost.evil.example"}
		if !o.LAN {
			bad = slices.Concat(bad, lan)
		}
		for _, base := range bad {
			if _, err := New(base, o); !errors.Is(err, ErrURL) || strings.Contains(err.Error(), "pw") || strings.Contains(err.Error(), "x=1") || !errors.Is(Check(base, o), ErrURL) {
				t.Errorf("%s: %v", base, err)
			}
		}
	}
	for _, pin := range []string{"abc", strings.Repeat("0", 62), strings.Repeat("g", 64)} {
		if _, err := New("https://hub.example", Options{Pin: pin}); err == nil {
			t.Errorf("pin %q", pin)
		}
	}
}

// A name is dialled over plain http only where it leads to this machine, or to the LAN if that
// is allowed: not into the internet, and not to where a cloud keeps the machine's credentials.
func TestWherePlainHTTPIsDialled(t *testing.T) {
	for _, inLAN := range []bool{false, true} {
		dial := overTCP(true, inLAN, nil, time.Second).DialContext
		for address, refused := range map[string]bool{"169.254.169.254:80": true, "[fd00:ec2::254]:80": true, "[::ffff:169.254.169.254]:80": true, "192.0.2.1:80": true, "127.0.0.1:1": false} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			c, err := dial(ctx, "tcp", address)
			if err == nil {
				c.Close()
			}
			if errors.Is(err, ErrAddress) != refused {
				t.Errorf("%s: %v", address, err)
			}
			cancel()
		}
	}
	if nearAddr(netip.MustParseAddr("192.168.1.7"), false) || !nearAddr(netip.MustParseAddr("192.168.1.7"), true) {
		t.Error("the LAN")
	}
}

// serve starts a TLS server, and gives its address and pin.
func serve(t *testing.T, h http.HandlerFunc, version uint16) (base, pin string, roots *x509.CertPool) {
	t.Helper()
	s := httptest.NewUnstartedServer(h)
	s.TLS = &tls.Config{MaxVersion: version}
	s.Config.ErrorLog = nil
	s.StartTLS()
	t.Cleanup(s.Close)
	sum := sha256.Sum256(s.Certificate().Raw)
	roots = x509.NewCertPool()
	roots.AddCert(s.Certificate())
	return s.URL, hex.EncodeToString(sum[:]), roots
}

func ask(t *testing.T, base string, o Options, path string, limit int64) (Answer, error) {
	t.Helper()
	c, err := New(base, o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.Do(t.Context(), http.MethodGet, path, nil, nil, limit)
}

func TestTLS(t *testing.T) {
	ok := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }
	base, pin, roots := serve(t, ok, tls.VersionTLS13)
	_, otherPin, _ := strings.Cut(pin, pin[:2])
	for name, o := range map[string]Options{"pinned": {Pin: pin}, "pinned in capitals": {Pin: strings.ToUpper(pin)}, "vouched for": {Roots: roots}} {
		if a, err := ask(t, base, o, "/", 10); err != nil || string(a.Body) != "ok" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := ask(t, base, Options{Pin: "00" + otherPin}, "/", 10); !errors.Is(err, ErrPin) {
		t.Error("another pin:", err)
	}
	if _, err := ask(t, base, Options{}, "/", 10); err == nil {
		t.Error("a certificate that nobody vouches for")
	}
	if _, err := ask(t, base, Options{Pin: pin, Roots: x509.NewCertPool()}, "/", 10); err != nil {
		t.Error("with a pin no authority counts:", err)
	}
	old, oldPin, _ := serve(t, ok, tls.VersionTLS12)
	if _, err := ask(t, old, Options{Pin: oldPin}, "/", 10); err == nil {
		t.Error("TLS 1.2")
	}
}

func TestAnswers(t *testing.T) {
	t.Setenv("HTTPS_PROXY", "http://127.0.0.1:1")
	var hits atomic.Int32
	base, pin, _ := serve(t, func(w http.ResponseWriter, r *http.Request) {
		hits.Add(1)
		switch r.URL.Path {
		case "/x/moved":
			http.Redirect(w, r, "/x/ok", http.StatusFound)
		case "/x/large":
			_, _ = w.Write(make([]byte, 100))
		case "/x/gzip":
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			_, _ = z.Write(bytes.Repeat([]byte{0}, 1<<20))
			_ = z.Close()
		case "/x/headers":
			w.Header().Set("X-Long", strings.Repeat("x", 32<<10))
		case "/x/cut":
			w.Header().Set("Content-Length", "100")
			_, _ = w.Write([]byte("half"))
		}
	}, tls.VersionTLS13)
	base, o := base+"/x/", Options{Pin: pin}
	if a, err := ask(t, base, o, "/moved", 100); err != nil || a.Status != http.StatusFound || hits.Load() != 1 {
		t.Error("a redirect was followed", a.Status, err, hits.Load())
	}
	if a, err := ask(t, base, o, "/large", 99); !errors.Is(err, ErrLarge) || a.Status != http.StatusOK || a.Body != nil {
		t.Error(a.Status, err)
	}
	if a, err := ask(t, base, o, "/large", 100); err != nil || len(a.Body) != 100 {
		t.Error(err)
	}
	for _, path := range []string{"/gzip", "/headers", "/cut"} {
		if _, err := ask(t, base, o, path, 2<<20); err == nil {
			t.Error(path)
		}
	}
}

// The context's time counts for the body too.
func TestASlowBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, err := New("https://hub.example", Options{Transport: dripping{}})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
		defer cancel()
		start := time.Now()
		if _, err := c.Do(ctx, http.MethodGet, "/", nil, nil, 1<<20); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 16*time.Second {
			t.Error(err, time.Since(start))
		}
	})
}

// dripping answers with one byte a second.
type dripping struct{}

func (dripping) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Header: http.Header{}, Body: drip{r.Context()}, Request: r}, nil
}

type drip struct{ ctx context.Context }

func (d drip) Read(b []byte) (int, error) {
	select {
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	case <-time.After(time.Second):
		return copy(b, "x"), nil
	}
}

func (drip) Close() error { return nil }

// A client that follows goes where its target is now, and trusts what is named now.
func TestFollow(t *testing.T) {
	answers := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(text)) }
	}
	first, pinOfFirst, _ := serve(t, answers("first"), tls.VersionTLS13)
	second, pinOfSecond, _ := serve(t, answers("second"), tls.VersionTLS13)
	unknown := errors.New("not known yet")
	var now Target
	c := Follow(func() (Target, error) {
		if now.URL == "" {
			return now, unknown
		}
		return now, nil
	})
	defer c.Close()
	get := func() (string, error) {
		a, err := c.Do(t.Context(), http.MethodGet, "/", nil, nil, 10)
		return string(a.Body), err
	}
	if _, err := get(); !errors.Is(err, unknown) || c.Origin() != "" {
		t.Error(err)
	}
	now = Target{first, Options{Pin: pinOfFirst}}
	if text, err := get(); text != "first" || c.Origin() != first {
		t.Error(text, err)
	}
	now = Target{second, Options{Pin: strings.Repeat("0", 64)}}
	if _, err := get(); !errors.Is(err, ErrPin) {
		t.Error("the pin of another server:", err)
	}
	now = Target{second, Options{Pin: pinOfSecond}}
	if text, err := get(); text != "second" {
		t.Error(text, err)
	}
	now = Target{"http://hub.example", Options{}}
	if _, err := get(); !errors.Is(err, ErrURL) {
		t.Error(err)
	}
}
