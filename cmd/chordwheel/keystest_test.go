package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// A key is tried at the provider that the chain names for it, with a list of
// models and nothing else.
func TestKeysTest(t *testing.T) {
	const secret = "sk-right"
	var mu sync.Mutex
	var asked []string
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		asked = append(asked, r.Method+" "+r.URL.Path)
		mu.Unlock()
		if r.Header.Get("Authorization") != "Bearer "+secret {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		fmt.Fprint(w, `{"data":[{"id":"small"},{"id":"large"}]}`)
	}))
	defer provider.Close()
	dir := t.TempDir()
	catalogue := filepath.Join(dir, "catalogue.yaml")
	text := "providers:\n  - name: alpha\n    adapter: openai\n    endpoint: " + provider.URL + "/v1\n    keys: [alpha]\n    models:\n      - {name: small, primitives: [llm.chat]}\n" +
		"primitives:\n  - {name: llm.chat, default: [alpha/small, local/builtin/primer]}\nworkspaces:\n  - {id: home, keys: [alpha]}\n"
	if err := os.WriteFile(catalogue, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	up := filepath.Join(dir, "up")
	start(t, "up", "--dir", up, "--catalog", catalogue)
	try := func() (string, int) {
		out, stderr, code := command(t, "keys", "test", "alpha", "--dir", up)
		return out + stderr, code
	}
	if said, code := try(); code != exitFailed || !strings.Contains(said, "chordwheel keys set alpha") {
		t.Errorf("without the key: %d %s", code, said)
	}
	stdin(t, "sk-wrong", "keys", "set", "alpha", "--dir", up)
	until(t, "the chain has the provider", func() bool { return strings.Contains(strings.Join(order(t, up), " "), "alpha/small") })
	if said, code := try(); code != exitRefused || !strings.Contains(said, "the key was refused (401)") || strings.Contains(said, "sk-wrong") {
		t.Errorf("a wrong key: %d %s", code, said)
	}
	stdin(t, secret, "keys", "set", "alpha", "--dir", up)
	if said, code := try(); code != 0 || !strings.Contains(said, "accepted, 2 models") {
		t.Errorf("the right key: %d %s", code, said)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, a := range asked {
		if a != "GET /v1/models" {
			t.Errorf("the provider was asked %s", a)
		}
	}
}
