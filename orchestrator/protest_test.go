package orchestrator_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/spoke"
	"github.com/chordwheel/chordwheel/mesh/wire"
	"github.com/chordwheel/chordwheel/orchestrator"
)

// TestProtest: a withheld option for one device, one protest and one chain; then
// the next; then a final no with its reason.
func TestProtest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, declared))
		a, b := r.joined("a", "key:alpha"), r.joined("b", "key:beta")
		c, err := a.fetch(home)
		if err != nil {
			t.Fatal(err)
		}
		failed := []chain.Failure{{Option: "alpha/small", Class: chain.Timeout}, {Option: "beta/small", Class: chain.KeyMissing}}
		ask := func(d *device, nonce string, failed ...chain.Failure) wire.ProtestReply {
			t.Helper()
			reply, err := r.Protest(t.Context(), d.key.PeerID(), wire.Protest{Slot: home, Body: c.Head().Body, Nonce: nonce, Failed: failed, Budget: 5000})
			if err != nil {
				t.Fatal(err)
			}
			return reply
		}
		first := ask(a, "one", failed...)
		options, err := r.trust().VerifyExtension(c, "one", a.key.PeerID(), first.Extension, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		wantOrder(t, ids(options), "gamma/large")
		for name, verify := range map[string]func() error{
			"another protest": func() error {
				_, err := r.trust().VerifyExtension(c, "two", a.key.PeerID(), first.Extension, time.Now())
				return err
			},
			"another device": func() error {
				_, err := r.trust().VerifyExtension(c, "one", b.key.PeerID(), first.Extension, time.Now())
				return err
			},
			"after its expiry": func() error {
				_, err := r.trust().VerifyExtension(c, "one", a.key.PeerID(), first.Extension, time.Now().Add(time.Hour))
				return err
			},
		} {
			if verify() == nil {
				t.Errorf("the extension holds for %s", name)
			}
		}

		if again := ask(a, "one", failed...); !bytes.Equal(again.Extension, first.Extension) {
			t.Error("the same protest got other bytes")
		}
		failed = append(failed, chain.Failure{Option: "gamma/large", Class: chain.Status})
		second := ask(a, "two", failed...)
		options, err = r.trust().VerifyExtension(c, "two", a.key.PeerID(), second.Extension, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		wantOrder(t, ids(options), "gamma/huge")
		last := ask(a, "three", append(failed, chain.Failure{Option: "gamma/huge", Class: chain.Status})...)
		if last.Extension != nil || !strings.Contains(last.Reason, "every withheld option") {
			t.Errorf("%+v", last)
		}

		// An equal protest of another device is a look-up, and is counted as one.
		ask(b, "four", failed...)
		chains, err := r.Chains(t.Context())
		if err != nil || len(chains) != 1 {
			t.Fatal(err)
		}
		if p := chains[0].Protests; p.Answered != 3 || p.Refused != 1 || p.Coalesced != 2 {
			t.Errorf("protests %+v", p)
		}
	})
}

// TestProtestStorm: a provider fails for everybody at once. Each device gets an
// extension of its own; the choice is made once.
func TestProtestStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const devices = 100
		r := start(t, newDisk(), parsed(t, declared))
		i := r.invite(orchestrator.Invite{Uses: devices})
		all := make([]*device, devices)
		for n := range all {
			all[n] = r.device(fmt.Sprintf("%06d", n), "key:alpha")
			if _, err := all[n].enrol(i); err != nil {
				t.Fatal(err)
			}
		}
		c, err := all[0].fetch(home)
		if err != nil {
			t.Fatal(err)
		}
		var storm sync.WaitGroup
		for _, d := range all {
			storm.Go(func() {
				reply, err := r.Protest(t.Context(), d.key.PeerID(), wire.Protest{Slot: home, Body: c.Head().Body, Nonce: d.name, Failed: []chain.Failure{{Option: "alpha/small", Class: chain.Unreachable}}})
				if err != nil {
					t.Error(err)
					return
				}
				options, err := r.trust().VerifyExtension(c, d.name, d.key.PeerID(), reply.Extension, time.Now())
				if err != nil || len(options) != 1 || options[0].ID != "gamma/large" {
					t.Errorf("%v %v", ids(options), err)
				}
			})
		}
		storm.Wait()
		chains, err := r.Chains(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if p := chains[0].Protests; p.Answered != devices || p.Coalesced != devices-1 {
			t.Errorf("protests %+v", p)
		}
	})
}

