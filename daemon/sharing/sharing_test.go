package sharing

import (
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"pgregory.net/rapid"
)

var yes, no = true, false

// at is a moment of a week in which the 2nd is a Monday, by a clock three hours
// off from UTC.
func at(weekday int, clock string) time.Time {
	t, err := time.ParseInLocation("15:04", clock, time.FixedZone("owner", 3*3600))
	if err != nil {
		panic(err)
	}
	return time.Date(2026, 3, 1+weekday, t.Hour(), t.Minute(), 30, 0, t.Location())
}

func hours(t *testing.T, texts ...string) []Hours {
	t.Helper()
	var all []Hours
	for _, text := range texts {
		h, err := ParseHours(text)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, h)
	}
	return all
}

func TestHours(t *testing.T) {
	const mon, tue, fri, sat, sun = 1, 2, 5, 6, 0
	for _, c := range []struct {
		hours   string
		weekday int
		clock   string
		want    bool
	}{
		{"09:00-17:00", mon, "09:00", true},
		{"09:00-17:00", mon, "08:59", false},
		{"09:00-17:00", sun, "16:59", true},
		{"09:00-17:00", sun, "17:00", false},
		{"22:00-07:00", mon, "23:00", true},
		{"22:00-07:00", tue, "06:59", true},
		{"22:00-07:00", tue, "07:00", false},
		{"fri 22:00-07:00", fri, "22:00", true},
		{"fri 22:00-07:00", sat, "06:00", true}, // it began on Friday
		{"fri 22:00-07:00", fri, "06:00", false},
		{"sat 22:00-07:00", sun, "06:00", true},
		{"mon-fri 18:00-24:00", fri, "23:59", true},
		{"mon-fri 18:00-24:00", sat, "18:00", false},
		{"sat,sun", sat, "00:00", true},
		{"sat,sun", mon, "00:00", false},
		{"fri-mon", sun, "12:00", true}, // past the end of the week
		{"fri-mon", tue, "12:00", false},
		{"SAT 00:00-24:00", sat, "23:59", true},
	} {
		if got := hours(t, c.hours)[0].Holds(at(c.weekday, c.clock)); got != c.want {
			t.Errorf("%s on day %d at %s: %t", c.hours, c.weekday, c.clock, got)
		}
	}
}

