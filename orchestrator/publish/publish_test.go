package publish

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/orchestrator/resolve"
)

// offer prepares an offer for one slot and makes it.
func offer(p *Press, r resolve.Resolution, rules chain.Rules, input string, now time.Time) (Outcome, error) {
	o, err := Prepare(r, rules, input)
	if err != nil {
		return Outcome{}, err
	}
	return p.Offer(r.Slot, o, now)
}

// series is a store of the highest number in memory that holds the contract.
type series struct {
	highest uint64
	fail    error
}

func (m *series) Highest() uint64 { return m.highest }

func (m *series) Raise(to uint64) error {
	if to < m.highest {
		return errors.New("lower")
	}
	if m.fail == nil {
		m.highest = to
	}
	return m.fail
}

var (
	home  = chain.Slot{Scope: chain.DefaultScope, Primitive: chain.LLMChat}
	start = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)
)

func press(t interface{ Fatal(...any) }) (*Press, *series, chain.Trust) {
	key, err := chain.NewKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	m := &series{}
	return New(key, "mesh", m), m, chain.Trust{Mesh: "mesh", Orchestrator: key.PeerID()}
}

// world is what a resolution depends on here: seconds and reliability of two options.
type world struct{ a, b, p float64 }

func (w world) resolution(slot chain.Slot) resolve.Resolution {
	one := func(id chain.OptionID, seconds float64) resolve.Candidate {
		return resolve.Candidate{Option: chain.Option{ID: id, Kind: chain.Provider}, Estimates: resolve.Estimates{
			Latency: resolve.Estimate{Value: seconds, Weight: 9}, Reliability: resolve.Estimate{Value: w.p, Weight: 9}}}
	}
	return resolve.Order(resolve.Input{Slot: slot, Default: []chain.OptionID{"a/m", "b/m"}, Weights: resolve.Weights{Second: 1000, Failure: 5000, Exhausted: 20000},
		Candidates: []resolve.Candidate{one("a/m", w.a), one("b/m", w.b)}})
}

// TestWhenToPublish holds the rules: an input at once, estimates once a minute and
// only where it is worth it.
func TestWhenToPublish(t *testing.T) {
	base := world{1, 2, 0.95}
	for _, c := range []struct {
		name  string
		after time.Duration
		world world
		input string
		want  Reason // "" for none
		again bool
	}{
		{"the same again", 0, base, "i", "", false},
		{"an estimate within its step", 0, world{1.04, 2, 0.95}, "i", "", false},
		{"one step", 0, world{1.1, 2, 0.95}, "i", "", false},
		{"two steps", 0, world{1.21, 2, 0.95}, "i", Estimate, false},
		{"two steps down", 0, world{0.82, 2, 0.95}, "i", Estimate, false},
		{"a reliability by its odds, two steps", 0, world{1, 2, 0.9415}, "i", Estimate, false},
		{"another order, worth less than 0.3 %", 0, world{2, 1.999, 0.95}, "i", Estimate, false}, // by the steps of a
		{"another order, worth it", 0, world{3, 2, 0.95}, "i", Order, false},
		{"an input that changes nothing", 0, base, "j", "", false},
		{"an input that changes an estimate by a step", 0, world{1.1, 2, 0.95}, "j", Input, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, _, _ := press(t)
			out, err := offer(p, base.resolution(home), chain.Rules{}, "i", start)
			if err != nil || out.Reason != First {
				t.Fatalf("%+v %v", out, err)
			}
			was, _ := p.Edition(home)
			out, err = offer(p, c.world.resolution(home), chain.Rules{}, c.input, start.Add(c.after))
			if err != nil || out.Published != (c.want != "") || out.Reason != c.want || out.Again.IsZero() == c.again {
				t.Errorf("%+v %v, want %q", out, err, c.want)
			}
			if is, _ := p.Edition(home); out.Published && (is.Seq <= was.Seq || is.Previous != was.Body) || !out.Published && is.Seq != was.Seq {
				t.Errorf("edition %+v after %+v", is, was)
			}
		})
	}
}

