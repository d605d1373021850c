package apps

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/chain"
)

var noon = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func digest(key chain.Secret) [sha256.Size]byte { return sha256.Sum256([]byte(key.Reveal())) }

func add(t testing.TB, b *Book, r Rule) (*App, chain.Secret) {
	t.Helper()
	key, err := b.Add(r, noon)
	if err != nil {
		t.Fatal(err)
	}
	return b.Find(digest(key)), key
}

func TestKeys(t *testing.T) {
	b := New()
	one, key := add(t, b, Rule{Name: "one"})
	two, _ := add(t, b, Rule{Name: "two"})
	if one == nil || two == nil || one.Name != "one" || two.Name != "two" {
		t.Fatal("a key finds another application")
	}
	if b.Find(digest("cw-app-guess")) != nil {
		t.Error("a guess is a key")
	}
	if _, err := b.Add(Rule{Name: "one"}, noon); !errors.Is(err, ErrExists) {
		t.Error(err)
	}
	kept, _, err := b.Kept()
	if err != nil || bytes.Contains(kept, []byte(key.Reveal())) {
		t.Errorf("what is kept has the key itself, or %v", err)
	}
	if err := b.Remove("one"); err != nil || b.Find(digest(key)) != nil {
		t.Errorf("the key holds after its application was removed: %v", err)
	}
	if err := b.Remove("one"); !errors.Is(err, ErrUnknown) {
		t.Error(err)
	}
	if list := b.List(noon); len(list) != 1 || list[0].Name != "two" || list[0].Created != chain.InstantOf(noon) {
		t.Errorf("%+v", list)
	}
}

func TestRulesNameEveryMistake(t *testing.T) {
	r := Rule{Name: "No Name", Scope: "nothing", Models: []string{"a[", ""}, Rate: -1, Budget: -1}
	err := r.Validate()
	for _, want := range []string{"name:", "scope:", `"a["`, `""`, "rate:", "budget:"} {
		if !errors.Is(err, ErrRule) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in %v", want, err)
		}
	}
	b := New()
	for i := range MaxApps {
		add(t, b, Rule{Name: fmt.Sprint("a", i)})
	}
	if _, err := b.Add(Rule{Name: "one-more"}, noon); !errors.Is(err, ErrRule) {
		t.Error(err)
	}
}

// So many requests a minute, and after that one whenever the next is due.
func TestRate(t *testing.T) {
	a, _ := add(t, New(), Rule{Name: "a", Rate: 6})
	now := noon
	for i := range 6 {
		if _, ok := a.Admit(now); !ok {
			t.Fatalf("request %d was refused", i)
		}
	}
	wait, ok := a.Admit(now)
	if ok || wait != 10*time.Second {
		t.Errorf("%v %v, want a wait of 10 s", wait, ok)
	}
	if _, ok := a.Admit(now.Add(9 * time.Second)); ok {
		t.Error("too early")
	}
	if _, ok := a.Admit(now.Add(10 * time.Second)); !ok {
		t.Error("refused when it was due")
	}
	if _, ok := a.Admit(now.Add(-time.Hour)); ok {
		t.Error("a clock that goes back gave requests away")
	}
	if _, ok := (*App)(nil).Admit(now); !ok {
		t.Error("the device's own key has a rate")
	}
}

func TestAllows(t *testing.T) {
	for _, c := range []struct {
		models []string
		names  []string
		want   bool
	}{
		{nil, []string{"x"}, true}, {[]string{"groq/*"}, []string{"groq/llama"}, true}, {[]string{"groq/*"}, []string{"groq/team/vision:7b", ""}, true},
		{[]string{"groq/*"}, []string{"groqx/llama", "llama"}, false}, {[]string{"llama-*"}, []string{"groq/llama-3", "llama-3"}, true},
		{[]string{"peer"}, []string{"peer", ""}, true}, {[]string{"did:web:a"}, []string{"x", "", "did:web:a"}, true}, {[]string{"*"}, []string{""}, false},
	} {
		a := &App{Rule: Rule{Models: c.models}}
		if a.Allows(c.names...) != c.want {
			t.Errorf("%v of %v", c.models, c.names)
		}
	}
	if !(*App)(nil).Allows("x") || (*App)(nil).Restricted() {
		t.Error("the device's own key is restricted")
	}
}

// What was spent and what is set aside never exceed the budget before an attempt,
// and a new month begins with nothing spent.
func TestBudget(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := &App{Rule: Rule{Budget: 1000}}
		type held struct{ amount int64 }
		var open []held
		now, spent, month := noon, int64(0), "2026-11"
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 48).Draw(t, "hours")) * time.Hour)
			if m := now.Format("2006-01"); m != month {
				month, spent = m, 0
			}
			reserved := int64(0)
			for _, h := range open {
				reserved += h.amount
			}
			if len(open) > 0 && rapid.Bool().Draw(t, "settle") {
				actual := rapid.Int64Range(0, open[0].amount).Draw(t, "actual")
				a.Settle(open[0].amount, actual, now)
				spent, open = spent+actual, open[1:]
				continue
			}
			amount := rapid.Int64Range(0, 600).Draw(t, "amount")
			ok := a.Reserve(amount, now)
			if want := spent+reserved+amount <= 1000; ok != want {
				t.Fatalf("reserve %d with %d spent and %d reserved: %v", amount, spent, reserved, ok)
			}
			if ok {
				open = append(open, held{amount})
			}
		}
	})
	var nobody *App
	if !nobody.Reserve(1<<60, noon) {
		t.Error("the device's own key has a budget")
	}
	nobody.Settle(1, 1, noon)
}

