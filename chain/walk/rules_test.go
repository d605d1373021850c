package walk

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// all makes a script in which every named option goes the same way.
func all(t turn, options []chain.Option) script {
	s := script{}
	for _, o := range options {
		s[string(o.ID)] = t
	}
	return s
}

func numbered(n int) []chain.Option {
	var names []string
	for i := range n {
		names = append(names, fmt.Sprintf("o%02d", i))
	}
	return options(names...)
}

func want(t *testing.T, l *log, end End, tried, classes string) {
	t.Helper()
	if l.result.End != end || join(l.tried) != tried || l.classes() != classes {
		t.Errorf("%s after %q, failures %q\nwant %s after %q, failures %q", l.result.End, join(l.tried), l.classes(), end, tried, classes)
	}
}

func TestCap(t *testing.T) {
	p := Plan{Options: numbered(12)}
	down := all(fails(chain.Status), p.Options)

	t.Run("eight by default", func(t *testing.T) {
		now := epoch
		l := drive(p, standing(), down, &now, nil)
		if len(l.tried) != 8 || l.result.Attempts != 8 || l.result.End != AllFailed {
			t.Errorf("%d attempts, %d counted, %s", len(l.tried), l.result.Attempts, l.result.End)
		}
	})
	t.Run("one kept back for an extension", func(t *testing.T) {
		now := epoch
		sc := all(fails(chain.Status), p.Options)
		sc["extra"] = answer("saved")
		l := drive(p, standing(), sc, &now, func() ([]chain.Option, error) {
			return append(options("extra"), p.Options[0]), nil
		})
		if len(l.tried) != 8 || l.tried[7] != "extra" || l.delivered != "saved" || !l.result.Extended || len(l.protests) != 1 || len(l.protests[0]) != 7 {
			t.Errorf("tried %q, protests %v, %+v", l.tried, l.protests, l.result)
		}
	})
	t.Run("a fruitless protest gives it back", func(t *testing.T) {
		now := epoch
		l := drive(p, standing(), down, &now, func() ([]chain.Option, error) { return nil, nil })
		if len(l.tried) != 8 || l.tried[7] != "o07" || len(l.protests) != 1 {
			t.Errorf("tried %q, %d protests", l.tried, len(l.protests))
		}
	})
	t.Run("an extension comes before keys that are left, and repeats nothing", func(t *testing.T) {
		now := epoch
		q := Plan{Options: options("alpha"), Attempts: 4}
		q.Options[0].Keys = []string{"k1", "k2", "k3", "k4", "k5"}
		l := drive(q, standing(), script{"alpha": fails(chain.Credentials), "extra": fails(chain.Status)}, &now, func() ([]chain.Option, error) {
			return options("alpha", "extra", "extra"), nil
		})
		want(t, l, AllFailed, "alpha#k1 alpha#k2 alpha#k3 extra", "alpha:credentials extra:status")

		now, l = epoch, drive(q, standing(), script{"alpha": fails(chain.Credentials)}, &now, func() ([]chain.Option, error) { return nil, nil })
		want(t, l, AllCredentials, "alpha#k1 alpha#k2 alpha#k3 alpha#k4", "alpha:credentials")

		q.Options = options("alpha")
		l = drive(q, standing(), script{"alpha": fails(chain.Status), "extra": fails(chain.Status)}, &now, func() ([]chain.Option, error) {
			return options("alpha", "extra", "extra"), nil
		})
		want(t, l, AllFailed, "alpha extra", "alpha:status extra:status")
	})
	t.Run("nothing is kept back while the hub is away", func(t *testing.T) {
		now := epoch
		away := p
		away.Hooks.Hub = offline
		l := drive(away, standing(), down, &now, func() ([]chain.Option, error) { t.Error("protested"); return nil, nil })
		if len(l.tried) != 8 {
			t.Errorf("tried %q", l.tried)
		}
	})
	t.Run("a lent single attempt is made", func(t *testing.T) {
		now := epoch
		lent := p
		lent.Attempts = 1
		l := drive(lent, standing(), down, &now, func() ([]chain.Option, error) { return nil, nil })
		if len(l.tried) != 1 {
			t.Errorf("tried %q", l.tried)
		}
	})
}

