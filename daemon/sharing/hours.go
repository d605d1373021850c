package sharing

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Hours is a part of some days of the week, by the owner's clock. Make it with
// [ParseHours].
type Hours struct {
	days     [7]bool // by time.Weekday; a part that passes midnight belongs to the day on which it begins
	from, to int     // minutes of the day; to may be below from: it ends on the next day
}

const day = 24 * 60 // minutes

// Clocks are changed now and then: hours are read off the clock on the wall, so
// that 22:00 is 22:00 on every day of the year.
func minuteOf(t time.Time) int { return t.Hour()*60 + t.Minute() }

var dayNames = []string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"} // as time.Weekday counts

// ParseHours reads hours as a configuration has them: "22:00-07:00", "mon-fri
// 18:00-24:00", "sat,sun". The end is not in it, and one before its beginning is
// on the next day.
func ParseHours(text string) (Hours, error) {
	bad := func(why string) (Hours, error) {
		return Hours{}, fmt.Errorf(`hours %q: %s; want such as "22:00-07:00", "mon-fri 18:00-24:00" or "sat,sun"`, chain.Clip(text), why)
	}
	h := Hours{to: day}
	fields := strings.Fields(strings.ToLower(text))
	if len(fields) == 0 || len(fields) > 2 {
		return bad("neither days nor times")
	}
	times := fields[len(fields)-1]
	switch {
	case strings.Contains(times, ":"):
		from, to, ok := strings.Cut(times, "-")
		if !ok {
			return bad("no end")
		}
		var fine bool
		if h.from, fine = clock(from); !fine || h.from == day {
			return bad("the beginning is no time of day")
		}
		if h.to, fine = clock(to); !fine {
			return bad("the end is no time of day")
		}
		if h.from == h.to {
			return bad("it ends when it begins")
		}
	case len(fields) == 2:
		return bad("the second part is no time")
	}
	if len(fields) == 1 && strings.Contains(times, ":") {
		h.days = [7]bool{true, true, true, true, true, true, true}
		return h, nil
	}
	for part := range strings.SplitSeq(fields[0], ",") {
		first, last, ranged := strings.Cut(part, "-")
		a, b := slices.Index(dayNames, first), slices.Index(dayNames, last)
		if !ranged {
			b = a
		}
		if a < 0 || b < 0 {
			return bad("a day is none of mon, tue, wed, thu, fri, sat, sun")
		}
		for d := a; ; d = (d + 1) % 7 {
			h.days[d] = true
			if d == b {
				break
			}
		}
	}
	return h, nil
}

// clock reads HH:MM, up to 24:00, as minutes.
func clock(s string) (int, bool) {
	if len(s) != 5 || s[2] != ':' {
		return 0, false
	}
	h, err1 := strconv.ParseUint(s[:2], 10, 8)
	m, err2 := strconv.ParseUint(s[3:], 10, 8)
	if err1 != nil || err2 != nil || m > 59 || h*60+m > day {
		return 0, false
	}
	return int(h*60 + m), true
}

// Holds reports whether t is in h, by the clock of t's location.
func (h Hours) Holds(t time.Time) bool {
	at, today := minuteOf(t), t.Weekday()
	yesterday := (today + 6) % 7
	if h.from < h.to {
		return h.days[today] && at >= h.from && at < h.to
	}
	return h.days[today] && at >= h.from || h.days[yesterday] && at < h.to
}

// next gives the next moment after now at which one of hours begins.
func next(hours []Hours, now time.Time) time.Time {
	var first time.Time
	for _, h := range hours {
		for ahead := range 8 {
			at := time.Date(now.Year(), now.Month(), now.Day()+ahead, h.from/60, h.from%60, 0, 0, now.Location())
			if h.days[at.Weekday()] && at.After(now) {
				if first.IsZero() || at.Before(first) {
					first = at
				}
				break
			}
		}
	}
	return first
}
