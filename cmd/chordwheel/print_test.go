package main

import (
	"net"
	"net/netip"
	"testing"
)

func TestFigures(t *testing.T) {
	for _, c := range []struct {
		x    float64
		n    int
		want string
	}{
		{0, 2, "0"},
		{0.01234, 2, "0.012"},
		{4.567, 3, "4.57"},
		{99.4, 2, "99"},
		{99.6, 2, "100"}, // %.2g would write 1e+02
		{100, 2, "100"},
		{-1234.5, 3, "-1234"},
		{360000, 3, "360000"},
	} {
		if got := figures(c.x, c.n); got != c.want {
			t.Errorf("figures(%v, %d) = %q, want %q", c.x, c.n, got, c.want)
		}
	}
}

func TestMillis(t *testing.T) {
	for ms, want := range map[float64]string{0: "—", 0.461: "0.461 ms", 42.34: "42.3 ms", 999.4: "999 ms", 999.6: "1 s", 2345: "2.35 s", 90_000: "90 s", 3_600_000: "3600 s"} {
		if got := millis(ms); got != want {
			t.Errorf("millis(%v) = %q, want %q", ms, got, want)
		}
	}
}

func TestAddressesThatAreShownCanBeDialled(t *testing.T) {
	for _, c := range []struct{ listens, shown string }{
		{"0.0.0.0:7420", "127.0.0.1:7420"},
		{"[::]:7420", "127.0.0.1:7420"},
		{"127.0.0.1:7420", "127.0.0.1:7420"},
		{"[::1]:7420", "[::1]:7420"},
		{"192.0.2.7:80", "192.0.2.7:80"},
	} {
		if got := dialled(net.TCPAddrFromAddrPort(netip.MustParseAddrPort(c.listens))); got != c.shown {
			t.Errorf("a listener on %s is shown as %s, want %s", c.listens, got, c.shown)
		}
	}
}