func TestBudget(t *testing.T) {
	hang := turn{hang: true}
	t.Run("a tenth, at most 5 s, is kept back", func(t *testing.T) {
		for _, c := range []struct{ budget, usable time.Duration }{{20 * time.Second, 18 * time.Second}, {time.Minute, 55 * time.Second}} {
			now := epoch
			p := Plan{Options: options("alpha"), Stream: true, Budget: c.budget}
			l := drive(p, standing(), script{"alpha": hang}, &now, func() ([]chain.Option, error) { return nil, nil })
			if got := now.Sub(epoch); got != c.usable || l.attempts[0].Budget != c.usable || l.result.End != AllTimedOut {
				t.Errorf("budget %v: gave up after %v, told %v, %s", c.budget, got, l.attempts[0].Budget, l.result.End)
			}
		}
	})
	t.Run("the extension gets what was kept", func(t *testing.T) {
		now := epoch
		p := Plan{Options: options("alpha"), Stream: true, Budget: 20 * time.Second}
		l := drive(p, standing(), script{"alpha": hang, "extra": hang}, &now, func() ([]chain.Option, error) {
			now = now.Add(500 * time.Millisecond)
			return options("extra"), nil
		})
		if now.Sub(epoch) != 20*time.Second || l.attempts[1].Budget != 1500*time.Millisecond || l.result.End != AllTimedOut {
			t.Errorf("over after %v, extension had %v, %s", now.Sub(epoch), l.attempts[1].Budget, l.result.End)
		}
	})
	t.Run("a plain call leaves half while another option is left", func(t *testing.T) {
		now := epoch
		p := Plan{Options: options("alpha", "beta", "gamma"), Budget: 40 * time.Second}
		l := drive(p, standing(), all(hang, p.Options), &now, nil)
		var got []time.Duration
		for _, m := range l.measured {
			got = append(got, m.Total)
		}
		if want := []time.Duration{20 * time.Second, 10 * time.Second, 10 * time.Second}; !slices.Equal(got, want) {
			t.Errorf("given up after %v, want %v", got, want)
		}
	})
	t.Run("bounded by the rules", func(t *testing.T) {
		now := epoch
		p := Plan{Options: options("alpha"), Budget: 1000 * time.Hour, Limits: chain.Limits{Total: chain.MillisOf(2000 * time.Hour)}}
		drive(p, standing(), all(hang, p.Options), &now, nil)
		if now.Sub(epoch) != time.Hour {
			t.Errorf("over after %v", now.Sub(epoch))
		}
	})
	t.Run("a cut by a hasty budget is not held against the option", func(t *testing.T) {
		for _, c := range []struct {
			budget, latency time.Duration
			neutral         bool
		}{{time.Second, 0, true}, {11 * time.Second, 0, false}, {time.Second, 500 * time.Millisecond, true}, {2 * time.Second, 500 * time.Millisecond, false}} {
			now := epoch
			p := Plan{Options: options("alpha"), Budget: c.budget}
			p.Options[0].Cost.Latency = chain.MillisOf(c.latency)
			s := standing()
			l := drive(p, s, all(hang, p.Options), &now, nil)
			own, _ := s.optionRest(&p.Options[0], now)
			if l.measured[0].Neutral != c.neutral || own.IsZero() != c.neutral || l.result.End != AllTimedOut {
				t.Errorf("%+v: neutral %v, cools until %v, %s", c, l.measured[0].Neutral, own, l.result.End)
			}
		}
	})
	t.Run("an answer under way may outlast it, unless the plan is strict", func(t *testing.T) {
		long := turn{gap: time.Second, end: Outcome{Class: chain.OK}}
		for range 20 {
			long.chunks = append(long.chunks, text("x"))
		}
		for _, c := range []struct {
			strict bool
			total  chain.Millis
			end    End
			n      int
			cools  int
		}{{true, 0, Broken, 9, 0}, {false, 0, Answered, 20, 0}, {false, 15000, Broken, 14, 1}} {
			now := epoch
			p := Plan{Options: options("alpha"), Stream: true, Budget: 10 * time.Second, Strict: c.strict}
			p.Options[0].Limits.Total = c.total
			s := standing()
			l := drive(p, s, script{"alpha": long}, &now, nil)
			if l.result.End != c.end || len(l.delivered) != c.n || len(s.options) != c.cools {
				t.Errorf("%+v: %s with %d, standing %v", c, l.result.End, len(l.delivered), s.options)
			}
		}
	})
}

func TestLimits(t *testing.T) {
	ms := chain.MillisOf
	for _, c := range []struct {
		name                     string
		option, device, expected chain.Limits
	}{
		{"defaults", chain.Limits{}, chain.Limits{}, DefaultLimits()},
		{"the device's", chain.Limits{}, chain.Limits{FirstOutput: 1, Idle: 2, Total: 3}, chain.Limits{FirstOutput: 1, Idle: 2, Total: 3}},
		{"the option's win", chain.Limits{FirstOutput: 9, Idle: 8, Total: 7}, chain.Limits{FirstOutput: 1, Idle: 2, Total: 3}, chain.Limits{FirstOutput: 9, Idle: 8, Total: 7}},
		{"generous when thinking", chain.Limits{Thinking: true}, chain.Limits{}, chain.Limits{Thinking: true, FirstOutput: ms(5 * time.Minute), Idle: ms(5 * time.Minute), Total: ms(15 * time.Minute)}},
		{"not where declared", chain.Limits{Thinking: true, FirstOutput: 9}, chain.Limits{}, chain.Limits{Thinking: true, FirstOutput: 9, Idle: ms(5 * time.Minute), Total: ms(15 * time.Minute)}},
	} {
		p := Plan{Limits: c.device}
		if got := p.limits(&chain.Option{Limits: c.option}); fmt.Sprint(got) != fmt.Sprint(c.expected) {
			t.Errorf("%s: %+v, want %+v", c.name, got, c.expected)
		}
	}
}

