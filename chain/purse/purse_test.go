package purse

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/chain"
)

var (
	start = time.Date(2026, 3, 10, 8, 0, 0, 0, time.UTC)
	slot  = chain.Slot{Scope: chain.DefaultScope, Primitive: chain.LLMChat}
	later = chain.InstantOf(start.Add(time.Hour))
)

func block(id, account string, amount int64) Block {
	return Block{ID: id, Account: account, Slot: slot, Amount: amount, Until: later}
}

func TestReserveAndSettle(t *testing.T) {
	p := New()
	if _, ok := p.Reserve(slot, []Charge{{"a", 1}}, start); ok {
		t.Error("without a block")
	}
	p.Add(block("1", "a", 100))
	p.Add(block("1", "a", 900)) // the same again
	r, ok := p.Reserve(slot, []Charge{{"a", 80}}, start)
	if !ok || p.Free("a", slot, start) != 20 {
		t.Fatalf("%v, %d free", ok, p.Free("a", slot, start))
	}
	if _, ok := p.Reserve(slot, []Charge{{"a", 30}}, start); ok {
		t.Error("more than is left")
	}
	r.Settle([]int64{50})
	if free := p.Free("a", slot, start); free != 50 {
		t.Errorf("%d free", free)
	}
	p.Add(block("2", "a", 100))
	if r, ok = p.Reserve(slot, []Charge{{"a", 120}}, start); !ok {
		t.Fatal("over two blocks")
	}
	r.Settle([]int64{170}) // dearer than expected: spent is spent
	if got := fmt.Sprint(p.Usage(start)); got != "[{1 a 100 true} {2 a 120 true}]" {
		t.Errorf("%s", got)
	}
	if _, ok := p.Reserve(chain.Slot{Scope: slot.Scope, Primitive: "llm.t1"}, []Charge{{"a", 1}}, start); ok {
		t.Error("another slot's block")
	}
	if _, ok := p.Reserve(slot, []Charge{{"a", 0}}, start); ok {
		t.Error("what costs nothing needs a lease, too")
	}
}

func TestAllOrNothing(t *testing.T) {
	p := New()
	p.Add(block("1", "a", 100))
	p.Add(block("2", "b", 1))
	if _, ok := p.Reserve(slot, []Charge{{"a", 50}, {"b", 2}}, start); ok || p.Free("a", slot, start) != 100 {
		t.Errorf("%v, %d free", ok, p.Free("a", slot, start))
	}
}

func TestABlockEnds(t *testing.T) {
	p := New()
	p.Add(block("1", "a", 100))
	r, _ := p.Reserve(slot, []Charge{{"a", 10}}, start)
	if _, ok := p.Reserve(slot, []Charge{{"a", 1}}, later.Time()); ok {
		t.Error("it was used after its end")
	}
	if u := p.Usage(later.Time()); u[0].Done {
		t.Error("an attempt is under way")
	}
	r.Settle([]int64{7})
	u := p.Usage(later.Time())
	if !u[0].Done || u[0].Used != 7 {
		t.Errorf("%+v", u)
	}
	p.Acknowledged(u)
	if len(p.Usage(later.Time())) != 0 {
		t.Error("it is not forgotten")
	}
}

func TestLow(t *testing.T) {
	p := New()
	low := func(ahead, now time.Duration) bool {
		return p.Low("a", slot, 5, start.Add(ahead), start.Add(now))
	}
	if !low(0, 0) {
		t.Error("there is nothing")
	}
	p.Add(block("1", "a", 100))
	if low(0, 0) || !low(2*time.Hour, 0) {
		t.Error("a full block is enough while it lasts")
	}
	r, _ := p.Reserve(slot, []Charge{{"a", 80}}, start)
	if !low(0, 0) {
		t.Error("a fifth is left")
	}
	r.Settle([]int64{80})
	p.Refused("a", slot, chain.InstantOf(start.Add(time.Minute)))
	if low(0, 0) || !low(0, time.Minute) {
		t.Error("the hub said when")
	}
}

// A clock that was ahead by years must not put off for years what was refused then.
func TestAClockThatWasAheadByYears(t *testing.T) {
	p := New()
	ahead := start.AddDate(10, 0, 0)
	p.Refused("a", slot, chain.InstantOf(ahead.Add(15*time.Minute)))
	if p.Low("a", slot, 1, ahead, ahead) {
		t.Error("asked again at once")
	}
	if !p.Low("a", slot, 1, start, start) {
		t.Error("not asked for ten years")
	}
	b := block("1", "a", 100)
	b.Until = chain.InstantOf(ahead.Add(time.Hour))
	p.Add(b)
	if p.Free("a", slot, ahead) != 100 || p.Free("a", slot, start) != 0 || !p.Usage(start)[0].Done {
		t.Errorf("a block of then: %+v", p.Usage(start))
	}
}

func TestAfterARestart(t *testing.T) {
	for clean, want := range map[bool]int64{true: 60, false: 0} {
		p, next := New(), New()
		p.Add(block("1", "a", 100))
		r, _ := p.Reserve(slot, []Charge{{"a", 30}}, start)
		r.Settle([]int64{30})
		_, _ = p.Reserve(slot, []Charge{{"a", 10}}, start) // under way when it stops
		next.Restore(p.Kept(clean))
		if free := next.Free("a", slot, start); free != want {
			t.Errorf("clean %v: %d free, want %d", clean, free, want)
		}
	}
}

// TestNothingIsSpentTwice: with estimates that hold, use never exceeds what was
// granted, whatever is reserved, settled, kept and restored.
func TestNothingIsSpentTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, now := New(), start
		granted, spent := map[string]int64{}, map[string]int64{}
		type open struct {
			r       *Reservation
			charges []Charge
		}
		var under []open
		for i := range rapid.IntRange(1, 80).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(5*time.Minute)).Draw(t, "pause")))
			switch rapid.SampledFrom([]string{"add", "reserve", "reserve", "settle", "tell", "stop", "crash"}).Draw(t, "what") {
			case "add":
				b := block(fmt.Sprint(i), rapid.SampledFrom([]string{"a", "b"}).Draw(t, "account"), rapid.Int64Range(1, 50).Draw(t, "amount"))
				b.Until = chain.InstantOf(now.Add(time.Duration(rapid.Int64Range(0, int64(time.Hour)).Draw(t, "life"))))
				granted[b.Account] += b.Amount
				p.Add(b)
			case "reserve":
				charges := []Charge{{"a", rapid.Int64Range(0, 30).Draw(t, "a")}}
				if rapid.Bool().Draw(t, "both") {
					charges = append(charges, Charge{"b", 1})
				}
				if r, ok := p.Reserve(slot, charges, now); ok {
					under = append(under, open{r, charges})
				}
			case "settle":
				if len(under) > 0 {
					var actual []int64
					for _, c := range under[0].charges {
						n := rapid.Int64Range(0, c.Amount).Draw(t, "cost")
						actual = append(actual, n)
						spent[c.Account] += n
					}
					under[0].r.Settle(actual)
					under = under[1:]
				}
			case "tell":
				p.Acknowledged(p.Usage(now))
			case "stop", "crash":
				kept := p.Kept(rapid.Bool().Draw(t, "clean"))
				for _, o := range under { // they were sent, whatever became of the device
					for _, c := range o.charges {
						spent[c.Account] += c.Amount
					}
				}
				under, p = nil, New()
				p.Restore(kept)
			}
			for account, n := range spent {
				if n > granted[account] {
					t.Fatalf("%d of %d spent on %s", n, granted[account], account)
				}
			}
		}
	})
}
