package main

import "testing"

// A hub whose services only its own machine reaches says so.
func TestLoopbackURL(t *testing.T) {
	for url, want := range map[string]bool{
		"https://127.0.0.1:7443": true, "https://[::1]:7443": true, "https://localhost:7443": true,
		"https://192.0.2.7:7443": false, "https://hub.lan:7443": false, "": false, "::": false,
	} {
		if got := loopbackURL(url); got != want {
			t.Errorf("%q: %v", url, got)
		}
	}
}
