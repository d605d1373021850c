package reach_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/multiformats/go-multiaddr"
	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/mesh/reach"
)

var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// Peer IDs of tests sort as they are spelt: self is in the middle.
const self, small, large peer.ID = "mm", "aa", "zz"

func book(change func(*reach.Config)) *reach.Book {
	cfg := reach.Config{Self: self, Keep: 32, Random: rand.New(rand.NewPCG(1, 2))}
	if change != nil {
		change(&cfg)
	}
	return reach.NewBook(cfg)
}

func addresses(list ...string) (all []multiaddr.Multiaddr) {
	for _, s := range list {
		all = append(all, multiaddr.StringCast(s))
	}
	return all
}

// Which address is dialled on whose word.
func TestWhoseWordCounts(t *testing.T) {
	const somebody = "12D3KooWEYBqyRNtbnJxuAeEGRF5pHn2wLDPsFB3vZGNBGXbHoxX"
	sources := []reach.Source{reach.Stranger, reach.Gossip, reach.Peer, reach.Hub, reach.LAN, reach.Owner}
	for address, want := range map[string]string{
		"/ip4/8.8.8.8/tcp/7411":                                  "ssssss",
		"/ip6/2606:4700::1111/tcp/7411":                          "ssssss",
		"/ip4/192.168.1.7/tcp/7411":                              "-sssss",
		"/ip4/100.64.0.7/udp/7411/quic-v1":                       "-sssss",
		"/ip6/fd00::7/tcp/7411":                                  "-sssss",
		"/ip4/169.254.169.254/tcp/80":                            "----ss", // where clouds keep credentials
		"/ip6/fe80::1/tcp/7411":                                  "----ss",
		"/ip4/127.0.0.1/tcp/7411":                                "-LLLLs",
		"/ip6/::1/tcp/7411":                                      "-LLLLs",
		"/ip6/::ffff:127.0.0.1/tcp/7411":                         "-LLLLs",
		"/ip6/::ffff:169.254.1.1/tcp/80":                         "----ss",
		"/ip4/0.0.0.0/tcp/7411":                                  "------",
		"/ip6/::/tcp/7411":                                       "------",
		"/ip4/255.255.255.255/udp/1/quic-v1":                     "------",
		"/ip4/224.0.0.251/udp/5353/quic-v1":                      "------",
		"/dns4/metadata.internal/tcp/80":                         "-----s",
		"/dnsaddr/box.lan":                                       "-----s",
		"/ip4/8.8.8.8/tcp/7411/p2p/" + somebody + "/p2p-circuit": "------",
		"/ip4/8.8.8.8/tcp/7411/p2p/" + somebody:                  "------", // of another peer
		"/unix/run%2Fdocker.sock":                                "-----s",
	} {
		for _, local := range []bool{false, true} {
			got := ""
			for _, source := range sources {
				b := book(func(c *reach.Config) { c.Loopback = local })
				b.Note(large, addresses(address), source, start)
				if len(b.Known(large)) > 0 {
					got += "s"
				} else {
					got += "-"
				}
			}
			expect := ""
			for _, r := range want {
				switch {
				case r != 'L':
					expect += string(r)
				case local:
					expect += "s"
				default:
					expect += "-"
				}
			}
			if got != expect {
				t.Errorf("%s, loopback %v: %s, want %s", address, local, got, expect)
			}
		}
	}
}

// due gives who is to be dialled at a time.
func due(b *reach.Book, at time.Time) (all []peer.ID) {
	dials, _ := b.Due(at, 100)
	for _, d := range dials {
		all = append(all, d.Peer)
	}
	return all
}

func TestTheSmallerDialsFirst(t *testing.T) {
	b := book(nil)
	for _, p := range []peer.ID{small, large, self} {
		b.Note(p, addresses("/ip4/8.8.8.8/tcp/1"), reach.Hub, start)
	}
	if got := due(b, start.Add(600*time.Millisecond)); !slices.Equal(got, []peer.ID{large}) {
		t.Errorf("at first: %q", got)
	}
	if got := due(b, start.Add(1500*time.Millisecond)); len(got) != 0 {
		t.Errorf("the smaller one's turn is not over: %q", got)
	}
	if got := due(b, start.Add(3*time.Second)); !slices.Equal(got, []peer.ID{small}) {
		t.Errorf("later: %q", got)
	}
}