func TestKeys(t *testing.T) {
	p := Plan{Options: options("alpha", "beta")}
	p.Options[0].Keys = []string{"k1", "k2", "k3"}
	ring := map[string]uint64{"k1": 1, "k3": 1}
	p.Hooks.Key = func(name string) (uint64, bool) { g, ok := ring[name]; return g, ok }
	sc := script{"alpha": fails(chain.Credentials), "beta": answer("b")}
	s, now := standing(), epoch

	l := drive(p, s, sc, &now, nil)
	want(t, l, Answered, "alpha#k1 alpha#k3 beta", "alpha:credentials")
	if l.result.Attempts != 3 || join(l.notices) != "alpha#k1:credentials alpha#k2:key_missing alpha#k3:credentials" {
		t.Errorf("%d attempts, notices %q", l.result.Attempts, l.notices)
	}

	now = now.Add(9 * time.Minute)
	l = drive(p, s, sc, &now, nil)
	want(t, l, Answered, "beta", "alpha:cooling")
	if len(l.notices) != 0 {
		t.Errorf("notices while the keys rest: %q", l.notices)
	}

	now = now.Add(2 * time.Minute)
	for _, rest := range []time.Duration{20 * time.Minute, 40 * time.Minute, 80 * time.Minute, 160 * time.Minute, 320 * time.Minute, 6 * time.Hour, 6 * time.Hour} {
		l = drive(p, s, sc, &now, nil)
		want(t, l, Answered, "alpha#k1 alpha#k3 beta", "alpha:credentials")
		now = now.Add(rest - time.Second)
		want(t, drive(p, s, sc, &now, nil), Answered, "beta", "alpha:cooling")
		now = now.Add(time.Second)
	}

	drive(p, s, sc, &now, nil)
	ring["k3"] = 2
	sc["alpha#k3"] = answer("a")
	now = now.Add(time.Second)
	want(t, drive(p, s, sc, &now, nil), Answered, "alpha#k3", "")
	if s.keys["k3"] != nil {
		t.Error("a success does not clear the key")
	}

	t.Run("key in a chain that all requests share", func(t *testing.T) {
		p := Plan{Options: options("alpha")}
		p.Options[0].Keys = []string{"none"}
		p.Hooks.Key = func(string) (uint64, bool) { return 0, false }
		now := epoch
		want(t, drive(p, standing(), sc, &now, nil), AllCredentials, "", "alpha:key_missing")
	})
}

func TestSecondPass(t *testing.T) {
	p := Plan{Options: options("alpha", "beta", "gamma", "delta")}
	p.Options[3].Keys = []string{"k"}
	s, now := standing(), epoch
	first := script{"alpha": fails(chain.Status), "beta": wants(fails(chain.RateLimited), 30*time.Second), "gamma": fails(chain.Timeout), "delta": fails(chain.Credentials)}
	want(t, drive(p, s, first, &now, nil), AllFailed, "alpha beta gamma delta#k", "alpha:status beta:rate_limited gamma:timeout delta:credentials")

	now = now.Add(time.Second)
	l := drive(p, s, script{"alpha": fails(chain.Status), "gamma": answer("g")}, &now, nil)
	want(t, l, Answered, "alpha gamma", "beta:cooling delta:cooling alpha:status")

	now = now.Add(time.Second)
	l = drive(p, s, script{"gamma": fails(chain.Status), "alpha": fails(chain.Status), "extra": answer("e")}, &now, func() ([]chain.Option, error) { return options("extra"), nil })
	want(t, l, Answered, "gamma alpha extra", "beta:cooling gamma:status delta:cooling alpha:status")
}

// Another request is told to wait between the two passes of this one.
func TestSecondPassAsksAgain(t *testing.T) {
	s, now := standing(), epoch
	p := Plan{Options: options("alpha", "beta")}
	s.coolOption(&p.Options[0], failure{class: chain.Status, started: now}, rules(), now)
	p.Hooks.Current = func(id chain.OptionID) *chain.Option {
		if id == "beta" {
			s.coolOption(&p.Options[0], failure{class: chain.RateLimited, started: now, asked: true, retry: time.Minute}, rules(), now)
			return &p.Options[1]
		}
		return &p.Options[0]
	}
	want(t, drive(p, s, script{"beta": fails(chain.Status)}, &now, nil), AllFailed, "beta", "beta:status alpha:cooling")
}

func TestLending(t *testing.T) {
	busy := func(used int, c chain.Class) turn {
		t := fails(c)
		t.end.Used = used
		return t
	}
	for _, c := range []struct {
		name     string
		options  []chain.Option
		attempts int
		turn     turn
		lent     int
		spent    int
	}{
		{"half where nothing else is left", options("slot"), 8, busy(3, chain.Status), 4, 3},
		{"one left for each untried option", options("slot", "o1", "o2", "o3", "o4", "o5"), 8, busy(3, chain.Status), 3, 3},
		{"one at least", numberedBehind("slot", 11), 8, busy(9, chain.Status), 1, 1},
		{"a vanished peer has spent all", options("slot"), 8, fails(chain.Unreachable), 4, 4},
		{"a silent peer has spent all", options("slot"), 8, turn{hang: true}, 4, 4},
		{"a peer that could not be dialled has not", options("slot"), 8, busy(1, chain.Unreachable), 4, 1},
		{"busy spends nothing", options("slot"), 8, fails(chain.Busy), 4, 0},
		{"a peer that declines spends nothing", options("slot"), 8, fails(chain.Declined), 4, 0},
		{"a gate's no spends nothing", options("slot"), 8, fails(chain.Denied), 4, 0},
		{"no more than it was lent", options("slot"), 8, busy(100, chain.Status), 4, 4},
		{"nor less than one", options("slot"), 8, busy(-5, chain.Status), 4, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := Plan{Options: c.options, Attempts: c.attempts}
			p.Hooks.Bind = binder("p1")
			now := epoch
			m := New(p, standing(), now)
			a := m.Next(now).Attempt
			if a.Lent != c.lent || a.Peer != "p1" {
				t.Errorf("lent %d to %q, want %d", a.Lent, a.Peer, c.lent)
			}
			(&log{}).attempt(m, *a, c.turn, &now)
			if m.spent != c.spent {
				t.Errorf("spent %d, want %d", m.spent, c.spent)
			}
		})
	}
}

