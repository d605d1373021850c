package walk

import (
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// admitting gives a hook that counts who is in and turns away by option.
func admitting(no map[chain.OptionID]chain.Class, free time.Time, in *int) func(*chain.Option) (func(), chain.Class, time.Time) {
	return func(o *chain.Option) (func(), chain.Class, time.Time) {
		if class := no[o.ID]; class != "" {
			if class == chain.RateLimited {
				return nil, class, free
			}
			return nil, class, time.Time{}
		}
		*in++
		return func() { *in-- }, "", time.Time{}
	}
}

func TestAnOptionWithoutAPlaceIsPassedOver(t *testing.T) {
	now, in := epoch, 0
	full := map[chain.OptionID]chain.Class{"alpha": chain.Busy}
	p := Plan{Options: options("alpha", "beta"), Hooks: Hooks{Admit: admitting(full, time.Time{}, &in)}}
	s := standing()
	l := drive(p, s, script{"beta": answer("b")}, &now, nil)
	want(t, l, Answered, "beta", "")
	if in != 0 {
		t.Errorf("%d places are still taken", in)
	}
	if own, asked := s.optionRest(&p.Options[0], now); !own.IsZero() || !asked.IsZero() || len(l.measured) != 1 {
		t.Error("an option without a place was held against it")
	}

	t.Run("it gets a second look", func(t *testing.T) {
		p := p
		p.Hooks.Admit = func(o *chain.Option) (func(), chain.Class, time.Time) {
			if o.ID == "beta" {
				delete(full, "alpha")
			}
			return admitting(full, time.Time{}, &in)(o)
		}
		want(t, drive(p, standing(), script{"alpha": answer("a"), "beta": fails(chain.Status)}, &now, nil), Answered, "beta alpha", "beta:status")
	})
	t.Run("nothing else is left", func(t *testing.T) {
		p := Plan{Options: options("alpha"), Hooks: Hooks{Admit: admitting(map[chain.OptionID]chain.Class{"alpha": chain.Busy}, time.Time{}, &in)}}
		l := drive(p, standing(), script{}, &now, nil)
		want(t, l, AllCooling, "", "alpha:busy")
		if l.result.RetryAfter != time.Second || len(l.measured) != 0 {
			t.Errorf("%+v", l.result)
		}
	})
	t.Run("places are given back however an attempt ends", func(t *testing.T) {
		p := Plan{Options: options("a", "b", "c", "d"), Hooks: Hooks{Admit: admitting(nil, time.Time{}, &in)}}
		p.Hooks.Reserve = func(o *chain.Option, _ string) (func(Measurement), *Short) {
			if o.ID == "d" {
				return nil, new(Short)
			}
			return nil, nil
		}
		drive(p, standing(), script{"a": fails(chain.Unreachable), "b": {hang: true}, "c": fails(chain.Credentials)}, &now, nil)
		if in != 0 {
			t.Errorf("%d places are still taken", in)
		}
	})
}

func TestCallsOfThePrimitiveAreUsedUp(t *testing.T) {
	now, in := epoch, 0
	spent := map[chain.OptionID]chain.Class{"alpha": chain.RateLimited, "beta": chain.RateLimited}
	p := Plan{Options: options("alpha", "beta"), Hooks: Hooks{Admit: admitting(spent, epoch.Add(7*time.Second), &in)}}
	protested := func() ([]chain.Option, error) {
		t.Error("protested: an extension would not run either")
		return nil, nil
	}
	l := drive(p, standing(), script{}, &now, protested)
	want(t, l, AllCooling, "", "alpha:rate_limited beta:rate_limited")
	if l.result.RetryAfter != 7*time.Second || l.result.Attempts != 0 || len(l.measured) != 0 {
		t.Errorf("%+v", l.result)
	}

	p = Plan{Options: options("alpha", "slot"), Hooks: Hooks{Admit: p.Hooks.Admit, Bind: binder("nas")}}
	want(t, drive(p, standing(), script{"slot": answer("s")}, &now, nil), Answered, "slot@nas", "alpha:rate_limited")
}
