package chain_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
)

func TestDefaultRules(t *testing.T) {
	d := chain.DefaultRules()
	if err := d.Validate(); err != nil {
		t.Error(err)
	}
	if got := (chain.Rules{}).WithDefaults(); !reflect.DeepEqual(got, d) {
		t.Errorf("%+v", got)
	}
	if got := (chain.Rules{Attempts: 3, CoolDown: chain.CoolDown{Max: 5}}).WithDefaults(); got.Attempts != 3 || got.CoolDown.Max != 5 || got.CoolDown.Base != 60_000 {
		t.Errorf("%+v", got)
	}
	// Every field has a default, but for the switches, which are off, and limits that are none.
	v := reflect.ValueOf(d)
	for i := range v.NumField() {
		if f, name := v.Field(i), v.Type().Field(i).Name; f.IsZero() && f.Kind() != reflect.Bool && name != "CallsPerMinute" && name != "Sought" {
			t.Errorf("%s has no default", name)
		}
	}
}

func TestRulesOutOfRangeAreRefused(t *testing.T) {
	year := chain.MillisOf(366 * 24 * time.Hour)
	for _, c := range []struct {
		name  string
		rules chain.Rules
		good  bool
	}{
		{"none", chain.Rules{}, true},
		{"a leap year between reports", chain.Rules{ReportInterval: year}, true},
		{"a millisecond more", chain.Rules{ReportInterval: year + 1}, false},
		{"more than a duration can hold", chain.Rules{Budgets: chain.Budgets{Max: 1 << 62}}, false},
		{"negative cool-down", chain.Rules{CoolDown: chain.CoolDown{Base: -1}}, false},
		{"one attempt", chain.Rules{Attempts: 1}, true},
		{"64 attempts", chain.Rules{Attempts: 64}, true},
		{"65 attempts", chain.Rules{Attempts: 65}, false},
		{"negative attempts", chain.Rules{Attempts: -1}, false},
		{"all sampled", chain.Rules{Sampling: 1e6}, true},
		{"more than all sampled", chain.Rules{Sampling: 1e6 + 1}, false},
		{"negative exploration", chain.Rules{Exploration: -1}, false},
		{"nine kinds in via", chain.Rules{Via: make([]chain.Kind, 9)}, false},
	} {
		if err := c.rules.Validate(); (err == nil) != c.good {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestOptionsOutOfRangeAreRefused(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*chain.Option)
		good   bool
	}{
		{"as it is", func(*chain.Option) {}, true},
		{"an unknown kind", func(o *chain.Option) { o.Kind = "quantum" }, true},
		{"a kind that is no name", func(o *chain.Option) { o.Kind = "a b" }, false},
		{"an id of 256 bytes", func(o *chain.Option) { o.ID = chain.OptionID(strings.Repeat("x", 256)) }, true},
		{"an id of 257 bytes", func(o *chain.Option) { o.ID = chain.OptionID(strings.Repeat("x", 257)) }, false},
		{"an id with a line break", func(o *chain.Option) { o.ID = "a\nb" }, false},
		{"an id with a soft hyphen", func(o *chain.Option) { o.ID = "a\u00adb" }, false},
		{"16 keys", func(o *chain.Option) { o.Keys = names(16) }, true},
		{"17 keys", func(o *chain.Option) { o.Keys = names(17) }, false},
		{"an empty key name", func(o *chain.Option) { o.Keys = []string{""} }, false},
		{"a long key name", func(o *chain.Option) { o.Keys = []string{strings.Repeat("k", 257)} }, false},
		{"a long endpoint", func(o *chain.Option) { o.Endpoint = strings.Repeat("e", 2049) }, false},
		{"64 tries", func(o *chain.Option) { o.Tries = 64 }, true},
		{"65 tries", func(o *chain.Option) { o.Tries = 65 }, false},
		{"negative latency", func(o *chain.Option) { o.Cost.Latency = -1 }, false},
		{"a price of 2^53", func(o *chain.Option) { o.Cost.InputPerMtok = 1 << 53 }, true},
		{"a price above it", func(o *chain.Option) { o.Cost.InputPerMtok = 1<<53 + 1 }, false},
		{"negative quality", func(o *chain.Option) { o.Cost.Quality = -1 }, false},
	} {
		o := chaintest.Options(t, "groq/llama")[0]
		c.change(&o)
		if err := o.Validate(); (err == nil) != c.good {
			t.Errorf("%s: %v", c.name, err)
		} else if err != nil && len(err.Error()) > 400 {
			t.Errorf("%s: error of %d bytes", c.name, len(err.Error()))
		}
	}
}

// Agents go into receipts and tokens, which take DIDs alone: an option with another one would
// be work that nobody could account for.
func TestAnOptionsAgentIsADID(t *testing.T) {
	o := chaintest.Options(t, "groq/llama agent=did:web:a.example")[0]
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
	for why, s := range chaintest.NoDIDs() {
		if o.Agent = s; o.Validate() == nil {
			t.Errorf("%s: %q passes", why, s)
		}
	}
}

func names(n int) []string {
	list := make([]string, n)
	for i := range list {
		list[i] = "k"
	}
	return list
}

func TestKinds(t *testing.T) {
	for text, want := range map[string]struct{ known, remote bool }{
		"local": {true, false}, "peer": {true, true}, "groq": {true, true}, "x kind=quantum": {false, true},
	} {
		o := chaintest.Options(t, text)[0]
		if o.Known() != want.known || o.Remote() != want.remote {
			t.Errorf("%s: known %v, remote %v", text, o.Known(), o.Remote())
		}
	}
}

func TestClasses(t *testing.T) {
	for _, c := range []chain.Class{chain.OK, chain.Cut, chain.Withdrawn} {
		if !c.Known() {
			t.Errorf("%s is unknown", c)
		}
	}
	if chain.Class("").Known() || chain.Class("OK").Known() {
		t.Error("an unknown class is known")
	}
}