func TestUsage(t *testing.T) {
	b := New()
	a, _ := add(t, b, Rule{Name: "notes"})
	yesterday := noon.AddDate(0, 0, -1)
	b.Count(a, "alpha/small", Row{Requests: 1, Input: 10}, noon)
	b.Count(a, "alpha/small", Row{Requests: 1, Output: 5, Money: 7}, noon)
	b.Count(nil, "", Row{Requests: 1, Failed: 1}, noon)
	b.Count(a, "alpha/small", Row{Requests: 1}, yesterday)
	want := []Row{{"2026-11-30", "", "", 1, 1, 0, 0, 0}, {"2026-11-30", "notes", "alpha/small", 2, 0, 10, 5, 7}, {"2026-11-29", "notes", "alpha/small", 1, 0, 0, 0, 0}}
	if got := b.Usage(yesterday); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v\nwant %v", got, want)
	}
	if got := b.Usage(noon); len(got) != 2 {
		t.Errorf("%v", got)
	}
	for day := range maxRows + 5 {
		b.Count(nil, "", Row{Requests: 1}, noon.AddDate(0, 0, day))
	}
	if len(b.usage) > maxRows {
		t.Errorf("%d rows", len(b.usage))
	}
}

// A restart knows keys, rules, budgets and use; what was set aside counts as spent.
func TestKept(t *testing.T) {
	b := New()
	if _, changed, _ := b.Kept(); changed {
		t.Error("an empty book has something to keep")
	}
	a, key := add(t, b, Rule{Name: "notes", Scope: "workspace:home", Models: []string{"groq/*"}, Rate: 3, Budget: 100})
	a.Reserve(30, noon)
	a.Settle(30, 20, noon)
	a.Reserve(10, noon)
	b.Count(a, "groq/x", Row{Requests: 1}, noon)
	kept, changed, err := b.Kept()
	if err != nil || !changed {
		t.Fatal(changed, err)
	}
	if _, changed, _ := b.Kept(); changed {
		t.Error("nothing changed since")
	}
	if b.Dirty(); !b.changed {
		t.Error("a failed write is forgotten")
	}
	again, err := Restore(kept)
	if err != nil {
		t.Fatal(err)
	}
	list := again.List(noon)
	if again.Find(digest(key)) == nil || len(list) != 1 || list[0].Spent != 30 || fmt.Sprint(list[0].Rule) != fmt.Sprint(a.Rule) || len(again.Usage(noon)) != 1 {
		t.Errorf("%+v", list)
	}
	if again.Find(digest(key)).Reserve(71, noon) {
		t.Error("the restart gave the budget back")
	}
}

func FuzzRestore(f *testing.F) {
	b := New()
	_, _ = b.Add(Rule{Name: "a"}, noon)
	b.Count(nil, "m", Row{Requests: 1}, noon)
	kept, _, _ := b.Kept()
	f.Add(kept)
	f.Fuzz(func(t *testing.T, in []byte) {
		if b, err := Restore(in); err == nil {
			b.List(noon)
			b.Usage(time.Time{})
		}
	})
}

func TestWhatIsLeftOfABudget(t *testing.T) {
	b := New()
	key, err := b.Add(Rule{Name: "notes", Budget: 100}, noon)
	if err != nil {
		t.Fatal(err)
	}
	a := b.Find(digest(key))
	december := time.Date(2026, 12, 5, 1, 0, 0, 0, time.FixedZone("", 3600))
	for _, c := range []struct {
		name           string
		do             func()
		now            time.Time
		left, reserved int64
		anew           string
	}{
		{"a new month", func() {}, december, 100, 0, "2027-01-01T00:00:00Z"},
		{"set aside", func() { a.Reserve(60, december) }, december, 40, 60, "2027-01-01T00:00:00Z"},
		{"spent, and more than was thought", func() { a.Settle(60, 130, december) }, december, 0, 0, "2027-01-01T00:00:00Z"},
		{"a clock that goes back", func() {}, december.AddDate(0, -2, 0), 0, 0, "2027-01-01T00:00:00Z"},
		{"the month after", func() {}, december.AddDate(0, 1, 0), 100, 0, "2027-02-01T00:00:00Z"},
	} {
		c.do()
		if left, reserved, anew := a.Left(c.now); left != c.left || reserved != c.reserved || anew.Format(time.RFC3339) != c.anew {
			t.Errorf("%s: %d left, %d set aside, until %s", c.name, left, reserved, anew.Format(time.RFC3339))
		}
	}
}