func numberedBehind(name string, n int) []chain.Option {
	return append(options(name), numbered(n)...)
}

func TestSlots(t *testing.T) {
	p := Plan{Options: options("slot", "alpha")}
	p.Hooks.Bind = binder("p1", "p2", "p3", "p4")
	failed := func(c chain.Class) turn { t := fails(c); t.end.Used = 1; return t }

	t.Run("up to its tries, peers cool and slots do not", func(t *testing.T) {
		s, now := standing(), epoch
		sc := script{"slot": failed(chain.Status), "slot@p3": answer("3"), "alpha": answer("a")}
		l := drive(p, s, sc, &now, nil)
		want(t, l, Answered, "slot@p1 slot@p2 alpha", "slot:status")
		if fmt.Sprint(l.result.Peers) != "[p1 p2]" || l.measured[1].Peer != "p2" {
			t.Errorf("peers %v, measured %+v", l.result.Peers, l.measured)
		}
		l = drive(p, s, sc, &now, nil)
		want(t, l, Answered, "slot@p3", "")
		now = now.Add(1300 * time.Millisecond)
		want(t, drive(p, s, sc, &now, nil), Answered, "slot@p1 slot@p2 alpha", "slot:status")
		if len(s.options) != 0 {
			t.Errorf("a slot cools down: %v", s.options)
		}
	})
	t.Run("busy is no failure and no try", func(t *testing.T) {
		s, now := standing(), epoch
		l := drive(p, s, script{"slot": fails(chain.Busy), "slot@p4": answer("4")}, &now, nil)
		want(t, l, Answered, "slot@p1 slot@p2 slot@p3 slot@p4", "")
		if l.result.Attempts != 1 || len(s.peers) != 0 || !l.measured[0].Neutral {
			t.Errorf("%d attempts, standing %v", l.result.Attempts, s.peers)
		}
	})
	t.Run("all busy", func(t *testing.T) {
		now := epoch
		want(t, drive(p, standing(), script{"slot": fails(chain.Busy), "alpha": answer("a")}, &now, nil), Answered,
			"slot@p1 slot@p2 slot@p3 slot@p4 alpha", "slot:busy")
	})
	t.Run("no live peer", func(t *testing.T) {
		now := epoch
		q := p
		q.Hooks.Bind = nil
		want(t, drive(q, standing(), script{"alpha": answer("a")}, &now, nil), Answered, "alpha", "slot:no_peer")
		q.Hooks.Bind, q.Rules.NoPeers = p.Hooks.Bind, true
		want(t, drive(q, standing(), script{"alpha": answer("a")}, &now, nil), Answered, "alpha", "slot:no_peer")
	})
	t.Run("peers that cool down have a second pass", func(t *testing.T) {
		s, now := standing(), epoch
		q := p
		q.Hooks.Bind = binder("p1")
		down := script{"slot": failed(chain.Status), "alpha": fails(chain.Status)}
		drive(q, s, down, &now, nil)
		want(t, drive(q, s, script{"slot": answer("1"), "alpha": fails(chain.Status)}, &now, nil), Answered, "slot@p1", "")
		drive(q, s, down, &now, nil)
		want(t, drive(q, s, script{"slot": wants(failed(chain.RateLimited), time.Minute), "alpha": answer("a")}, &now, nil), Answered, "slot@p1 alpha", "slot:rate_limited")
		want(t, drive(q, s, script{"alpha": answer("a")}, &now, nil), Answered, "alpha", "slot:no_peer")
	})
	t.Run("removed for foreign work", func(t *testing.T) {
		now := epoch
		q := p
		q.Kinds = []chain.Kind{chain.Local}
		want(t, drive(q, standing(), script{}, &now, nil), NothingToTry, "", "")
	})
}