// TestOncePerMinute: the second change by estimates of a chain waits, an input does not.
func TestOncePerMinute(t *testing.T) {
	p, _, _ := press(t)
	offer := func(w world, input string, at time.Duration) Outcome {
		t.Helper()
		out, err := offer(p, w.resolution(home), chain.Rules{}, input, start.Add(at))
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	offer(world{1, 2, 0.95}, "i", 0)
	if out := offer(world{3, 2, 0.95}, "i", time.Second); out.Reason != Order {
		t.Errorf("the first change by estimates: %+v", out)
	}
	if out := offer(world{1, 2, 0.95}, "i", 30*time.Second); out.Published || !out.Again.Equal(start.Add(61*time.Second)) {
		t.Errorf("the second after 29 s: %+v", out)
	}
	if out := offer(world{1, 2, 0.95}, "j", 40*time.Second); out.Reason != Input {
		t.Errorf("an input in between: %+v", out)
	}
	if out := offer(world{3, 2, 0.95}, "j", 50*time.Second); out.Published {
		t.Errorf("an input does not reset the minute: %+v", out)
	}
	if out := offer(world{3, 2, 0.95}, "j", 61*time.Second); out.Reason != Order {
		t.Errorf("after the minute: %+v", out)
	}
}

// TestSequenceIsDurableFirst: a number that could not be kept is never signed.
func TestSequenceIsDurableFirst(t *testing.T) {
	p, m, _ := press(t)
	m.fail = errors.New("disk full")
	if _, err := offer(p, world{1, 2, 0.95}.resolution(home), chain.Rules{}, "i", start); err == nil {
		t.Fatal("published without a mark")
	}
	if _, _, err := p.Head(home, start); !errors.Is(err, ErrNoChain) {
		t.Errorf("signed a head: %v", err)
	}
}

// An estimate that moved is published in the order that stands, unless another one
// saves something: devices have no reason to be stirred up.
func TestTheOrderThatStandsIsKept(t *testing.T) {
	p, _, _ := press(t)
	order := func() (ids []chain.OptionID) {
		e, _ := p.Edition(home)
		body, _ := p.Content(e.Body)
		for _, o := range body.Options {
			ids = append(ids, o.ID)
		}
		return ids
	}
	now := start
	for _, c := range []struct {
		world  world
		reason Reason
		first  chain.OptionID
	}{
		{world{1, 1.1, 0.95}, First, "a/m"},
		{world{1.301, 1.3, 0.95}, Estimate, "a/m"}, // b is better by less than 0.3 %
		{world{1.301, 1.2, 0.95}, Order, "b/m"},
	} {
		out, err := offer(p, c.world.resolution(home), chain.Rules{}, "i", now)
		if err != nil || out.Reason != c.reason || order()[0] != c.first {
			t.Errorf("%v: %+v, %v, order %v; want %s, %s first", c.world, out, err, order(), c.reason, c.first)
		}
		now = now.Add(2 * time.Minute)
	}
}

// TestSharedBodies: scopes that resolve to the same share one body, and it goes
// with the last of them.
func TestSharedBodies(t *testing.T) {
	p, _, _ := press(t)
	slots := make([]chain.Slot, 100)
	for i := range slots {
		slots[i] = chain.Slot{Scope: chain.ScopeID(fmt.Sprintf("workspace:w%d", i)), Primitive: chain.LLMChat}
		if _, err := offer(p, world{1, 2, 0.95}.resolution(slots[i]), chain.Rules{}, "i", start); err != nil {
			t.Fatal(err)
		}
	}
	if editions, bodies := p.Counts(); editions != 100 || bodies != 1 {
		t.Errorf("%d editions, %d bodies", editions, bodies)
	}
	for _, s := range slots {
		if !p.Withdraw(s) || p.Withdraw(s) {
			t.Error("a slot is withdrawn once")
		}
	}
	if editions, bodies := p.Counts(); editions != 0 || bodies != 0 {
		t.Errorf("%d editions, %d bodies are left", editions, bodies)
	}
}

// TestNumbersNeverGoBack: whatever is offered, withdrawn, restarted or put back to
// an older copy of the marks, a device that follows by the rules of its marks
// accepts every head it is given, as long as it shows what it holds.
func TestNumbersNeverGoBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, m, trust := press(t)
		now := start
		backup := uint64(0)
		slots := []chain.Slot{home, {Scope: "workspace:lab", Primitive: chain.LLMChat}, {Scope: "workspace:barn", Primitive: chain.LLMChat}}
		marks, heads := map[chain.Slot]chain.Mark{}, map[chain.Slot][]byte{}
		one := func(t *rapid.T) chain.Slot { return rapid.SampledFrom(slots).Draw(t, "slot") }
		t.Repeat(map[string]func(*rapid.T){
			"offer": func(t *rapid.T) {
				w := world{rapid.SampledFrom([]float64{0.5, 1, 3}).Draw(t, "a"), rapid.SampledFrom([]float64{0.7, 2}).Draw(t, "b"), 0.95}
				if _, err := offer(p, w.resolution(one(t)), chain.Rules{}, rapid.SampledFrom([]string{"i", "j"}).Draw(t, "input"), now); err != nil {
					t.Fatal(err)
				}
			},
			"withdraw": func(t *rapid.T) { p.Withdraw(one(t)) },
			"wait": func(t *rapid.T) {
				now = now.Add(time.Duration(rapid.IntRange(0, 120_000).Draw(t, "ms")) * time.Millisecond)
			},
			"clock back": func(t *rapid.T) { now = now.Add(-time.Duration(rapid.IntRange(0, 50).Draw(t, "s")) * time.Second) },
			"restart":    func(*rapid.T) { p = New(p.key, p.mesh, m) },
			"back up":    func(*rapid.T) { backup = m.highest },
			"put back": func(*rapid.T) {
				m.highest = backup
				p = New(p.key, p.mesh, m)
			},
			"visit": func(t *rapid.T) {
				slot := one(t)
				if heads[slot] != nil && p.Behind(slot, marks[slot]) {
					if _, err := p.Learn(slot, marks[slot], heads[slot], now); err != nil {
						t.Fatal(err)
					}
				}
				h, body, err := p.Head(slot, now)
				if errors.Is(err, ErrNoChain) {
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				at := now
				if at.Before(marks[slot].Issued.Time()) {
					at = marks[slot].Issued.Time() // the device's clock did not go back
				}
				c, err := trust.Verify(slot, h, body, marks[slot], at)
				if err != nil {
					t.Fatalf("the device refuses: %v", err)
				}
				marks[slot], heads[slot] = c.Mark(), h
			},
		})
	})
}

