package quota

import (
	"fmt"
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/chain"
)

var (
	start = time.Date(2026, 3, 10, 8, 0, 0, 0, time.UTC)
	home  = chain.Slot{Scope: chain.DefaultScope, Primitive: chain.LLMChat}
	money = Ceiling{Account: "key alpha usd_per_month", Limit: 1_000_000}
	calls = Ceiling{Account: "key alpha calls_per_day", Limit: 1000, Calls: true}
	terms = Terms{Interval: 15 * time.Minute}
)

func ask(device string, p chain.Primitive, least int64, holds ...string) Ask {
	q := Ask{Device: chain.PeerID(device), Slot: chain.Slot{Scope: home.Scope, Primitive: p}, Least: least, Known: 10, Holds: map[string]bool{}}
	for _, id := range holds {
		q.Holds[id] = true
	}
	return q
}

func TestFairShare(t *testing.T) {
	inf := math.Inf(1)
	for _, c := range []struct {
		capacity float64
		claims   []Claim
		want     string
	}{
		{100, []Claim{{1, inf}}, "[100]"},
		{100, []Claim{{1, inf}, {1, inf}}, "[50 50]"},
		{100, []Claim{{3, inf}, {1, inf}}, "[75 25]"},
		{100, []Claim{{1, 10}, {1, inf}}, "[10 90]"},
		{100, []Claim{{1, 80}, {1, 30}, {1, 20}}, "[50 30 20]"},
		{100, []Claim{{1, 10}, {1, 20}}, "[10 20]"},
		{100, []Claim{{1, 60}, {4, 30}}, "[60 30]"},
		{0, []Claim{{1, inf}}, "[0]"},
		{5, nil, "[]"},
	} {
		if got := fmt.Sprint(FairShare(c.capacity, c.claims)); got != c.want {
			t.Errorf("%v of %v: %s, want %s", c.claims, c.capacity, got, c.want)
		}
	}
}

func TestPeriodsAreUTC(t *testing.T) {
	now := time.Date(2026, 12, 31, 23, 30, 0, 0, time.FixedZone("west", -5*3600)) // 2027 in UTC
	for _, c := range []struct {
		ceiling  Ceiling
		from, to string
	}{
		{money, "2027-01-01", "2027-02-01"},
		{calls, "2027-01-01", "2027-01-02"},
	} {
		from, to := c.ceiling.Period(now)
		if f, u := from.Format(time.DateOnly), to.Format(time.DateOnly); f != c.from || u != c.to {
			t.Errorf("%s: %s to %s", c.ceiling.Account, f, u)
		}
	}
}

func TestBlocks(t *testing.T) {
	b := New()
	first := b.Grant(&money, ask("a", chain.LLMChat, 10), terms, start)
	if first.Amount != 250_000 || !first.Until.Equal(start.Add(30*time.Minute)) {
		t.Errorf("the first of one device: %+v", first)
	}
	if again := b.Grant(&money, ask("a", chain.LLMChat, 10), terms, start); again.ID != first.ID || again.Fresh {
		t.Errorf("what never arrived is given again: %+v", again)
	}
	second := b.Grant(&money, ask("b", chain.LLMChat, 10), terms, start)
	if second.Amount != 750_000/8 {
		t.Errorf("of two devices: %+v", second)
	}
	if s := b.State(&money, 1, start); s.Spent != 0 || s.Leased != first.Amount+second.Amount || s.Breached {
		t.Errorf("%+v", s)
	}
	b.Settle(&money, "a", first.ID, 100, false, start)
	if b.Settle(&money, "b", first.ID, 900, true, start) {
		t.Error("another device's block was settled")
	}
	if s := b.State(&money, 1, start); s.Spent != 100 || s.Leased != first.Amount-100+second.Amount {
		t.Errorf("until it is done it counts whole: %+v", s)
	}
	b.Settle(&money, "a", first.ID, 70, true, start) // an older total, late
	if s := b.State(&money, 1, start); s.Spent != 100 || s.Leased != second.Amount {
		t.Errorf("what is unused returns: %+v", s)
	}
	if b.Settle(&money, "a", first.ID, 500, true, start) {
		t.Error("settled twice")
	}
	late := start.Add(time.Hour)
	if s := b.State(&money, 1, late); s.Spent != 100+second.Amount {
		t.Errorf("a block of a silent device counts as spent: %+v", s)
	}
	april := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
	if s := b.State(&money, 1, april); s.Spent+s.Leased != 0 {
		t.Errorf("a new period: %+v", s)
	}
	if s := b.State(&money, 1, start); s.From.Month() != time.April {
		t.Errorf("a clock that was set back brought a period back: %+v", s)
	}
	end := b.Grant(&money, ask("a", chain.LLMChat, 10), terms, april.Add(30*24*time.Hour-time.Minute))
	if !end.Until.Equal(april.AddDate(0, 1, 0)) {
		t.Errorf("a block outlives its period: %+v", end)
	}
}