func TestPauses(t *testing.T) {
	b := book(nil)
	b.Note(large, addresses("/ip4/8.8.8.8/tcp/1"), reach.Gossip, start)
	now := start
	// next waits for the dial of large and says how long that took.
	next := func() time.Duration {
		t.Helper()
		for begin := now; now.Sub(begin) < 10*time.Minute; now = now.Add(100 * time.Millisecond) {
			if got := due(b, now); len(got) > 0 {
				return now.Sub(begin)
			}
		}
		t.Fatal("not dialled in ten minutes")
		return 0
	}
	next()
	var longest time.Duration
	for i := range 40 {
		b.Failed(large, now)
		limit := min(2*time.Second<<min(i, 10), 2*time.Minute) + 90*time.Second // the door may have been tried often in this minute
		took := next()
		if longest = max(longest, took); took > limit {
			t.Errorf("after %d failures: %s", i+1, took)
		}
	}
	if longest < time.Minute {
		t.Errorf("the longest pause was %s", longest)
	}
	b.Failed(large, now)
	b.Note(large, addresses("/ip4/8.8.8.8/tcp/1"), reach.Gossip, now)
	b.Note(large, addresses("/ip4/9.9.9.9/tcp/1"), reach.Gossip, now)
	if took := next(); took > 600*time.Millisecond {
		t.Errorf("at a new address after %s", took)
	}
	for range 20 {
		b.Failed(large, now)
	}
	b.Moved(now)
	if took := next(); took > 600*time.Millisecond {
		t.Errorf("after this device moved: %s", took)
	}
	for range 20 {
		b.Failed(large, now)
	}
	b.Note(large, addresses("/ip4/192.168.0.9/tcp/1"), reach.LAN, now)
	if took := next(); took > 600*time.Millisecond {
		t.Errorf("after multicast said that it is there: %s", took)
	}
	b.Met(large, now)
	if got := due(b, now.Add(time.Hour)); len(got) != 0 {
		t.Error("a contact is dialled")
	}
	b.Parted(large, now)
	if took := next(); took > 600*time.Millisecond {
		t.Errorf("after parting: %s", took)
	}
	now = now.Add(time.Hour)
	b.Met(large, now)
	b.Parted(large, now)
	for range 12 { // it may come back any moment
		next()
		b.Failed(large, now)
		if took := next(); took > 2*time.Minute {
			t.Errorf("one that was just there is looked for again after %s", took)
		}
		b.Failed(large, now)
	}
	next()
	b.Met(large, now)
	b.Rest(large)
	if got := due(b, now.Add(time.Hour)); len(got) != 0 {
		t.Error("a resting contact is dialled")
	}
	if _, ok := b.Take(large, now.Add(2*time.Minute)); !ok {
		t.Error("a resting contact cannot be reached for work")
	}
	b.Refused(large, now)
	if took := next(); took < 2*time.Minute {
		t.Errorf("one that refuses is asked again after %s", took)
	}
}

// One that names others' doors as its own knocks there a few times a minute, and
// the device as a whole is bounded.
func TestDialBudgets(t *testing.T) {
	b := book(func(c *reach.Config) { c.Keep = 10_000 })
	victim := 0
	for i := range 400 {
		b.Note(peer.ID(fmt.Sprintf("z%03d", i)), addresses("/ip4/8.8.8.8/tcp/80", fmt.Sprintf("/ip4/8.8.8.8/tcp/%d", 1000+i)), reach.Gossip, start)
	}
	doors := map[string]int{}
	dials := 0
	for at := start; at.Before(start.Add(59 * time.Second)); at = at.Add(500 * time.Millisecond) {
		list, _ := b.Due(at, 100)
		for _, d := range list {
			dials++
			for _, a := range d.Addresses {
				victim++
				doors[a.String()]++
			}
			b.Failed(d.Peer, at)
		}
	}
	if doors["/ip4/8.8.8.8/tcp/80"] > 8 || victim > 128 || dials > 240 { // a minute's window may begin twice
		t.Errorf("%d dials, %d to one host, %d to one door", dials, victim, doors["/ip4/8.8.8.8/tcp/80"])
	}
	if victim < 60 {
		t.Errorf("only %d: twenty devices behind one address would not be met", victim)
	}
}

// Whatever is said, the book stays small, never dials itself, and never more
// peers than it should keep.
func TestBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := book(func(c *reach.Config) { c.Keep = 3 })
		busy := map[peer.ID]bool{}
		now := start
		who := rapid.SampledFrom([]peer.ID{"aa", "bb", "mm", "yy", "zz"})
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 20_000).Draw(t, "ms")) * time.Millisecond)
			p := who.Draw(t, "peer")
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0:
				b.Note(p, addresses(fmt.Sprintf("/ip4/8.8.8.%d/tcp/1", rapid.IntRange(1, 3).Draw(t, "ip"))), reach.Source(rapid.IntRange(0, 5).Draw(t, "source")), now)
			case 1:
				if busy[p] {
					b.Failed(p, now)
					delete(busy, p)
				}
			case 2:
				if busy[p] {
					b.Met(p, now)
				}
			default:
				for _, id := range due(b, now) {
					if id == self || busy[id] {
						t.Fatalf("%q is dialled again, or is this device", id)
					}
					busy[id] = true
				}
				if len(busy) > 3 {
					t.Fatalf("%d at once", len(busy))
				}
			}
		}
	})
	b := book(nil)
	for i := range 2000 {
		b.Note(peer.ID(fmt.Sprintf("x%04d", i)), addresses("/ip4/8.8.8.8/tcp/1"), reach.Gossip, start.Add(time.Duration(i)*time.Second))
	}
	b.Note("owner's", addresses("/dns4/box.lan/tcp/1"), reach.Owner, start.Add(time.Hour))
	known := 0
	for i := range 2000 {
		if len(b.Known(peer.ID(fmt.Sprintf("x%04d", i)))) > 0 {
			known++
		}
	}
	if known > 512 || len(b.Known("owner's")) == 0 {
		t.Errorf("%d are remembered", known)
	}
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf("/ip4/8.8.8.8/tcp/%d", i+1))
	}
	b.Note("owner's", addresses(many...), reach.Gossip, start.Add(time.Hour))
	if n := len(b.Known("owner's")); n != 17 {
		t.Errorf("%d addresses of one peer", n)
	}
}