// TestPublishedTogether: slots that change alike at one time share a number, and the
// memory of it; one that went another way in between gets a higher one.
func TestPublishedTogether(t *testing.T) {
	p, m, _ := press(t)
	slot := func(i int) chain.Slot {
		return chain.Slot{Scope: chain.ScopeID(fmt.Sprintf("workspace:w%d", i)), Primitive: chain.LLMChat}
	}
	offer := func(i int, w world, input string, at time.Time) uint64 {
		t.Helper()
		if _, err := offer(p, w.resolution(slot(i)), chain.Rules{}, input, at); err != nil {
			t.Fatal(err)
		}
		e, _ := p.Edition(slot(i))
		return e.Seq
	}
	first := offer(0, world{1, 2, 0.95}, "i", start)
	for i := range 100 {
		if seq := offer(i, world{1, 2, 0.95}, "i", start); seq != first {
			t.Fatalf("slot %d has number %d, not %d", i, seq, first)
		}
	}
	raised := m.highest
	other := offer(7, world{5, 2, 0.95}, "j", start)
	back := offer(7, world{1, 2, 0.95}, "i", start)
	again := offer(7, world{5, 2, 0.95}, "j", start)
	if !(first < other && other < back && back < again) {
		t.Errorf("numbers %d, %d, %d, %d", first, other, back, again)
	}
	gone := offer(300, world{5, 2, 0.95}, "j", start)
	p.Withdraw(slot(300))
	if seq := offer(300, world{1, 2, 0.95}, "i", start); seq <= gone {
		t.Errorf("after it was withdrawn: %d, not above %d", seq, gone)
	}
	if late := offer(200, world{1, 2, 0.95}, "i", start.Add(time.Minute)); late <= again {
		t.Errorf("a minute later: %d", late)
	}
	if m.highest > raised+2*ahead {
		t.Errorf("every number was made durable by itself: %d", m.highest-raised)
	}
}