func TestPassedOver(t *testing.T) {
	p := Plan{Options: options("local/x", "other", "gone", "costly", "alpha")}
	p.Options[1].Kind = "quantum"
	p.Hooks.Runs = func(o *chain.Option) bool { return o.ID != "local/x" }
	p.Hooks.Current = func(id chain.OptionID) *chain.Option {
		for i := range p.Options {
			if p.Options[i].ID == id && id != "gone" {
				return &p.Options[i]
			}
		}
		return nil
	}
	var settled []Measurement
	p.Hooks.Reserve = func(o *chain.Option, _ string) (func(Measurement), *Short) {
		if o.ID == "costly" {
			return nil, new(Short)
		}
		return func(m Measurement) { settled = append(settled, m) }, nil
	}
	now := epoch
	l := drive(p, standing(), script{"alpha": answer("a")}, &now, nil)
	want(t, l, Answered, "alpha", "gone:withdrawn costly:ceiling")
	if l.result.Skipped != 1 || len(settled) != 1 || settled[0].Option != "alpha" || settled[0].Output != 3 {
		t.Errorf("%+v, settled %+v", l.result, settled)
	}

	t.Run("another device's local option alone", func(t *testing.T) {
		q := Plan{Options: p.Options[:1], Hooks: Hooks{Runs: p.Hooks.Runs}}
		l := drive(q, standing(), script{}, &now, func() ([]chain.Option, error) { t.Error("protested"); return nil, nil })
		want(t, l, NothingToTry, "", "")
	})
	t.Run("a provider without its adapter", func(t *testing.T) {
		q := Plan{Options: options("alpha"), Hooks: Hooks{Runs: func(*chain.Option) bool { return false }}}
		want(t, drive(q, standing(), script{}, &now, nil), NothingToTry, "", "alpha:absent")
	})
	t.Run("withdrawn between two attempts", func(t *testing.T) {
		q := Plan{Options: options("alpha", "beta", "gamma")}
		withdrawn := false
		q.Hooks.Current = func(id chain.OptionID) *chain.Option {
			if id == "beta" && withdrawn {
				return nil
			}
			withdrawn = true
			return &chain.Option{ID: id, Kind: chain.Provider, Model: "as it is now"}
		}
		l := drive(q, standing(), script{"alpha": fails(chain.Status), "gamma": answer("g")}, &now, nil)
		want(t, l, Answered, "alpha gamma", "alpha:status beta:withdrawn")
		if l.attempts[1].Option.Model != "as it is now" {
			t.Errorf("ran %+v", l.attempts[1].Option)
		}
	})
}

func TestDeclaredEnough(t *testing.T) {
	limits := func(o []chain.Option, context ...int) []chain.Option {
		for i, c := range context {
			o[i].Limits.Context = c
		}
		return o
	}
	tooLong, lacks := fails(chain.ContextLength), fails(chain.Feature)
	now := epoch
	t.Run("longer context", func(t *testing.T) {
		p := Plan{Options: limits(options("a", "b", "c", "d", "e"), 8192, 4096, 0, 8192, 131072)}
		want(t, drive(p, standing(), script{"a": tooLong, "e": answer("e")}, &now, nil), Answered, "a e",
			"a:context_length b:context_length c:context_length d:context_length")
	})
	t.Run("none: the upstream's own words", func(t *testing.T) {
		p := Plan{Options: limits(options("a", "b"), 8192, 4096)}
		tooLong := tooLong
		tooLong.end.Answer = &Answer{Status: 400}
		l := drive(p, standing(), script{"a": tooLong}, &now, func() ([]chain.Option, error) { return nil, nil })
		want(t, l, Refused, "a", "a:context_length b:context_length")
		if l.result.Answer == nil || len(l.protests) != 1 {
			t.Errorf("%+v, %d protests", l.result, len(l.protests))
		}
	})
	t.Run("known to be long", func(t *testing.T) {
		p := Plan{Options: limits(options("a", "b", "c"), 8192, 0, 131072), Needs: Needs{Context: 10000}}
		want(t, drive(p, standing(), script{"b": answer("b")}, &now, nil), Answered, "b", "a:context_length")
	})
	t.Run("known feature", func(t *testing.T) {
		p := Plan{Options: options("a", "b", "c", "d"), Needs: Needs{Features: []string{"tools"}}}
		p.Options[1].Limits.Features = []string{"images"}
		p.Options[3].Limits.Features = []string{"images", "tools"}
		want(t, drive(p, standing(), script{"a": lacks, "d": answer("d")}, &now, nil), Answered, "a d", "a:feature b:feature c:feature")
	})
	t.Run("unknown feature", func(t *testing.T) {
		p := Plan{Options: options("a", "b", "c", "d")}
		p.Options[0].Limits.Features = []string{"tools"}
		p.Options[1].Limits.Features = []string{"tools"}
		p.Options[3].Limits.Features = []string{"images"}
		want(t, drive(p, standing(), script{"a": lacks, "d": answer("d")}, &now, nil), Answered, "a d", "a:feature b:feature c:feature")
	})
	t.Run("payload", func(t *testing.T) {
		p := Plan{Options: options("a", "b"), Needs: Needs{Payload: 11}}
		p.Options[0].Limits.Payload = 10
		want(t, drive(p, standing(), script{"b": answer("b")}, &now, nil), Answered, "b", "a:context_length")
	})
	t.Run("content filter where the rules allow the next", func(t *testing.T) {
		p := Plan{Options: options("a", "b"), Rules: chain.Rules{FilterNext: true}}
		want(t, drive(p, standing(), script{"a": fails(chain.Filtered), "b": answer("b")}, &now, nil), Answered, "a b", "a:filtered")
	})
}

