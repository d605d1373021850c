package wave

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/chain"
)

// TestHistoryRolls adds to a place now and then, and compares with a list.
func TestHistoryRolls(t *testing.T) {
	const window = 12 * time.Minute
	rapid.Check(t, func(t *rapid.T) {
		var h history
		now := time.Unix(1_700_000_000, 0).Truncate(time.Minute)
		type entry struct {
			at     time.Time
			tokens int64
		}
		var all []entry
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 30).Draw(t, "minutes")) * time.Minute)
			tokens := rapid.Int64Range(0, 1000).Draw(t, "tokens")
			all = append(all, entry{now, tokens})
			h.observe(place{"a", ""}, "a", "m", Count{Tokens: tokens}, window, now)
			h.spend(effort{jobs: tokens}, window, now)
			var want int64
			for _, e := range all {
				if now.Sub(e.at) < window {
					want += e.tokens
				}
			}
			if got := h.sum(place{"a", ""}, window, now).Tokens; got != want {
				t.Fatalf("tokens %d, want %d", got, want)
			}
			if got := h.spent(window, now).jobs; got != want {
				t.Fatalf("jobs %d, want %d", got, want)
			}
		}
	})
}

// TestHistoryIsBounded hears of more places than it keeps: the latest stay.
func TestHistoryIsBounded(t *testing.T) {
	var h history
	now := time.Unix(1_700_000_000, 0)
	for i := range 3 * maxPlaces {
		h.observe(place{chain.OptionID(fmt.Sprint(i)), ""}, "", "", Count{Jobs: 1}, time.Hour, now.Add(time.Duration(i)*time.Millisecond))
	}
	same(t, "places", len(h.places), maxPlaces)
	same(t, "the first", h.sum(place{"0", ""}, time.Hour, now).Jobs, 0)
	same(t, "the last", h.sum(place{chain.OptionID(fmt.Sprint(3*maxPlaces - 1)), ""}, time.Hour, now).Jobs, 1)
}

// TestCounts keeps counts over a restart.
func TestCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := play(offers{"llm.t2": {at("a", "big"), at("b", "other")}},
			by(script{"a/big": {takes: 300 * time.Second}, "b/other": {takes: 10 * time.Second}}))
		p := NewPool()
		s := settings()
		w := New(s, r, p)
		w.Do(t.Context(), []Task{worker("s1")})
		w.Close()
		_ = p.Close(t.Context())
		want := []Count{
			{Option: "a/big", Provider: "a", Model: "big", Jobs: 1, Losses: 1},
			{Option: "b/other", Provider: "b", Model: "other", Jobs: 1, Done: 1, Tokens: 300, Busy: 10 * time.Second, Wins: 1},
		}
		bare := func(counts []Count) []Count {
			for i := range counts {
				if since := counts[i].Since; time.Since(since) < 0 || time.Since(since) > s.Window {
					t.Errorf("since %s", since)
				}
				counts[i].Since = time.Time{}
			}
			return counts
		}
		same(t, "counts", bare(p.Counts(s.Window)), want)
		kept := p.Counts(s.Window)
		time.Sleep(s.Window / 2)
		next := NewPool()
		next.Restore(append(kept, Count{Option: "broken", Since: time.Now(), Jobs: -1}, Count{Option: "future", Since: time.Now().Add(time.Hour), Jobs: 1}), s.Window)
		same(t, "after a restart", bare(next.Counts(s.Window)), want)
		time.Sleep(s.Window / 2)
		again := NewPool() // a restart makes nothing younger
		again.Restore(next.Counts(s.Window), s.Window)
		time.Sleep(s.Window / slots)
		same(t, "after the window", again.Counts(s.Window), []Count{})
	})
}

// TestSettings names what is out of range.
func TestSettings(t *testing.T) {
	if err := Default().Validate(); err != nil {
		t.Error(err)
	}
	for name, set := range map[string]func(*Settings){
		"max_parallel_subtasks is 0: it goes from 1 to 20":      func(s *Settings) { s.Parallel = 0 },
		"max_parallel_subtasks is 21: it goes from 1 to 20":     func(s *Settings) { s.Parallel = 21 },
		"race_replicas is 6: it goes from 1 to 5":               func(s *Settings) { s.Replicas = 6 },
		"race_tiers is 4: it goes from 1 to 3":                  func(s *Settings) { s.RaceTiers = []int{1, 4} },
		"throughput_alpha is 1.1: it goes from 0 to 1":          func(s *Settings) { s.Alpha = 1.1 },
		"throughput_floor is -0.1: it goes from 0 to 1":         func(s *Settings) { s.Floor = -0.1 },
		"throughput_window_hours is 0.5: it goes from 1 to 168": func(s *Settings) { s.Window = 30 * time.Minute },
		"throughput_window_hours is 169: it goes from 1 to 168": func(s *Settings) { s.Window = 169 * time.Hour },
		"hedge_budget is 5: it goes from 0 to 1":                func(s *Settings) { s.HedgeBudget = 5 },
		"hedge_after is -1s: it is not below 0":                 func(s *Settings) { s.HedgeAfter = -time.Second },
	} {
		s := Default()
		set(&s)
		if err := s.Validate(); err == nil || err.Error() != name {
			t.Errorf("got %v, want %s", err, name)
		}
	}
	s := Default()
	s.Parallel, s.Alpha = 0, 7
	if err := s.Validate(); err == nil || strings.Count(err.Error(), "it goes from") != 2 {
		t.Errorf("two wrong ones are %v", err)
	}
}
