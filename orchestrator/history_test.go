package orchestrator_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/wire"
	"github.com/chordwheel/chordwheel/orchestrator"
)

// TestRestart: the same chains under the same numbers, the same members, the same
// estimates.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		r := start(t, d, parsed(t, declared))
		a := r.joined("a", "key:alpha", "key:beta")
		a.order(home)
		a.report("alpha/small", chain.Timeout, 10, 5*time.Second)
		wantOrder(t, a.order(home), "beta/small", "alpha/small")
		was := a.marks[home]
		open := r.invite(orchestrator.Invite{})
		topics, _ := a.visit()
		r.stop()
		time.Sleep(time.Minute)

		r = start(t, d, parsed(t, declared))
		a.rig = r
		wantOrder(t, a.order(home), "beta/small", "alpha/small")
		if now := a.marks[home]; now.Seq != was.Seq || now.Body != was.Body {
			t.Errorf("mark %+v after %+v", now, was)
		}
		w, err := a.visit()
		if err != nil || w.Membership != nil || string(w.Topics[0].Key) != string(topics.Topics[0].Key) {
			t.Errorf("visit: %+v %v", w, err)
		}
		if _, err := r.device("b").enrol(open); err != nil {
			t.Errorf("an open invitation: %v", err)
		}
		s, err := r.Status(t.Context())
		if err != nil || len(s.Devices) != 2 || s.Learned != 1 {
			t.Errorf("%+v %v", s, err)
		}
	})
}

// TestOlderCopy: the hub comes back with a backup of its data. Devices keep the
// newer chain; the hub learns of it from a head that its own key signed, and
// continues above it. A claim without that counts for nothing.
func TestOlderCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		r := start(t, d, parsed(t, declared))
		a := r.joined("a", "key:alpha", "key:beta")
		a.order(home)
		backup := d.copy()

		b := r.joined("b", "execute:llm.chat") // the backup does not know it
		time.Sleep(time.Hour)
		if err := r.Reload(t.Context(), parsed(t, strings.Replace(declared, "[alpha/small, beta/small, peer]", "[beta/small, alpha/small, peer]", 1))); err != nil {
			t.Fatal(err)
		}
		newer, err := a.fetch(home)
		if err != nil {
			t.Fatal(err)
		}
		wantOrder(t, ids(newer.Options()), "beta/small", "alpha/small", "peer")
		head, _ := newer.Bytes()
		r.stop()

		r = start(t, backup, parsed(t, declared))
		a.rig, b.rig = r, r
		number := func() uint64 {
			list, err := r.Chains(t.Context())
			if err != nil || len(list) != 1 {
				t.Fatal(list, err)
			}
			return list[0].Seq
		}
		before := number()
		mark := newer.Mark()

		for name, held := range map[string]wire.Held{
			"a bare claim":         {Slot: home, Mark: chain.Mark{Seq: 1 << 61, Body: mark.Body, Issued: mark.Issued}},
			"a claim above a head": {Slot: home, Mark: chain.Mark{Seq: mark.Seq + 1, Body: mark.Body}, Head: head},
			"another slot's head":  {Slot: chain.Slot{Scope: home.Scope, Primitive: "embed.text"}, Mark: mark, Head: head},
			"a forged head":        {Slot: home, Mark: mark, Head: forged(t, newer.Head())},
			"an altered head":      {Slot: home, Mark: mark, Head: altered(head)},
		} {
			a.holds = []wire.Held{held}
			w, err := a.visit()
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if asked := len(w.Behind) == 1; asked != (held.Head == nil) {
				t.Errorf("%s: asked for the head: %v", name, asked)
			}
			if got := number(); got != before {
				t.Errorf("%s moved the number from %d to %d", name, before, got)
			}
		}

		a.holds = []wire.Held{{Slot: home, Mark: mark, Head: head}}
		w, err := a.visit()
		if err != nil || len(w.Behind) != 0 {
			t.Fatalf("%+v %v", w.Behind, err)
		}
		again, err := a.fetch(home) // verified against the newer chain's mark
		if err != nil {
			t.Fatalf("the device refuses what the restored hub publishes: %v", err)
		}
		if again.Head().Seq <= mark.Seq {
			t.Errorf("sequence %d, want above %d", again.Head().Seq, mark.Seq)
		}
		wantOrder(t, ids(again.Options()), "alpha/small", "beta/small")
		if s, _ := r.Status(t.Context()); len(s.Alarms) == 0 {
			t.Error("the owner was not told")
		}

		// A member that the backup does not know is one by the hub's own signature.
		if _, err := b.visit(); err != nil {
			t.Errorf("the member that the backup forgot: %v", err)
		}
		wantOrder(t, a.order(home), "alpha/small", "beta/small", "peer")
	})
}