func TestOffline(t *testing.T) {
	down := fails(chain.Unreachable)
	t.Run("everything remote and the hub", func(t *testing.T) {
		s, now := standing(), epoch
		p := Plan{Options: options("alpha", "beta"), Hooks: Hooks{Hub: offline}}
		for range 3 {
			l := drive(p, s, all(down, p.Options), &now, nil)
			want(t, l, AllFailed, "alpha beta", "alpha:offline beta:offline")
			for _, m := range l.measured {
				if m.Class != chain.Offline || !m.Neutral {
					t.Errorf("measured %+v", m)
				}
			}
		}
		if _, off := s.Offline(); !off || len(s.options) != 0 {
			t.Errorf("offline %v, standing %v", off, s.options)
		}
		s.AddressChanged()
		if _, off := s.Offline(); off {
			t.Error("still offline at another address")
		}
	})
	t.Run("a local answer is served meanwhile", func(t *testing.T) {
		s, now := standing(), epoch
		p := Plan{Options: options("alpha", "local"), Hooks: Hooks{Hub: offline}, Stream: true}
		want(t, drive(p, s, script{"alpha": down, "local": answer("l")}, &now, nil), Answered, "alpha local", "alpha:offline")
		if len(s.options) != 0 {
			t.Errorf("standing %v", s.options)
		}
	})
	t.Run("the hub answers", func(t *testing.T) {
		s, now := standing(), epoch
		p := Plan{Options: options("alpha", "beta")}
		want(t, drive(p, s, all(down, p.Options), &now, func() ([]chain.Option, error) { return nil, nil }), AllFailed, "alpha beta", "alpha:unreachable beta:unreachable")
		if len(s.options) != 2 {
			t.Errorf("standing %v", s.options)
		}
	})
	t.Run("the hub is there, though this is foreign work that never protests", func(t *testing.T) {
		s, now := standing(), epoch
		p := Plan{Options: options("alpha", "beta"), Hooks: Hooks{Hub: func() bool { return true }}}
		want(t, drive(p, s, all(down, p.Options), &now, nil), AllFailed, "alpha beta", "alpha:unreachable beta:unreachable")
		if len(s.options) != 2 {
			t.Errorf("standing %v", s.options)
		}
	})
	t.Run("the hub was thought reachable", func(t *testing.T) {
		s, now := standing(), epoch
		p := Plan{Options: options("alpha", "beta")}
		want(t, drive(p, s, all(down, p.Options), &now, func() ([]chain.Option, error) { return nil, errNoHub }), AllFailed, "alpha beta", "alpha:offline beta:offline")
		if len(s.options) != 0 {
			t.Errorf("standing %v", s.options)
		}
	})
	t.Run("one of them answers, be it an error", func(t *testing.T) {
		s, now := standing(), epoch
		p := Plan{Options: options("alpha", "beta"), Hooks: Hooks{Hub: offline}}
		want(t, drive(p, s, script{"alpha": down, "beta": fails(chain.Status)}, &now, nil), AllFailed, "alpha beta", "alpha:unreachable beta:status")
		if len(s.options) != 2 {
			t.Errorf("standing %v", s.options)
		}
		if s.AddressChanged(); len(s.options) != 1 {
			t.Errorf("what was unreachable gets no new chance at a new address: %v", s.options)
		}
	})
	t.Run("a reset in mid-answer is not being offline", func(t *testing.T) {
		s, now := standing(), epoch
		p := Plan{Options: options("alpha"), Hooks: Hooks{Hub: offline}}
		want(t, drive(p, s, script{"alpha": {chunks: []Chunk{role()}, end: Outcome{Class: chain.Unreachable}}}, &now, nil), AllFailed, "alpha", "alpha:unreachable")
	})
}

