package audit

import (
	"net/http"
	"testing"
	"time"
)

func TestWhoAnAddressCountsFor(t *testing.T) {
	for address, want := range map[string]string{
		"192.0.2.1:99": "192.0.2.1/32", "[::ffff:192.0.2.1]:99": "192.0.2.1/32", "[2001:db8:1:2:3:4:5:6]:99": "2001:db8:1:2::/64", "[fe80::1%eth0]:9": "fe80::/64", "@": "invalid Prefix",
	} {
		if got := remoteOf(&http.Request{RemoteAddr: address}).String(); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}

// However many there are, what is kept of them is bounded, and who is at rest makes room.
func TestAPaceKeepsABoundedNumber(t *testing.T) {
	p, now := newPace[int](time.Second, 2), time.Unix(1000, 0)
	for i := range maxTracked {
		if p.count(i, now) != 0 {
			t.Fatal(i)
		}
	}
	if p.count(-1, now) == 0 || len(p.due) != maxTracked {
		t.Errorf("one more: %d kept", len(p.due))
	}
	if p.count(1, now) != 0 || p.count(1, now) == 0 {
		t.Error("one that is known may go on at its pace")
	}
	now = now.Add(5 * time.Second)
	if p.count(-1, now) != 0 || len(p.due) != 1 {
		t.Errorf("once they are at rest: %d kept", len(p.due))
	}
}