// TestTwoBodiesUnderOneNumber: a restored hub signed another body under a number
// that a device holds already. The device shows it, and the hub leaves that number.
func TestTwoBodiesUnderOneNumber(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		r := start(t, d, parsed(t, declared))
		a := r.joined("a", "key:alpha", "key:beta")
		c, err := a.fetch(home)
		if err != nil {
			t.Fatal(err)
		}
		other := c.Head()
		other.Body = chain.CIDOf([]byte("another"))
		payload, _ := chain.Marshal(other)
		head, _ := r.key.Seal(chain.DomainChain, payload)
		a.marks[home] = chain.Mark{Seq: other.Seq, Body: other.Body, Issued: other.Issued}
		if _, err := a.fetch(home); err == nil {
			t.Fatal("a device accepts two bodies under one number")
		}
		a.holds = []wire.Held{{Slot: home, Mark: a.marks[home], Head: head}}
		if _, err := a.visit(); err != nil {
			t.Fatal(err)
		}
		if _, err := a.fetch(home); err != nil {
			t.Errorf("after showing it: %v", err)
		}
	})
}

func forged(t *testing.T, h chain.Head) []byte {
	t.Helper()
	payload, err := chain.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	b, err := newKey().Seal(chain.DomainChain, payload)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func altered(b []byte) []byte {
	c := append([]byte{}, b...)
	c[len(c)-1] ^= 1
	return c
}

// TestRenewedHeads: each fetch signs a head as of now under the same number, and
// leaves the body out for who has it.
func TestRenewedHeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, declared))
		a := r.joined("a", "key:alpha")
		first, err := a.fetch(home)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		f, err := r.Fetch(t.Context(), a.key.PeerID(), wire.Fetch{Slot: home, Body: first.Head().Body, Seq: first.Head().Seq})
		if err != nil || f.Body != nil {
			t.Fatalf("a body came along: %d bytes, %v", len(f.Body), err)
		}
		_, body := first.Bytes()
		second, err := r.trust().Verify(home, f.Head, body, first.Mark(), time.Now())
		if err != nil {
			t.Fatal(err)
		}
		if h := second.Head(); h.Seq != first.Head().Seq || h.Issued <= first.Head().Issued || h.Expires.Time().Sub(h.Issued.Time()) != 7*24*time.Hour ||
			h.RefreshAfter.Time().Sub(h.Issued.Time()) != time.Hour {
			t.Errorf("%+v", h)
		}
	})
}

// TestLearningOutlivesACrash: what was learned is kept every half minute, not
// only at the end.
func TestLearningOutlivesACrash(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDisk()
		r := start(t, d, parsed(t, declared))
		a := r.joined("a", "key:alpha", "key:beta")
		a.order(home)
		a.report("alpha/small", chain.Timeout, 10, 5*time.Second)
		time.Sleep(31 * time.Second)
		synctest.Wait()
		crashed := d.copy()
		r2 := start(t, crashed, parsed(t, declared))
		a.rig = r2
		a.marks = map[chain.Slot]chain.Mark{}
		wantOrder(t, a.order(home), "beta/small", "alpha/small")
	})
}

// TestOldBodiesLeaveTheDisk: a hub that runs for a year publishes a great many, and
// keeps those that a device may still walk.
func TestOldBodiesLeaveTheDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, declared))
		d := r.joined("a", "key:alpha", "key:beta")
		priced := func(i int) string {
			return strings.Replace(declared, "input_per_mtok: 0.1", fmt.Sprintf("input_per_mtok: 0.%d", 101+i), 1)
		}
		for i := range 40 {
			if err := r.Reload(t.Context(), parsed(t, priced(i))); err != nil {
				t.Fatal(err)
			}
		}
		d.order(home)
		was := d.marks[home]
		kept := func() int { return r.disk.kept("hub-bodies") }
		if n := kept(); n < 40 {
			t.Fatalf("only %d bodies were published", n)
		}
		time.Sleep(11 * time.Minute)
		if n := kept(); n > 2 {
			t.Errorf("%d bodies are kept for one chain", n)
		}
		r.stop()
		r = start(t, r.disk, parsed(t, priced(39)))
		d.rig = r
		d.order(home)
		if now := d.marks[home]; now.Seq != was.Seq || now.Body != was.Body {
			t.Errorf("mark %+v after %+v", now, was)
		}
	})
}