// TestEvidence: only our own signature over the very claim counts.
func TestEvidence(t *testing.T) {
	p, m, _ := press(t)
	if _, err := offer(p, world{1, 2, 0.95}.resolution(home), chain.Rules{}, "i", start); err != nil {
		t.Fatal(err)
	}
	e, _ := p.Edition(home)
	before, highest := chain.Mark{Seq: e.Seq, Body: e.Body, Issued: e.Issued}, m.highest
	sign := func(key chain.Key, h chain.Head) []byte {
		payload, _ := chain.Marshal(h)
		b, err := key.Seal(chain.DomainChain, payload)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	other, _ := chain.NewKey(nil)
	good := chain.Head{Mesh: "mesh", Scope: home.Scope, Primitive: home.Primitive, Seq: before.Seq + 100_000, Body: before.Body, Issued: before.Issued + 5, RefreshAfter: before.Issued + 6, Expires: before.Issued + 7}
	claim := chain.Mark{Seq: good.Seq, Body: good.Body, Issued: good.Issued}
	for name, head := range map[string][]byte{
		"nothing":        nil,
		"another key":    sign(other, good),
		"another mesh":   sign(p.key, func(h chain.Head) chain.Head { h.Mesh = "other"; return h }(good)),
		"another scope":  sign(p.key, func(h chain.Head) chain.Head { h.Scope = "workspace:lab"; return h }(good)),
		"another number": sign(p.key, func(h chain.Head) chain.Head { h.Seq++; return h }(good)),
		"no body":        sign(p.key, func(h chain.Head) chain.Head { h.Body = ""; return h }(good)),
	} {
		if _, err := p.Learn(home, claim, head, start); !errors.Is(err, ErrEvidence) {
			t.Errorf("%s: %v", name, err)
		}
		if is, _ := p.Edition(home); is != e || m.highest != highest {
			t.Fatalf("%s moved the sequence", name)
		}
	}
	if changed, err := p.Learn(home, claim, sign(p.key, good), start); err != nil || !changed {
		t.Errorf("our own head: %v %v", changed, err)
	}
	if e, _ := p.Edition(home); e.Seq != good.Seq || m.highest < good.Seq {
		t.Errorf("edition %+v, highest %d", e, m.highest)
	}
}

func BenchmarkHead(b *testing.B) {
	p, _, _ := press(b)
	if _, err := offer(p, world{1, 2, 0.95}.resolution(home), chain.Rules{}, "i", start); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, _, err := p.Head(home, start); err != nil {
			b.Fatal(err)
		}
	}
}

// TestAClockThatWasAheadByYears: what was published then does not keep estimates
// from the chain for years.
func TestAClockThatWasAheadByYears(t *testing.T) {
	p, _, _ := press(t)
	offer := func(w world, at time.Time) Outcome {
		t.Helper()
		out, err := offer(p, w.resolution(home), chain.Rules{}, "i", at)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	offer(world{1, 2, 0.95}, start)
	offer(world{3, 2, 0.95}, start.AddDate(10, 0, 0))
	if out := offer(world{1, 2, 0.95}, start.Add(time.Hour)); out.Reason != Order {
		t.Errorf("back in time: %+v, again at %s", out, out.Again)
	}
	if due := p.Due(home, start.Add(time.Hour)); !due.Equal(start.Add(time.Hour + time.Minute)) {
		t.Errorf("the next is due at %s", due)
	}
}

// TestWhatIsSoughtIsPublished: that more samples are sought of an option is told ten minutes
// after the last change at the earliest; that fewer are, with the next change of another kind.
func TestWhatIsSoughtIsPublished(t *testing.T) {
	p, _, _ := press(t)
	now := start
	say := func(sought []chain.Sought, rules chain.Rules) Outcome {
		t.Helper()
		r := world{1, 2, 0.95}.resolution(home)
		r.Sought = sought
		out, err := offer(p, r, rules, "i", now)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	want := func(reason Reason, seeks int, out Outcome) {
		t.Helper()
		e, _ := p.Edition(home)
		body, _ := p.Content(e.Body)
		if out.Reason != reason || out.Published != (reason != "") || len(body.Rules.Sought) != seeks {
			t.Errorf("%+v, and %d are sought; want %q and %d", out, len(body.Rules.Sought), reason, seeks)
		}
	}
	b := []chain.Sought{{Option: "b/m", Daily: 100}}
	want(First, 0, say(nil, chain.Rules{}))
	now = now.Add(9 * time.Minute)
	want("", 0, say(b, chain.Rules{}))
	now = now.Add(time.Minute)
	want(Trend, 1, say(b, chain.Rules{}))
	now = now.Add(time.Hour)
	want("", 1, say(nil, chain.Rules{}))
	want("", 1, say(b, chain.Rules{}))

	now = now.AddDate(-20, 0, 0) // the clock was ahead
	want(Trend, 2, say(append(b, chain.Sought{Option: "c/m", Daily: 100}), chain.Rules{}))
}