func TestHoursThatAreNone(t *testing.T) {
	for _, text := range []string{"", " ", "9:00-17:00", "09:00", "09:00-", "09:00-25:00", "09:60-10:00", "24:00-01:00", "09:00-09:00", "mon-", "-fri", "someday", "mon tue",
		"mon 09:00-10:00 x", "mon,,tue", "mon-tue-wed", "+9:00-10:00", "09:00-10:00-11:00", strings.Repeat("mon,", 1000)} {
		if _, err := ParseHours(text); err == nil || strings.Contains(err.Error(), "\n") || len(err.Error()) > 300 {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestDecide(t *testing.T) {
	noon := at(1, "12:00")
	fine := Readings{Quiet: Yes, Mains: Yes, Metered: No}
	for name, c := range map[string]struct {
		rules Rules
		is    Readings
		ok    bool
		why   string
		back  time.Time
	}{
		"the default shares":                     {Rules{}, Readings{}, true, "", time.Time{}},
		"off":                                    {Rules{Mode: Off}, fine, false, "sharing is off", time.Time{}},
		"within its hours":                       {Rules{Hours: hours(t, "11:00-13:00")}, fine, true, "", time.Time{}},
		"in one of its hours":                    {Rules{Hours: hours(t, "sun", "11:00-13:00")}, fine, true, "", time.Time{}},
		"outside of its hours":                   {Rules{Hours: hours(t, "22:00-07:00", "tue 09:00-10:00")}, fine, false, "it is outside of the hours for sharing", at(1, "22:00").Add(-30 * time.Second)},
		"the next hours are next week's":         {Rules{Hours: hours(t, "mon 09:00-10:00")}, fine, false, "it is outside of the hours for sharing", at(8, "09:00").Add(-30 * time.Second)},
		"on mains":                               {Rules{Mains: true}, fine, true, "", time.Time{}},
		"on its battery":                         {Rules{Mains: true}, Readings{Mains: No}, false, "the device runs on its battery", time.Time{}},
		"on whatever power":                      {Rules{Mains: true}, Readings{}, false, "it is not known whether the device is on mains power", time.Time{}},
		"a battery that is no matter":            {Rules{}, Readings{Mains: No}, true, "", time.Time{}},
		"metered":                                {Rules{}, Readings{Metered: Yes}, false, "the device's network is metered", time.Time{}},
		"metered and allowed":                    {Rules{Metered: true}, Readings{Metered: Yes}, true, "", time.Time{}},
		"idle, quiet, never used":                {Rules{Mode: Idle}, fine, true, "", time.Time{}},
		"idle, used a while ago":                 {Rules{Mode: Idle}, Readings{Quiet: Yes, Own: true, Since: Patience}, true, "", time.Time{}},
		"idle, used just now":                    {Rules{Mode: Idle}, Readings{Quiet: Yes, Own: true, Since: Patience / 4}, false, "the device is in use by its owner", noon.Add(Patience * 3 / 4)},
		"idle, but another program is at work":   {Rules{Mode: Idle}, Readings{Quiet: No}, false, "the device is busy with other programs", time.Time{}},
		"idle, and nobody can tell":              {Rules{Mode: Idle}, Readings{}, true, "", time.Time{}},
		"use does not matter where always holds": {Rules{Mode: Always}, Readings{Quiet: No, Own: true}, true, "", time.Time{}},
	} {
		d := c.rules.Decide(c.is, noon)
		if d.OK != c.ok || d.Why != c.why || !d.Back.Equal(c.back) {
			t.Errorf("%s: %+v, want back at %v", name, d, c.back)
		}
	}
}

func TestAScopeHasRulesOfItsOwn(t *testing.T) {
	p := Policy{Rules: Rules{Mode: Idle, Jobs: 4, Mains: true, Hours: hours(t, "sun")}, Scopes: map[chain.ScopeID]Override{
		"workspace:work":  {Mode: Off},
		"workspace:lab":   {Mode: Always, Jobs: 2, Mains: &no, Metered: &yes, Hours: []Hours{}},
		"workspace:greed": {Jobs: 100},
	}}
	if err := p.Validate(); err != nil {
		t.Fatal(err)
	}
	if r := p.For("workspace:home"); r.Mode != Idle || r.Jobs != 4 || !r.Mains || r.Metered || len(r.Hours) != 1 {
		t.Errorf("home: %+v", r)
	}
	if r := p.For("workspace:work"); r.Mode != Off || r.Jobs != 4 {
		t.Errorf("work: %+v", r)
	}
	if r := p.For("workspace:lab"); r.Mode != Always || r.Jobs != 2 || r.Mains || !r.Metered || len(r.Hours) != 0 {
		t.Errorf("lab: %+v", r)
	}
	s := New(p, nil)
	if device, here := s.Jobs("workspace:lab"); device != 4 || here != 2 {
		t.Errorf("jobs of lab: %d of %d", here, device)
	}
	if device, here := s.Jobs("workspace:greed"); device != 4 || here != 4 {
		t.Errorf("jobs of greed: %d of %d", here, device)
	}
	if device, here := New(Policy{}, nil).Jobs("workspace:home"); device != DefaultJobs || here != DefaultJobs {
		t.Errorf("jobs by default: %d of %d", here, device)
	}
}

func TestEveryWrongRuleIsNamed(t *testing.T) {
	p := Policy{Rules: Rules{Mode: "sometimes", Jobs: -1}, Scopes: map[chain.ScopeID]Override{"nowhere": {}, "workspace:a": {Mode: "x", Jobs: MaxJobs + 1}}}
	err := p.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{`mode "sometimes"`, "jobs must be", `"nowhere"`, `workspace:a: mode "x"`, "workspace:a: jobs"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is missing: %v", want, err)
		}
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("more than one line: %v", err)
	}
}

// dials are sensors that a test sets.
type dials struct{ quiet, mains, metered Reading }

func (d *dials) Quiet() Reading   { return d.quiet }
func (d *dials) OnMains() Reading { return d.mains }
func (d *dials) Metered() Reading { return d.metered }

const home chain.ScopeID = "workspace:home"

func TestPauseAndResume(t *testing.T) {
	now := at(1, "12:00")
	s := New(Policy{}, nil)
	s.Pause(now.Add(time.Hour))
	if d := s.May(home, now.Add(59*time.Minute)); d.OK || !d.Back.Equal(now.Add(time.Hour)) || !strings.HasPrefix(d.Why, "sharing is paused until ") {
		t.Errorf("%+v", d)
	}
	if d := s.May(home, now.Add(time.Hour)); !d.OK {
		t.Errorf("the pause is over: %+v", d)
	}
	s.Pause(time.Time{})
	if d := s.May(home, now.Add(1000*time.Hour)); d.OK || d.Why != "sharing is paused" {
		t.Errorf("%+v", d)
	}
	s.Resume()
	if d := s.May(home, now); !d.OK {
		t.Errorf("%+v", d)
	}
}

func TestTheOwnersOwnWorkEndsIdleness(t *testing.T) {
	now := at(1, "12:00")
	is := &dials{quiet: Yes, mains: Yes}
	s := New(Policy{Rules: Rules{Mode: Idle}}, is)
	if d := s.May(home, now); !d.OK {
		t.Fatalf("%+v", d)
	}
	first, second := s.Owns(), s.Owns()
	if d := s.May(home, now.Add(time.Hour)); d.OK {
		t.Error("a long request of the owner's is use")
	}
	first(now)
	if d := s.May(home, now.Add(time.Hour)); d.OK {
		t.Error("one of two is still in work")
	}
	second(now)
	if d := s.May(home, now.Add(time.Second)); d.OK || !d.Back.Equal(now.Add(Patience)) {
		t.Errorf("%+v", d)
	}
	if d := s.May(home, now.Add(Patience)); !d.OK {
		t.Errorf("%+v", d)
	}
}

// What others' work makes of the load must not throw it out again.
func TestTheLoadOfOthersWorkIsNoUse(t *testing.T) {
	now := at(1, "12:00")
	is := &dials{quiet: Yes}
	s := New(Policy{Rules: Rules{Mode: Idle}}, is)
	s.Job(true)
	is.quiet = No
	if d := s.May(home, now); !d.OK {
		t.Errorf("a second job beside the first: %+v", d)
	}
	s.Job(true)
	s.Job(false)
	s.Job(false)
	if d := s.May(home, now); d.OK {
		t.Error("without jobs the load is somebody else's")
	}
}

// Whatever the policy and the device: a refusal has a reason in one line, and the
// moment it names is ahead.
func TestRefusalsHaveAReason(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		reading := rapid.SampledFrom([]Reading{Unknown, Yes, No})
		r := Rules{Mode: rapid.SampledFrom([]Mode{Off, Idle, Always}).Draw(t, "mode"), Mains: rapid.Bool().Draw(t, "mains"), Metered: rapid.Bool().Draw(t, "metered")}
		for range rapid.IntRange(0, 3).Draw(t, "parts") {
			from, to := rapid.IntRange(0, day-1).Draw(t, "from"), rapid.IntRange(1, day).Draw(t, "to")
			if from == to {
				continue
			}
			h := Hours{from: from, to: to}
			h.days[rapid.IntRange(0, 6).Draw(t, "day")] = true
			r.Hours = append(r.Hours, h)
		}
		now := at(0, "00:00").Add(time.Duration(rapid.IntRange(0, 8*24*3600).Draw(t, "now")) * time.Second)
		is := Readings{reading.Draw(t, "quiet"), reading.Draw(t, "on mains"), reading.Draw(t, "on metered"), time.Duration(rapid.IntRange(0, 120).Draw(t, "since")) * time.Second, rapid.Bool().Draw(t, "own")}
		d := r.Decide(is, now)
		switch {
		case d.OK && d.Why != "", !d.OK && (d.Why == "" || strings.Contains(d.Why, "\n")):
			t.Fatalf("%+v", d)
		case !d.Back.IsZero() && !d.Back.After(now):
			t.Fatalf("it names a moment that has passed: %+v at %v", d, now)
		case d.OK && r.Mode == Off:
			t.Fatal("off shares")
		}
		if strings.Contains(d.Why, "hours") {
			if at := r.Decide(Readings{Quiet: Yes, Mains: Yes}, d.Back); !at.OK && r.Mode != Off {
				t.Fatalf("at the moment it named: %+v", at)
			}
		}
	})
}

func FuzzParseHours(f *testing.F) {
	for _, s := range []string{"22:00-07:00", "mon-fri 18:00-24:00", "sat,sun", "mon 1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, err := ParseHours(s)
		if err == nil && (h.from == h.to || h.days == [7]bool{} || h.from < 0 || h.from >= day || h.to < 0 || h.to > day) {
			t.Fatalf("%q: %+v", s, h)
		}
	})
}
