package fleet

import (
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// TestTake: any order, any number of repeats, each batch counts once, as long as
// it is not older than the window can tell.
func TestTake(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d Device
		counted := map[uint64]bool{}
		highest := uint64(0)
		for _, seq := range rapid.SliceOf(rapid.Uint64Range(1, 150)).Draw(t, "sequences") {
			fresh := d.Take("boot", seq)
			tooOld := highest >= 64 && seq <= highest-64
			if want := !counted[seq] && !tooOld; fresh != want {
				t.Fatalf("sequence %d: fresh %v, want %v", seq, fresh, want)
			}
			counted[seq] = counted[seq] || fresh
			highest = max(highest, seq)
		}
	})
	var d Device
	for i := range 10 {
		if !d.Take(string(rune('a'+i)), 1) {
			t.Error("another run's first batch is new")
		}
	}
	if len(d.Boots) > maxBoots {
		t.Errorf("%d runs are remembered", len(d.Boots))
	}
}

// TestTakeDoesNotShare: a copy of a device can be thrown away.
func TestTakeDoesNotShare(t *testing.T) {
	var d Device
	d.Take("boot", 1)
	c := d
	c.Take("boot", 2)
	if !d.Take("boot", 2) {
		t.Error("the copy's batch was counted in the original")
	}
}

func inScope(peer chain.PeerID, granted string, declared ...chain.Capability) *Device {
	return &Device{Peer: peer, ID: chain.DeviceID("id-" + peer), Name: string(peer), Scopes: []chain.ScopeID{chain.DefaultScope}, Granted: []member.Pattern{member.Pattern(granted)},
		Declared: declared, Expires: 1000}
}

// TestReach: declared and granted, members only, all on one device.
func TestReach(t *testing.T) {
	f := New()
	f.Put(inScope("a", "*", "key:alpha", "net:residential"))
	f.Put(inScope("b", "key:*", "key:beta", "execute:llm.chat"))
	gone := inScope("c", "*", "key:gamma")
	gone.Expires = 10
	f.Put(gone)
	out := inScope("d", "*", "key:delta")
	out.Revoked = 5
	f.Put(out)
	other := inScope("e", "*", "key:epsilon")
	other.Scopes = []chain.ScopeID{"workspace:lab"}
	f.Put(other)
	r := f.Scope(chain.DefaultScope, 100)
	if r.Members() != 2 {
		t.Errorf("%d members", r.Members())
	}
	for _, c := range []struct {
		all, any []chain.Capability
		want     bool
	}{
		{nil, nil, true},
		{nil, []chain.Capability{"key:alpha"}, true},
		{nil, []chain.Capability{"key:zeta", "key:beta"}, true},
		{[]chain.Capability{"net:residential"}, []chain.Capability{"key:alpha"}, true},
		{[]chain.Capability{"net:residential"}, []chain.Capability{"key:beta"}, false}, // on two devices, not on one
		{[]chain.Capability{"execute:llm.chat"}, nil, false},                           // declared, not granted
		{[]chain.Capability{"device:id-a"}, nil, true},                                 // nobody has to declare its own ID
		{nil, []chain.Capability{"key:gamma"}, false},
		{nil, []chain.Capability{"key:delta"}, false},
		{nil, []chain.Capability{"key:epsilon"}, false},
	} {
		if got := r.Any(c.all, c.any); got != c.want {
			t.Errorf("all of %v and one of %v: %v", c.all, c.any, got)
		}
	}
}

