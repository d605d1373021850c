package shelf_test

import (
	"bytes"
	"context"
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/did"
	"github.com/chordwheel/chordwheel/did/shelf"
)

const (
	scid  = "QmdmPkUdYzbr9txmx8gM2rsHPgr5L6m3gHjJGAf4vUFoGE"
	alone = "did:webvh:" + scid + ":example.com"
	below = "did:webvh:" + scid + ":example.com%3A8443:dids:hub"
)

func write(path string, b []byte) error { return os.WriteFile(path, b, 0o600) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

type elsewhere struct{ asked []string }

func (e *elsewhere) Fetch(_ context.Context, url string, _ int64) ([]byte, error) {
	e.asked = append(e.asked, url)
	return []byte("elsewhere"), nil
}

func TestWhatIsPutIsFoundAndServed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "did")
	s := shelf.New(dir, write)
	if _, err := s.Get(alone); !errors.Is(err, did.ErrNotFound) {
		t.Errorf("of an empty shelf: %v", err)
	}
	must(t, s.Put(alone, []byte("one")))
	must(t, s.Put(below, []byte("two")))
	for name, want := range map[string]string{alone: "one", below: "two"} {
		if b, err := s.Get(name); err != nil || string(b) != want {
			t.Errorf("%s: %s, %v", name, b, err)
		}
	}
	if p, _ := s.Path(below); p != filepath.Join(dir, "example.com%3A8443", "dids", "hub", "did.jsonl") {
		t.Error(p)
	}
	for _, c := range []struct {
		method, host, path, want string
	}{
		{"GET", "example.com", "/.well-known/did.jsonl", "one"},
		{"GET", "example.com:8443", "/dids/hub/did.jsonl", "two"},
		{"GET", "other.example", "/.well-known/did.jsonl", ""}, // two hosts: it could be either's
		{"GET", "example.com:8443", "/.well-known/did.jsonl", ""},
		{"GET", "example.com:8443", "/dids/hub/", ""},
		{"GET", "example.com:8443", "/dids/hub/did.jsonl/", ""},
		{"GET", "example.com:8443", "/dids/../dids/hub/did.jsonl", ""},
		{"GET", "..", "/did/example.com/.well-known/did.jsonl", ""},
		{"GET", "", "/example.com/.well-known/did.jsonl", ""},
		{"POST", "example.com", "/.well-known/did.jsonl", ""},
	} {
		w, r := httptest.NewRecorder(), httptest.NewRequest(c.method, "/", nil)
		r.Host, r.URL.Path = c.host, c.path
		if served := s.Serve(w, r); served != (c.want != "") || w.Body.String() != c.want {
			t.Errorf("%s %s%s: %v %q", c.method, c.host, c.path, served, w.Body)
		}
		if c.want != "" && w.Header().Get("Content-Type") != "text/jsonl" {
			t.Error(w.Header())
		}
	}
	must(t, os.RemoveAll(filepath.Join(dir, "example.com%3A8443")))
	w, r := httptest.NewRecorder(), httptest.NewRequest("HEAD", "/.well-known/did.jsonl", nil)
	r.Host = "127.0.0.1:7443"
	if !s.Serve(w, r) || w.Body.Len() != 0 || w.Header().Get("Content-Length") != "3" {
		t.Errorf("the only host, behind another name: %v %q", w.Header(), w.Body)
	}
}

func TestTheShelfIsAskedFirst(t *testing.T) {
	s, e := shelf.New(t.TempDir(), write), &elsewhere{}
	must(t, s.Put(alone, []byte("here")))
	f := s.Before(e)
	for name, want := range map[string]string{alone: "here", below: "elsewhere"} {
		url, err := did.Address(name)
		must(t, err)
		if b, err := f.Fetch(t.Context(), url, did.MaxLog); err != nil || string(b) != want {
			t.Errorf("%s: %s, %v", name, b, err)
		}
	}
	if len(e.asked) != 1 {
		t.Error(e.asked)
	}
	url, _ := did.Address(alone)
	if b, err := f.Fetch(t.Context(), url, 3); err == nil {
		t.Errorf("beyond the limit: %q", b)
	}
}

// Nothing outside of the folder is read, also through a link in it.
func TestNothingOutsideIsRead(t *testing.T) {
	dir := t.TempDir()
	secret := filepath.Join(dir, "did.jsonl")
	must(t, os.WriteFile(secret, []byte("secret"), 0o600))
	in := filepath.Join(dir, "shelf", "example.com", ".well-known")
	must(t, os.MkdirAll(in, 0o700))
	must(t, os.Symlink(secret, filepath.Join(in, "did.jsonl")))
	s := shelf.New(filepath.Join(dir, "shelf"), write)
	if b, err := s.Get(alone); err == nil || bytes.Contains(b, []byte("secret")) {
		t.Errorf("through a link: %q", b)
	}
	for _, url := range []string{"https://../did.jsonl", "https://example.com/../../did.jsonl", "http://example.com/.well-known/did.jsonl", "https://example.com/.well-known/identity.key",
		"https://a:1:2/did.jsonl", "https://a\\b/did.jsonl", "", "https:///did.jsonl"} {
		if b, err := s.Fetch(t.Context(), url, 100); !errors.Is(err, did.ErrNotFound) {
			t.Errorf("%q: %q, %v", url, b, err)
		}
	}
	if _, err := s.Path("did:webvh:" + scid + ":..:x"); !errors.Is(err, did.ErrInvalid) {
		t.Error(err)
	}
}

func FuzzPlace(f *testing.F) {
	f.Add("example.com", "/.well-known/did.jsonl")
	f.Fuzz(func(t *testing.T, host, path string) {
		s := shelf.New(filepath.Join(t.TempDir(), "none"), write)
		if _, err := s.Fetch(t.Context(), "https://"+host+path, 1); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q %q: %v", host, path, err)
		}
	})
}

// told is a fetcher that is told how long answers may be remembered.
type told struct{ kept []string }

func (*told) Fetch(context.Context, string, int64) ([]byte, error) { return nil, did.ErrNotFound }

func (k *told) Keep(atMost time.Duration, urls ...string) { k.kept = append(urls, atMost.String()) }

func TestWhatIsBehindTheShelfIsToldHowLongToRemember(t *testing.T) {
	next := &told{}
	f := shelf.New(t.TempDir(), write).Before(next)
	f.(did.Keeper).Keep(time.Second, "https://a.example/did.jsonl")
	if len(next.kept) != 2 || next.kept[1] != "1s" {
		t.Error(next.kept)
	}
	shelf.New(t.TempDir(), write).Before(nobody{}).(did.Keeper).Keep(time.Second, "x") // who remembers nothing need not be told
}

type nobody struct{}

func (nobody) Fetch(context.Context, string, int64) ([]byte, error) { return nil, did.ErrNotFound }