// TestProtestOfAnOldChain: the chain before this one may still be walked by who
// began with it; an older one may not. What is in the chain is never revealed again.
func TestProtestOfAnOldChain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, strings.Replace(declared, "default: [alpha/small, beta/small, peer], withheld: [gamma/large, gamma/huge]", "default: [alpha/small, gamma/large], withheld: [gamma/huge]", 1)))
		a := r.joined("a", "key:alpha")
		old, err := a.fetch(home)
		if err != nil {
			t.Fatal(err)
		}
		protest := func() wire.ProtestReply {
			t.Helper()
			reply, err := r.Protest(t.Context(), a.key.PeerID(), wire.Protest{Slot: home, Body: old.Head().Body, Nonce: time.Now().String()})
			if err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			return reply
		}
		if err := r.Reload(t.Context(), parsed(t, declared)); err != nil { // gamma/large is withheld now, but stands in the old chain
			t.Fatal(err)
		}
		nonce := time.Now().String()
		options, err := r.trust().VerifyExtension(old, nonce, a.key.PeerID(), protest().Extension, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		wantOrder(t, ids(options), "gamma/huge")
		if err := r.Reload(t.Context(), parsed(t, strings.Replace(declared, "latency_ms: 300", "latency_ms: 900", 1))); err != nil {
			t.Fatal(err)
		}
		if reply := protest(); reply.Extension != nil || !strings.Contains(reply.Reason, "fetch") {
			t.Errorf("%+v", reply)
		}
	})
}

// TestNothingWithheld is a final no.
func TestNothingWithheld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, strings.Replace(declared, ", withheld: [gamma/large, gamma/huge]", "", 1)))
		a := r.joined("a", "key:alpha")
		c, err := a.fetch(home)
		if err != nil {
			t.Fatal(err)
		}
		reply, err := r.Protest(t.Context(), a.key.PeerID(), wire.Protest{Slot: home, Body: c.Head().Body, Nonce: "n"})
		if err != nil || reply.Extension != nil || !strings.Contains(reply.Reason, "nothing is withheld") {
			t.Errorf("%+v %v", reply, err)
		}
	})
}

// TestOperations: everything that passed is in the log, and no secret with it.
func TestOperations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, declared))
		made, err := r.Invite(t.Context(), orchestrator.Invite{})
		if err != nil {
			t.Fatal(err)
		}
		a := r.joined("a", "key:alpha")
		c, err := a.fetch(home)
		if err != nil {
			t.Fatal(err)
		}
		a.report("alpha/small", chain.OK, 1, time.Second)
		if _, err := r.Protest(t.Context(), a.key.PeerID(), wire.Protest{Slot: home, Body: c.Head().Body, Nonce: "nonce-1"}); err != nil {
			t.Fatal(err)
		}
		_, _ = r.device("stranger").fetch(home)
		_, _ = r.Revoke(t.Context(), "a")
		kinds := map[string]orchestrator.Operation{}
		list := r.Operations(0, 100)
		for i, op := range list {
			if i > 0 && op.ID != list[i-1].ID+1 {
				t.Errorf("operation %d after %d", op.ID, list[i-1].ID)
			}
			kinds[op.Kind] = op
		}
		for _, kind := range []string{"invitation", "enrol", "fetch", "report", "protest", "invalidation", "revocation"} {
			if _, ok := kinds[kind]; !ok {
				t.Errorf("no %s in the log", kind)
			}
		}
		if op := kinds["protest"]; op.Device != "a" || op.Peer != a.key.PeerID() || op.Slot != home.String() || op.Request != "nonce-1" || op.Outcome != "ok" || op.Bytes == 0 || op.Direction != "in" {
			t.Errorf("%+v", op)
		}
		if op := kinds["fetch"]; op.Outcome != "not_member" {
			t.Errorf("%+v", op)
		}
		text, _ := json.Marshal(list)
		if strings.Contains(string(text), made.Text) {
			t.Error("an invitation is in the log")
		}
		if got := r.Operations(list[2].ID, 2); len(got) != 2 || got[0].ID != list[3].ID {
			t.Errorf("paging: %+v", got)
		}
		if got := r.Operations(list[len(list)-1].ID, 10); len(got) != 0 {
			t.Errorf("after the newest: %+v", got)
		}
		if got := r.Operations(1<<63, 10); len(got) != 0 {
			t.Errorf("far beyond: %+v", got)
		}
	})
}

// TestProtestsForInventedPrimitives leave nothing behind: a member may make up
// as many names as it likes.
func TestProtestsForInventedPrimitives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, declared))
		a := r.joined("a", "key:alpha")
		report := wire.Report{BootID: "b", Seq: 1, From: chain.InstantOf(time.Now()), To: chain.InstantOf(time.Now())}
		for i := range 60 {
			p := wire.Protest{Slot: chain.Slot{Scope: chain.DefaultScope, Primitive: chain.Primitive(fmt.Sprintf("made.up%d", i))}, Body: chain.CIDOf([]byte("x")), Nonce: "n",
				Failed: []chain.Failure{{Option: "alpha/small", Class: chain.Timeout}}}
			report.Protests = append(report.Protests, p)
			reply, err := r.Protest(t.Context(), a.key.PeerID(), p)
			if err != nil || !strings.Contains(reply.Reason, "no primitive made.up") || reply.Extension != nil {
				t.Fatalf("%+v, %v", reply, err)
			}
		}
		report.Protests = append(report.Protests, wire.Protest{Slot: home, Body: chain.CIDOf([]byte("x")), Nonce: "n", Failed: report.Protests[0].Failed})
		if reply, err := r.Report(t.Context(), a.key.PeerID(), report); err != nil || !reply.Accepted {
			t.Fatalf("%+v, %v", reply, err)
		}
		if n := r.ProtestSlots(); n != 1 {
			t.Errorf("the protests of %d slots are counted, want those of %s alone", n, home)
		}
	})
}

