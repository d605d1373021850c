package fleet

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/chain"
)

// TestNamed: of two devices that say that they sign as one DID the first is believed, until
// he says otherwise or is revoked.
func TestNamed(t *testing.T) {
	f := New()
	put := func(name, did string, revoked chain.Instant) {
		d := inScope(chain.PeerID(name), "*")
		d.DID, d.Revoked = did, revoked
		f.Put(d)
	}
	is := func(did string, want *Device) {
		t.Helper()
		if got := f.Named(did); got != want {
			t.Errorf("%s is %+v, want %+v", did, got, want)
		}
	}
	a, b := inScope("a", "*").Peer, inScope("b", "*").Peer
	put("a", "did:webvh:x", 0)
	put("b", "did:webvh:x", 0)
	is("did:webvh:x", f.Device(a))
	put("b", "", 0)
	is("did:webvh:x", f.Device(a))
	put("a", "did:webvh:y", 0)
	is("did:webvh:x", nil)
	is("did:webvh:y", f.Device(a))
	put("a", "did:webvh:y", 5)
	is("did:webvh:y", f.Device(a)) // who was revoked may still have something to say
	put("b", "did:webvh:y", 0)
	is("did:webvh:y", f.Device(b))
	is("", nil)
}

// TestGoBy: the newest of the names of before are remembered, each once, and never the one of now.
func TestGoBy(t *testing.T) {
	var d Device
	for i, c := range []struct {
		did     string
		earlier []string
	}{
		{"", nil},
		{"x", nil},
		{"x", nil},
		{"", []string{"x"}},
		{"y", []string{"x"}},
		{"x", []string{"y"}},
		{"z", []string{"y", "x"}},
		{"y", []string{"x", "z"}},
	} {
		if d.GoBy(c.did); d.DID != c.did || !slices.Equal(d.Earlier, c.earlier) {
			t.Errorf("step %d: %q, before %q; want %q, %q", i, d.DID, d.Earlier, c.did, c.earlier)
		}
	}
	for i := range 3 * maxEarlier {
		before := d
		kept := slices.Clone(d.Earlier)
		c := d
		c.GoBy("of a copy that is thrown away")
		d.GoBy(fmt.Sprint("name ", i))
		if !slices.Equal(before.Earlier, kept) {
			t.Error("a copy shares the list")
		}
	}
	if n := len(d.Earlier); n != maxEarlier || d.Earlier[n-1] != fmt.Sprint("name ", 3*maxEarlier-2) {
		t.Errorf("%d names are remembered: %q", n, d.Earlier)
	}
}

// TestFormerly: whatever devices say that they are called, a name of before leads to all that
// had it and are not revoked, and to no other.
func TestFormerly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := New()
		names := []string{"", "x", "y", "z"}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			peer := inScope(chain.PeerID(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "device")), "*").Peer
			var d Device
			if have := f.Device(peer); have != nil {
				d = *have
			}
			d.Peer, d.ID = peer, chain.DeviceID(peer)
			d.GoBy(rapid.SampledFrom(names).Draw(t, "name"))
			d.Revoked = chain.Instant(rapid.IntRange(0, 1).Draw(t, "revoked"))
			f.Put(&d)
			for _, name := range names {
				var want []chain.PeerID
				for d := range f.All() {
					if d.Revoked == 0 && slices.Contains(d.Earlier, name) {
						want = append(want, d.Peer)
					}
				}
				got := f.Formerly(name)
				slices.Sort(got)
				slices.Sort(want)
				if !slices.Equal(got, want) {
					t.Fatalf("%q was the name of %q, want %q", name, got, want)
				}
			}
		}
		for did, list := range f.earlier {
			if len(list) == 0 {
				t.Fatalf("%q is kept for nobody", did)
			}
		}
	})
}