func TestEnds(t *testing.T) {
	key := func(o []chain.Option) []chain.Option {
		for i := range o {
			o[i].Keys = []string{"k"}
		}
		return o
	}
	wish := func(d time.Duration) turn { return wants(fails(chain.RateLimited), d) }
	for _, c := range []struct {
		name  string
		plan  Plan
		turns script
		again bool // look at the second request
		end   End
		retry time.Duration
	}{
		{"all timed out", Plan{Options: options("a", "b"), Stream: true, Budget: 10 * time.Minute}, script{"a": {hang: true}, "b": {hang: true}}, false, AllTimedOut, 0},
		{"timed out, and a slot without a peer", Plan{Options: options("a", "slot"), Stream: true}, script{"a": {hang: true}}, false, AllTimedOut, 0},
		{"a mixture", Plan{Options: options("a", "b"), Stream: true, Budget: 10 * time.Minute}, script{"a": {hang: true}, "b": fails(chain.Status)}, false, AllFailed, 0},
		{"all on keys", Plan{Options: key(options("a"))}, script{"a": fails(chain.Credentials)}, false, AllCredentials, 0},
		{"all on keys that rest", Plan{Options: key(options("a"))}, script{"a": fails(chain.Credentials)}, true, AllCredentials, 0},
		{"on keys, and one is down", Plan{Options: append(key(options("a")), options("b")...)}, script{"a": fails(chain.Credentials), "b": fails(chain.Status)}, false, AllFailed, 0},
		{"nothing could be tried", Plan{Options: options("slot")}, nil, false, NothingToTry, 0},
		{"every peer declines", Plan{Options: options("slot"), Hooks: Hooks{Bind: binder("p")}}, script{"slot": fails(chain.Declined)}, false, NothingToTry, 0},
		{"every peer is busy", Plan{Options: options("slot"), Hooks: Hooks{Bind: binder("p")}}, script{"slot": fails(chain.Busy)}, false, NothingToTry, 0},
		{"all asked to wait now", Plan{Options: options("a", "b")}, script{"a": wish(50 * time.Second), "b": wish(30 * time.Second)}, false, AllCooling, 30 * time.Second},
		{"all cooling", Plan{Options: options("a", "b")}, script{"a": wish(50 * time.Second), "b": wish(30 * time.Second)}, true, AllCooling, 29 * time.Second},
		{"cooling, and a slot without a peer", Plan{Options: options("a", "slot")}, script{"a": wish(50 * time.Second)}, true, AllCooling, 49 * time.Second},
		{"cooling and down", Plan{Options: options("a", "b")}, script{"a": wish(50 * time.Second), "b": fails(chain.Status)}, false, AllFailed, 0},
		{"asked to wait till the past", Plan{Options: options("a")}, script{"a": wish(0)}, false, AllCooling, 0},
		{"one on its key, one asked to wait", Plan{Options: append(key(options("a")), options("b")...)}, script{"a": fails(chain.Credentials), "b": wish(time.Minute)}, false, AllFailed, 0},
		{"one without a key, one asked to wait", Plan{Options: append(key(options("a")), options("b")...), Hooks: Hooks{Key: func(string) (uint64, bool) { return 0, false }}}, script{"b": wish(time.Minute)}, false, AllCooling, time.Minute},
		{"a defect of ours", Plan{Options: options("a")}, script{"a": fails(chain.Internal)}, false, AllFailed, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, now := standing(), epoch
			for id, turn := range c.turns {
				turn.gap = 0
				c.turns[id] = turn
			}
			l := drive(c.plan, s, c.turns, &now, nil)
			if c.again {
				now = now.Add(time.Second)
				l = drive(c.plan, s, c.turns, &now, nil)
			}
			if l.result.End != c.end || l.result.RetryAfter != c.retry {
				t.Errorf("%s, retry after %v (%s), want %s, %v", l.result.End, l.result.RetryAfter, l.classes(), c.end, c.retry)
			}
		})
	}
}

// What only the caller's own budget forbids is said as that, and is no reason to protest. What
// else failed is.
func TestTheCallersOwnBudget(t *testing.T) {
	short := func(ids ...chain.OptionID) func(*chain.Option, string) (func(Measurement), *Short) {
		return func(o *chain.Option, _ string) (func(Measurement), *Short) {
			if slices.Contains(ids, o.ID) {
				return nil, &Short{Own: true, Why: "until Monday", Again: 48 * time.Hour}
			}
			if o.ID == "ceiling" {
				return nil, new(Short)
			}
			return nil, nil
		}
	}
	keyed := func(o []chain.Option) []chain.Option {
		o[0].Keys = []string{"absent"}
		return o
	}
	for _, c := range []struct {
		name     string
		options  []chain.Option
		turns    script
		end      End
		failures string
		protest  string // what it names; "" for none
	}{
		{"all of it", options("paid", "dear"), nil, OverBudget, "paid:ceiling dear:ceiling", ""},
		{"beside a slot without a peer", options("slot", "paid"), nil, OverBudget, "slot:no_peer paid:ceiling", ""},
		{"beside a ceiling", options("ceiling", "paid"), nil, OverBudget, "ceiling:ceiling paid:ceiling", ""},
		{"beside a key that is missing", append(keyed(options("keyed")), options("paid")...), nil, OverBudget, "keyed:key_missing paid:ceiling", ""},
		{"beside one that fails", options("paid", "free"), script{"free": fails(chain.Status)}, AllFailed, "paid:ceiling free:status", "free:status"},
		{"beside one that answers", options("paid", "free"), script{"free": answer("f")}, Answered, "paid:ceiling", ""},
		{"a ceiling alone", options("ceiling"), nil, NothingToTry, "ceiling:ceiling", "ceiling:ceiling"},
	} {
		for _, async := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, async %v", c.name, async), func(t *testing.T) {
				var named []string
				protest := func(failed []chain.Failure) {
					for _, f := range failed {
						named = append(named, string(f.Option)+":"+string(f.Class))
					}
				}
				p := Plan{Options: c.options, Hooks: Hooks{Reserve: short("paid", "dear"), Key: func(string) (uint64, bool) { return 0, false }}}
				end := c.end
				if async {
					p.Hooks.Escalate = protest
					if c.protest != "" {
						end = Escalating
					}
				} else {
					p.Hooks.Protest = func(_ context.Context, failed []chain.Failure, _ time.Duration) ([]chain.Option, error) {
						protest(failed)
						return nil, nil
					}
				}
				now := epoch
				m := New(p, standing(), now)
				for step := m.Next(now); step.Attempt != nil || step.Protest; step = m.Next(now) {
					if step.Protest {
						protest(step.Failed)
						m.Protested(nil, true, now)
						continue
					}
					turn := c.turns[string(step.Attempt.Option.ID)]
					for _, chunk := range turn.chunks {
						m.Feed(chunk, now)
					}
					m.End(turn.end, now)
				}
				r := m.Result()
				var failures []string
				for _, f := range r.Failures {
					failures = append(failures, string(f.Option)+":"+string(f.Class))
				}
				if r.End != end || strings.Join(failures, " ") != c.failures || strings.Join(named, " ") != c.protest {
					t.Errorf("%s, %v, protested %v; want %s, %s, %q", r.End, failures, named, end, c.failures, c.protest)
				}
				if over := r.End == OverBudget; over != (r.Why == "until Monday") || over != (r.RetryAfter == time.Hour) {
					t.Errorf("%q, again in %v: want it said, and no longer than the rules let a caller wait", r.Why, r.RetryAfter)
				}
			})
		}
	}
}