func TestOneRequestAtLeast(t *testing.T) {
	b := New()
	small := Ceiling{Account: "a", Limit: 100}
	if g := b.Grant(&small, ask("a", chain.LLMChat, 60), terms, start); g.Amount != 60 {
		t.Errorf("%+v", g)
	}
	if g := b.Grant(&small, ask("b", chain.LLMChat, 60), terms, start); g.Amount != 0 || !g.Until.After(start) {
		t.Errorf("more than remains: %+v", g)
	}
	if g := b.Grant(&money, ask("liar", chain.LLMChat, 1<<40), terms, start); g.Amount != 250_000 {
		t.Errorf("a device that wants all: %+v", g)
	}
}

func TestPrimitivesShare(t *testing.T) {
	b := New()
	with := Terms{Interval: terms.Interval, Shares: map[chain.Primitive]float64{chain.LLMChat: 3, "llm.t1": 1}}
	now, got := start, map[chain.Primitive]int64{}
	for range 400 {
		for _, p := range []chain.Primitive{chain.LLMChat, "llm.t1"} {
			g := b.Grant(&calls, ask("a", p, 1), with, now)
			if g.ID != "" {
				b.Settle(&calls, "a", g.ID, g.Amount, true, now)
				got[p] += g.Amount
			}
		}
	}
	if got[chain.LLMChat] < 740 || got["llm.t1"] < 240 || got[chain.LLMChat]+got["llm.t1"] > 1000 {
		t.Errorf("%v, want 3 to 1 of 1000", got)
	}
	// Alone, one gets all.
	b, got[chain.LLMChat] = New(), 0
	for range 400 {
		if g := b.Grant(&calls, ask("a", chain.LLMChat, 1), with, now); g.ID != "" {
			b.Settle(&calls, "a", g.ID, g.Amount, true, now)
			got[chain.LLMChat] += g.Amount
		}
	}
	if got[chain.LLMChat] < 990 {
		t.Errorf("alone: %v", got)
	}
}

func TestMultiplierMovesOnceAnHour(t *testing.T) {
	b, moved := New(), 0
	next := func(mu, used, limit, elapsed float64) float64 { moved++; return mu + .1 }
	b.Grant(&money, ask("a", chain.LLMChat, 1), terms, start)
	for i := range 130 {
		b.Adjust(&money, next, start.Add(time.Duration(i)*time.Minute))
	}
	if s := b.State(&money, 1, start); moved != 3 || math.Abs(s.Mu-.3) > 1e-6 {
		t.Errorf("%d times, %+v", moved, s)
	}
}

// restarted is b as it comes back from what was kept of it.
func restarted(b *Book, account string) *Book {
	a := b.accounts[account]
	next := New()
	if a == nil {
		return next
	}
	var all []Block
	for _, x := range a.blocks {
		all = append(all, x)
	}
	for key, v := range b.Kept(account, all...) {
		if key == account {
			next.Restore(key, *v.(*Account))
		}
	}
	for _, v := range b.Kept(account, all...) {
		if x, ok := v.(Block); ok {
			next.RestoreBlock(x)
		}
	}
	return next
}

// check holds the running sums of an account to what they stand for.
func (a *Account) check(t *rapid.T, now time.Time) {
	out, had := int64(0), map[chain.Primitive]int64{}
	for p, n := range a.Spent {
		out, had[p] = out+n, had[p]+n
	}
	keys := map[string]bool{}
	for id, x := range a.blocks {
		out, had[x.Slot.Primitive] = out+x.committed(), had[x.Slot.Primitive]+x.committed()
		if keys[x.Key()] || x.ID != id || x.Place >= maxPlaces {
			t.Fatalf("two blocks in one place: %+v", x)
		}
		keys[x.Key()] = true
	}
	for p, n := range a.had {
		if had[p] != n {
			t.Fatalf("%s had %d, counted as %d", p, had[p], n)
		}
	}
	if out != a.out {
		t.Fatalf("%d given out, counted as %d", out, a.out)
	}
}

// TestUndo takes back what could not be kept.
func TestUndo(t *testing.T) {
	b := New()
	before := b.Grant(&money, ask("a", chain.LLMChat, 10), terms, start)
	b.Settle(&money, "a", before.ID, 100, false, start)
	state := fmt.Sprint(b.State(&money, 1, start))
	marks := []Mark{b.Mark(money.Account, before.ID)}
	b.Settle(&money, "a", before.ID, 500, true, start)
	m := b.Mark(money.Account, "")
	g := b.Grant(&money, ask("b", chain.LLMChat, 10), terms, start)
	if !g.Fresh {
		t.Fatal("it is not new")
	}
	marks = append(marks, m.Made(g.ID))
	for i := len(marks) - 1; i >= 0; i-- {
		b.Undo(marks[i])
	}
	if got := fmt.Sprint(b.State(&money, 1, start)); got != state {
		t.Errorf("%s, want %s", got, state)
	}
}

