package openai

import (
	"errors"
	"testing"
)

func TestJoin(t *testing.T) {
	for endpoint, want := range map[string]string{
		"http://127.0.0.1:9001/v1":                       "http://127.0.0.1:9001/v1/chat/completions",
		"http://127.0.0.1:9001/v1/":                      "http://127.0.0.1:9001/v1/chat/completions",
		"http://127.0.0.1:9001":                          "http://127.0.0.1:9001/v1/chat/completions",
		"http://127.0.0.1:9001/":                         "http://127.0.0.1:9001/chat/completions",
		"https://api.example.com/openai/v1":              "https://api.example.com/openai/v1/chat/completions",
		"https://api.example.com/v1/chat/completions":    "https://api.example.com/v1/chat/completions",
		"https://api.example.com/v1/chat/completions/":   "https://api.example.com/v1/chat/completions",
		"https://x.example/deployments/a%2Fb?api=2026-1": "https://x.example/deployments/a%2Fb/chat/completions?api=2026-1",
		"http://[::1]:8080/v1":                           "http://[::1]:8080/v1/chat/completions",
	} {
		if u, err := join(endpoint, completionsPath); err != nil || u.String() != want {
			t.Errorf("%s: %v (%v), want %s", endpoint, u, err, want)
		}
	}
	if u, err := join("http://localhost:11434", modelsPath); err != nil || u.String() != "http://localhost:11434/v1/models" {
		t.Errorf("models: %v (%v)", u, err)
	}
	for _, endpoint := range []string{"", "api.example.com/v1", "ftp://x/v1", "http:///v1", "unix:///tmp/x", "https://user:pw@x/v1", "https://x/v1#f", "http://x:port/v1", "http://x/\x00"} {
		if u, err := join(endpoint, completionsPath); !errors.Is(err, ErrEndpoint) {
			t.Errorf("%q: %v (%v)", endpoint, u, err)
		}
	}
}

func TestWherePlainHTTPMayGo(t *testing.T) {
	for addr, want := range map[string]bool{
		"127.0.0.1:80": true, "127.9.9.9:80": true, "[::1]:80": true, "10.1.2.3:80": true, "172.16.0.1:80": true, "192.168.1.20:11434": true,
		"[fd00::1]:80": true, "[fe80::1%eth0]:80": true, "169.254.7.7:80": true, "[::ffff:192.168.1.1]:80": true,
		"169.254.169.254:80": false, "8.8.8.8:80": false, "172.32.0.1:80": false, "[2001:db8::1]:80": false, "[::ffff:8.8.8.8]:80": false, "0.0.0.0:80": false,
		"100.64.0.1:80": false, "224.0.0.1:80": false, "": false, "localhost:80": false,
	} {
		if got := local(addr); got != want {
			t.Errorf("%s: %v", addr, got)
		}
	}
}