// TestTheRateSurvivesARestart: how many of a chain's requests protest is known after a
// stop and, up to half a minute, after a crash; not what has faded, nor of a chain
// that the catalogue means no more.
func TestTheRateSurvivesARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newDisk()
		r := start(t, disk, parsed(t, declared))
		a := r.joined("a", "key:alpha", "key:beta")
		c, err := a.fetch(home)
		if err != nil {
			t.Fatal(err)
		}
		protest := func(nonce string) {
			t.Helper()
			if reply, err := r.Protest(t.Context(), a.key.PeerID(), wire.Protest{Slot: home, Body: c.Head().Body, Nonce: nonce, Failed: []chain.Failure{{Option: "alpha/small", Class: chain.Timeout}}}); err != nil || reply.Extension == nil {
				t.Fatal(reply, err)
			}
		}
		rate := func(h *rig) orchestrator.ProtestsView {
			t.Helper()
			chains, err := h.Chains(t.Context())
			if err != nil || len(chains) != 1 {
				t.Fatal(chains, err)
			}
			return chains[0].Protests
		}
		protest("one")
		a.report("alpha/small", chain.OK, 39, 300*time.Millisecond)
		before := rate(r)
		if before.Rate < 20_000 || before.Requests < 38 {
			t.Fatalf("%+v", before)
		}
		time.Sleep(31 * time.Second)
		crashed := &rig{t: t, key: r.key, disk: disk.copy(), said: &said{}}
		protest("two")
		r.stop()

		r = start(t, disk, parsed(t, declared))
		after := rate(r)
		if after.Rate < before.Rate+20_000 || after.Requests < 38 || after.Answered != 0 {
			t.Errorf("after a stop %+v, before %+v and another protest", after, before)
		}
		if after := rate(start(t, crashed.disk, parsed(t, declared))); after.Rate < before.Rate-1000 || after.Rate > before.Rate+1000 || after.Requests < 38 {
			t.Errorf("after a crash %+v, before %+v", after, before)
		}
		r.stop()
		r = start(t, disk, parsed(t, strings.ReplaceAll(declared, "llm.chat", "llm.other")))
		want(t, "records of chains that the catalogue does not mean", disk.kept("hub-rates"), 0)
		r.stop()
		time.Sleep(30 * 24 * time.Hour)
		start(t, crashed.disk, parsed(t, declared))
		want(t, "records of rates that have faded", crashed.disk.kept("hub-rates"), 0)
	})
}

// TestOneDeviceDoesNotDrownTheAlarms: the same false claim a thousand times is
// one alarm and one line, and another device's stays to be seen.
func TestOneDeviceDoesNotDrownTheAlarms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, declared))
		claim := []wire.Held{{Slot: home, Mark: chain.Mark{Seq: 1 << 60, Body: chain.CIDOf([]byte("x")), Issued: 1}, Head: []byte("no head")}}
		quiet, loud := r.joined("quiet", "key:alpha"), r.joined("loud", "key:alpha")
		quiet.holds, loud.holds = claim, claim
		if _, err := quiet.visit(); err != nil {
			t.Fatal(err)
		}
		for range 1000 {
			time.Sleep(2 * time.Second)
			if _, err := loud.visit(); err != nil {
				t.Fatal(err)
			}
		}
		s, err := r.Status(t.Context())
		if err != nil || len(s.Alarms) != 2 || s.Alarms[0].Device != "quiet" || s.Alarms[0].Times != 1 || s.Alarms[1].Device != "loud" || s.Alarms[1].Times != 1000 {
			t.Errorf("alarms %+v, %v", s.Alarms, err)
		}
		if n := strings.Count(r.logs.String(), "without proof"); n != 2 {
			t.Errorf("%d lines in the log, want one a device", n)
		}
		time.Sleep(2 * time.Hour)
		if _, err := loud.visit(); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(r.logs.String(), "without proof"); n != 3 {
			t.Errorf("%d lines in the log after two hours, want another", n)
		}
	})
}

// TestConflictsOnDiskAreBounded: one invitation and one known device ID are
// enough to make conflicts without end, since a refused try costs no use.
func TestConflictsOnDiskAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := newDisk()
		r := start(t, disk, parsed(t, declared))
		victim := r.joined("victim", "key:alpha")
		i := r.invite(orchestrator.Invite{})
		for range 300 {
			d := r.device("stranger")
			d.id = victim.id
			if _, err := d.enrol(i); code(err) != spoke.CodeConflict {
				t.Fatal(err)
			}
		}
		s, err := r.Status(t.Context())
		if kept := disk.kept("hub-conflicts"); err != nil || len(s.Conflicts) >= 300 || kept != len(s.Conflicts) {
			t.Errorf("%d conflicts are shown and %d are on disk, %v", len(s.Conflicts), kept, err)
		}
	})
}