func TestEscalate(t *testing.T) {
	now := epoch
	var asked []chain.Failure
	p := Plan{Options: options("alpha")}
	p.Hooks.Protest = func(context.Context, []chain.Failure, time.Duration) ([]chain.Option, error) {
		t.Error("a synchronous protest")
		return nil, nil
	}
	p.Hooks.Escalate = func(f []chain.Failure) { asked = f }
	l := drive(p, standing(), script{"alpha": fails(chain.Status)}, &now, nil)
	want(t, l, Escalating, "alpha", "alpha:status")
	if l.result.RetryAfter != time.Second || len(asked) != 1 {
		t.Errorf("retry after %v, asked for %v", l.result.RetryAfter, asked)
	}

	p.Extension = options("alpha", "extra") // of the protest that was answered meanwhile
	p.Hooks.Current = func(id chain.OptionID) *chain.Option { return &options("alpha")[0] }
	l = drive(p, standing(), script{"alpha": fails(chain.Status), "extra": answer("e")}, &now, nil)
	want(t, l, Answered, "alpha extra", "alpha:status")
	if !l.result.Extended {
		t.Error("the extension is not named")
	}
}

func TestHeldBack(t *testing.T) {
	p := Plan{Options: options("alpha"), Stream: true}
	now := epoch
	m := New(p, standing(), now)
	m.Next(now)
	for range 100000 {
		if out := m.Feed(role(), now); out != nil {
			t.Fatalf("%q left before the first output", out)
		}
	}
	if len(m.run.held) > maxHeld || m.run.bytes != 400000 {
		t.Errorf("%d chunks held, %d bytes counted", len(m.run.held), m.run.bytes)
	}
	if out := m.Feed(text("x"), now); len(out) != maxHeld+1 {
		t.Errorf("%d chunks left with the first output", len(out))
	}

	t.Run("a plain answer without end", func(t *testing.T) {
		p.Stream = false
		m := New(p, standing(), now)
		m.Next(now)
		big := Chunk{Data: make([]byte, 1<<20), Meaningful: true}
		for range 100 {
			m.Feed(big, now)
		}
		if m.run.held != nil || !m.Expire(now) {
			t.Error("it goes on")
		}
		m.Next(now)
		if r := m.Result(); r.End != AllFailed || r.Failures[0].Class != chain.BadAnswer {
			t.Errorf("%+v", r)
		}
	})
}

func TestLeave(t *testing.T) {
	for _, stream := range []bool{true, false} {
		for _, chunks := range []int{0, 1} {
			s, now := standing(), epoch
			l := &log{}
			p := Plan{Options: options("alpha", "beta"), Stream: stream}
			l.watch(&p)
			m := New(p, s, now)
			m.Next(now)
			for range chunks {
				if len(m.Feed(text("x"), now)) > 0 {
					m.Delivered(now)
				}
			}
			m.Leave(now.Add(time.Second))
			if st := m.Next(now); st.Attempt != nil || st.Protest || m.Result().End != Left {
				t.Errorf("goes on with %+v, %s", st, m.Result().End)
			}
			if len(l.measured) != 1 || !l.measured[0].Neutral || l.measured[0].Class != chain.Canceled || len(s.options) != 0 {
				t.Errorf("measured %+v, standing %v", l.measured, s.options)
			}
		}
	}
	t.Run("before a plain answer was written", func(t *testing.T) {
		now := epoch
		m := New(Plan{Options: options("alpha")}, standing(), now)
		m.Next(now)
		m.Feed(text("x"), now)
		if len(m.End(Outcome{Class: chain.OK}, now)) != 1 {
			t.Fatal("nothing to deliver")
		}
		m.Leave(now)
		if r := m.Result(); r.End != Left || r.Delivered {
			t.Errorf("%+v", r)
		}
	})
	t.Run("after everything was delivered", func(t *testing.T) {
		now := epoch
		m := New(Plan{Options: options("alpha")}, standing(), now)
		m.Next(now)
		m.Feed(text("x"), now)
		m.End(Outcome{Class: chain.OK}, now)
		m.Delivered(now)
		m.Leave(now)
		if r := m.Result(); r.End != Answered || !r.Delivered {
			t.Errorf("%+v", r)
		}
	})
}