// device is one that keeps to the rules, as far as the hub can tell.
type device struct {
	name   string
	blocks map[string]*held
	least  int64
}

type held struct {
	Grant
	used int64
}

// TestCeilingsHold: whatever devices do, crash or forget, whatever gets lost on the
// way and whenever the hub restarts, what is really spent in a period never exceeds
// the ceiling by more than one block's last request for each device.
func TestCeilingsHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := Ceiling{Account: "x", Limit: rapid.Int64Range(1, 5000).Draw(t, "limit"), Calls: rapid.Bool().Draw(t, "calls")}
		b, now := New(), time.Date(2026, 3, 31, 20, 0, 0, 0, time.UTC)
		spent := map[time.Time]int64{} // by the period of the block
		var devices []*device
		for i := range rapid.IntRange(1, 6).Draw(t, "devices") {
			devices = append(devices, &device{fmt.Sprint(i), map[string]*held{}, rapid.Int64Range(1, 60).Draw(t, "request")})
		}
		for range rapid.IntRange(1, 150).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(40*time.Minute)).Draw(t, "pause")))
			d := devices[rapid.IntRange(0, len(devices)-1).Draw(t, "device")]
			switch rapid.SampledFrom([]string{"ask", "ask", "lost", "use", "use", "use", "use", "report", "done", "crash", "restart"}).Draw(t, "what") {
			case "ask", "lost":
				q := ask(d.name, rapid.SampledFrom([]chain.Primitive{"llm.chat", "llm.t1"}).Draw(t, "primitive"), d.least)
				for id := range d.blocks {
					q.Holds[id] = true
				}
				g := b.Grant(&c, q, terms, now)
				if _, end := c.Period(now); g.ID != "" && g.Until.After(end) {
					t.Fatalf("a block outlives its period: %+v", g)
				}
				if g.ID != "" && rapid.Bool().Draw(t, "arrives") {
					d.blocks[g.ID] = &held{Grant: g}
				}
			case "use":
				for _, h := range d.blocks {
					if now.Before(h.Until) && h.used+d.least <= h.Amount {
						h.used += d.least
						from, _ := c.Period(now)
						spent[from] += d.least
						break
					}
				}
			case "report", "done":
				done := rapid.Bool().Draw(t, "done")
				for id, h := range d.blocks {
					b.Settle(&c, chain.PeerID(d.name), id, h.used, done, now)
					if done {
						delete(d.blocks, id)
					}
				}
			case "crash": // it lost count: all of a block is gone
				for id, h := range d.blocks {
					b.Settle(&c, chain.PeerID(d.name), id, h.Amount, true, now)
				}
				d.blocks = map[string]*held{}
			case "restart":
				b = restarted(b, c.Account)
			}
			if a := b.accounts[c.Account]; a != nil {
				a.check(t, now)
			}
			for from, n := range spent {
				if n > c.Limit {
					t.Fatalf("%d of %d spent in the period of %s", n, c.Limit, from)
				}
			}
		}
	})
}

// A clock that ran ahead by years and came back must not leave a ceiling in a
// period that ends years from now; nor give back what was spent since.
func TestAClockThatWasAheadByYears(t *testing.T) {
	for _, c := range []Ceiling{money, calls} {
		b := New()
		b.Grant(&c, ask("a", chain.LLMChat, 10), terms, start)
		ahead := start.AddDate(10, 0, 0)
		g := b.Grant(&c, ask("a", chain.LLMChat, 10), terms, ahead)
		b.Settle(&c, "a", g.ID, g.Amount, true, ahead)
		silent := b.Grant(&c, ask("b", chain.LLMChat, 10), terms, ahead)
		s := b.State(&c, 1, start)
		if want, _ := c.Period(start); !s.From.Equal(want) {
			t.Errorf("%s: back in time the period is that of %s", c.Account, s.From)
		}
		if s.Spent+s.Leased < g.Amount+silent.Amount {
			t.Errorf("%s: what was spent and given out meanwhile came back: %+v", c.Account, s)
		}
		_, next := c.Period(start)
		if s := b.State(&c, 1, next); s.Spent+s.Leased != 0 {
			t.Errorf("%s: the next period does not begin: %+v", c.Account, s)
		}
		for i := range 3 { // who asked in the future is not active for ten years
			b.Grant(&c, ask(fmt.Sprint("ghost", i), chain.LLMChat, 1), terms, next.AddDate(10, 0, 0))
		}
		later := next.Add(48 * time.Hour)
		b.Grant(&c, ask("a", chain.LLMChat, 1), terms, later)
		if n := len(b.accounts[c.Account].asked); n != 1 {
			t.Errorf("%s: %d devices count as asking", c.Account, n)
		}
	}
}
