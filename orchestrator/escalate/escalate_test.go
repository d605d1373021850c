package escalate

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/chain"
)

func option(id chain.OptionID, domain string) chain.Option {
	return chain.Option{ID: id, Kind: chain.Provider, Domain: domain}
}

var (
	open     = []chain.Option{option("a/1", "a"), option("b/1", "b")}
	withheld = []chain.Option{option("a/2", "a"), option("c/1", "c"), option("d/1", "")}
)

// TestNext: the first withheld option that did not fail, what shares a domain with
// a fresh outage last.
func TestNext(t *testing.T) {
	f := func(id chain.OptionID, class chain.Class) chain.Failure {
		return chain.Failure{Option: id, Class: class}
	}
	for _, c := range []struct {
		name   string
		failed []chain.Failure
		want   chain.OptionID
	}{
		{"nothing said", nil, "a/2"},
		{"a bad answer says nothing of the domain", []chain.Failure{f("a/1", chain.BadAnswer), f("b/1", chain.Status)}, "a/2"},
		{"the domain is unreachable", []chain.Failure{f("a/1", chain.Unreachable)}, "c/1"},
		{"the domain refuses the keys", []chain.Failure{f("a/1", chain.Credentials)}, "c/1"},
		{"the domain is down, the others failed", []chain.Failure{f("a/1", chain.Unreachable), f("c/1", chain.Status), f("d/1", chain.Status)}, "a/2"},
		{"one that was revealed failed", []chain.Failure{f("a/2", chain.Status)}, "c/1"},
		{"all failed", []chain.Failure{f("a/2", chain.Status), f("c/1", chain.Status), f("d/1", chain.Status)}, ""},
		{"an option that is not ours", []chain.Failure{f("z/9", chain.Unreachable)}, "a/2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := NewPlan("body", open, withheld)
			got := p.Next(c.failed)
			if got.Option.ID != c.want || got.Reveal != (c.want != "") || got.Reveal == (got.Reason != "") || got.Coalesced {
				t.Errorf("%+v, want %q", got, c.want)
			}
			slices.Reverse(c.failed)
			if again := p.Next(append(c.failed, c.failed...)); again.Option.ID != c.want || !again.Coalesced {
				t.Errorf("an equal protest: %+v", again)
			}
		})
	}
	if got := NewPlan("body", open, nil).Next(nil); got.Reveal || got.Reason == "" {
		t.Errorf("nothing withheld: %+v", got)
	}
}

// TestEveryWithheldOptionComes: who protests again after each failure gets every
// withheld option once, and then a final no, however they failed.
func TestEveryWithheldOptionComes(t *testing.T) {
	classes := []chain.Class{chain.Unreachable, chain.Status, chain.Timeout, chain.Credentials, chain.BadAnswer}
	rapid.Check(t, func(t *rapid.T) {
		p := NewPlan("body", open, withheld)
		var failed []chain.Failure
		for range withheld {
			a := p.Next(failed)
			if !a.Reveal || slices.ContainsFunc(failed, func(f chain.Failure) bool { return f.Option == a.Option.ID }) {
				t.Fatalf("%+v after %+v", a, failed)
			}
			failed = append(failed, chain.Failure{Option: a.Option.ID, Class: rapid.SampledFrom(classes).Draw(t, "class")})
		}
		if a := p.Next(failed); a.Reveal {
			t.Fatalf("a fourth: %+v", a)
		}
	})
}

// TestDesk: repeats while they hold, limits per device and slot, bounded memory.
func TestDesk(t *testing.T) {
	now := time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
	slot := chain.Slot{Scope: chain.DefaultScope, Primitive: chain.LLMChat}
	d := NewDesk()
	d.Remember("p", slot, "n", []byte("x"), "", now.Add(time.Minute), now)
	if b, _, ok := d.Repeat("p", slot, "n", now); !ok || string(b) != "x" {
		t.Error("not remembered")
	}
	for _, other := range []struct {
		peer  chain.PeerID
		nonce string
		at    time.Time
	}{{"q", "n", now}, {"p", "m", now}, {"p", "n", now.Add(time.Minute)}} {
		if _, _, ok := d.Repeat(other.peer, slot, other.nonce, other.at); ok {
			t.Errorf("%+v got another's answer", other)
		}
	}
	for i := range perMinute {
		if ok, _ := d.Admit("p", slot, now.Add(time.Duration(i)*time.Millisecond)); !ok {
			t.Fatalf("protest %d refused", i)
		}
	}
	if ok, wait := d.Admit("p", slot, now.Add(10*time.Second)); ok || wait != 50*time.Second {
		t.Errorf("over the limit: %v, wait %s", ok, wait)
	}
	if ok, _ := d.Admit("q", slot, now); !ok {
		t.Error("another device pays for it")
	}
	if ok, _ := d.Admit("p", slot, now.Add(time.Minute)); !ok {
		t.Error("the minute is over")
	}
	for i := range 3 * maxReplies {
		d.Remember("p", slot, fmt.Sprint(i), nil, "no", now.Add(time.Hour), now)
	}
	if len(d.replies) > maxReplies {
		t.Errorf("%d replies are kept", len(d.replies))
	}
}

func BenchmarkNext(b *testing.B) {
	p := NewPlan("body", open, withheld)
	failed := []chain.Failure{{Option: "a/1", Class: chain.Timeout}, {Option: "b/1", Class: chain.Status}}
	for b.Loop() {
		p.Next(failed)
	}
}