// TestLocals: each once, by id, without what is the device's own business.
func TestLocals(t *testing.T) {
	l := func(id chain.OptionID, p chain.Primitive) wire.LocalOption {
		return wire.LocalOption{Primitives: []chain.Primitive{p}, Option: chain.Option{ID: id, Kind: chain.Local, Endpoint: "http://127.0.0.1", Keys: []string{"k"},
			Requires: []chain.Capability{"x"}, Cost: chain.Cost{Quality: 7, Latency: 1, Reliability: 1_000_000}}}
	}
	f := New()
	a, b, c := inScope("a", "*"), inScope("b", "execute:*"), inScope("c", "submit")
	a.Locals = []wire.LocalOption{l("local/z/m", chain.LLMChat), l("local/a/m", chain.LLMChat), l("local/e/m", "embed.text"), l("groq/m", chain.LLMChat)}
	b.Locals = []wire.LocalOption{l("local/a/m", chain.LLMChat)}
	c.Locals = []wire.LocalOption{l("local/c/m", chain.LLMChat)} // not granted
	f.Put(a)
	f.Put(b)
	f.Put(c)
	got := f.Scope(chain.DefaultScope, 100).Locals(chain.LLMChat, nil)
	if len(got) != 2 || got[0].ID != "local/a/m" || got[1].ID != "local/z/m" {
		t.Fatalf("%+v", got)
	}
	if o := got[0]; o.Endpoint != "" || o.Keys != nil || o.Requires != nil || o.Cost != (chain.Cost{Quality: 7}) {
		t.Errorf("too much is told: %+v", o)
	}
	if got := f.Scope(chain.DefaultScope, 100).Locals(chain.LLMChat, []chain.Capability{"gpu:1"}); len(got) != 0 {
		t.Errorf("without what the primitive requires: %+v", got)
	}
}

// TestClaim: one device ID, one peer ID, until the first is revoked.
func TestClaim(t *testing.T) {
	f := New()
	f.Put(inScope("a", "*"))
	if _, err := f.Claim("id-a", "a", "a", 1); err != nil {
		t.Error(err)
	}
	if _, err := f.Claim("new", "b", "b", 1); err != nil {
		t.Error(err)
	}
	c, err := f.Claim("id-a", "b", "b", 1)
	if !errors.Is(err, ErrTaken) || c.Holder != "a" {
		t.Errorf("%+v %v", c, err)
	}
	if got, ok := f.Conflict("b"); !ok || got != c || !slices.Equal(f.Conflicts(), []Conflict{c}) {
		t.Error("the conflict is not remembered")
	}
	for i := range 2 * maxConflicts {
		_, _ = f.Claim("id-a", chain.PeerID(rune(0x4e00+i)), "x", 1)
	}
	if n := len(f.Conflicts()); n > maxConflicts {
		t.Errorf("%d conflicts are kept", n)
	}
	f.Device("a").Revoked = 2
	if _, err := f.Claim("id-a", "b", "b", 3); err != nil {
		t.Errorf("after the revocation: %v", err)
	}
}

// TestFind: a peer ID, a device ID, or a name that is the only one.
func TestFind(t *testing.T) {
	f := New()
	a, b := inScope("a", "*"), inScope("b", "*")
	b.Name = "twin"
	c := inScope("c", "*")
	c.Name = "twin"
	f.Put(a)
	f.Put(b)
	f.Put(c)
	for who, want := range map[string]*Device{"a": a, "id-b": b, "twin": nil, "nobody": nil, "": nil} {
		if got := f.Find(who); got != want {
			t.Errorf("%q: %+v", who, got)
		}
	}
	c.Revoked = 1
	if f.Find("twin") != b {
		t.Error("the one that is left has the name")
	}
}

func TestGrantedPatterns(t *testing.T) {
	d := Device{Granted: []member.Pattern{"execute:*", "key:alpha", "*:x"}}
	for c, want := range map[chain.Capability]bool{"execute:llm.chat": true, "execute:": true, "execute": false, "key:alpha": true, "key:alphabet": false, "a:x": true, "a:xy": false} {
		if d.Allows(c) != want {
			t.Errorf("%s: %v", c, !want)
		}
	}
}

// A device that comes again keeps the names that stand in a welcome on its way to it.
func TestPutLeavesTheListItWasGiven(t *testing.T) {
	f, d := New(), inScope("a", "*")
	given := d.Scopes
	f.Put(d)
	if &f.Device("a").Scopes[0] == &given[0] {
		t.Error("the fleet keeps a list that others hold")
	}
}
