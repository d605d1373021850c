package chain_test

import (
	"reflect"
	"testing"

	"github.com/chordwheel/chordwheel/chain"
)

func TestQualifiers(t *testing.T) {
	const home chain.ScopeID = "workspace:home"
	for _, c := range []struct {
		q    chain.Qualifier
		want chain.ScopeID
	}{
		{chain.Qualifier{}, home},
		{chain.Qualifier{Stage: "extract"}, "workspace:home;stage=extract"},
		{chain.Qualifier{Instance: "eu-1", Stage: "extract"}, "workspace:home;stage=extract;instance=eu-1"},
		{chain.Qualifier{Stage: "a", Consumer: "b", Instance: "c"}, "workspace:home;stage=a;consumer=b;instance=c"},
		{chain.Qualifier{Stage: "no;way", Consumer: "b"}, "workspace:home;consumer=b"},
	} {
		got := home.With(c.q)
		if got != c.want || got.Base() != home {
			t.Errorf("%+v: %s of %s, want %s", c.q, got, got.Base(), c.want)
		}
		if _, err := chain.ParseScope(string(got)); err != nil {
			t.Error(err)
		}
		if q, ok := got.Qualifier(); !ok || home.With(q) != got {
			t.Errorf("%s: %+v %v", got, q, ok)
		}
	}
	for _, s := range []chain.ScopeID{"workspace:home;", "workspace:home;stage=", "workspace:home;consumer=b;stage=a", "workspace:home;stage=a;stage=b", "workspace:home;other=x"} {
		if q, ok := s.Qualifier(); ok {
			t.Errorf("%s is a qualified scope: %+v", s, q)
		}
	}
}

func TestADeviceLooksFromTheMostSpecificChain(t *testing.T) {
	q := chain.Qualifier{Stage: "s", Consumer: "c", Instance: "i"}
	var got []chain.ScopeID
	for _, w := range q.Wider() {
		got = append(got, chain.ScopeID("workspace:w").With(w))
	}
	want := []chain.ScopeID{"workspace:w;stage=s;consumer=c;instance=i", "workspace:w;consumer=c;instance=i", "workspace:w;stage=s;instance=i",
		"workspace:w;instance=i", "workspace:w;stage=s;consumer=c", "workspace:w;consumer=c", "workspace:w;stage=s", "workspace:w"}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%v", got)
	}
	if got := (chain.Qualifier{Stage: "s", Consumer: "a;b"}).Wider(); len(got) != 2 {
		t.Errorf("%+v", got)
	}
}

// What is read as a qualified scope is written back as it was, and its base has
// no qualifier.
func FuzzQualifier(f *testing.F) {
	f.Add("workspace:home;stage=extract;instance=eu-1")
	f.Add("workspace:home;consumer=;stage=x")
	f.Fuzz(func(t *testing.T, s string) {
		scope := chain.ScopeID(s)
		q, ok := scope.Qualifier()
		if base := scope.Base(); base.Base() != base || ok && base.With(q) != scope {
			t.Errorf("%q: base %q, %+v", s, base, q)
		}
		for _, wider := range q.Wider() {
			if got := scope.Base().With(wider); got.Base() != scope.Base() {
				t.Errorf("%q: %q", s, got)
			}
		}
	})
}
