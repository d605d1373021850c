// Package retry owns one question: when may a server be asked again that said so? It
// reads what stands in an answer's header, and neither waits nor decides whether to.
package retry

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// most bounds what can be said at all. Whoever asks believes far less.
const most = 366 * 24 * time.Hour

// After reads from the header of an answer how long the server wants to be left alone,
// 366 days at most: seconds, also with a fraction, an HTTP date, or the header in
// milliseconds that some send beside it. A moment in the past means 0; the longest of
// several wins; what cannot be read was not given.
func After(h http.Header, now time.Time) (wait time.Duration, given bool) {
	for _, v := range h["Retry-After-Ms"] {
		if d, ok := decimal(v, time.Millisecond); ok {
			wait, given = max(wait, d), true
		}
	}
	for _, v := range h["Retry-After"] {
		d, ok := decimal(v, time.Second)
		if !ok {
			d, ok = untilDate(v, now)
		}
		if ok {
			wait, given = max(wait, d), true
		}
	}
	return wait, given
}

// decimal reads digits with an optional fraction. Signs, exponents and words
// such as inf, which ParseFloat would take, are refused.
func decimal(v string, unit time.Duration) (time.Duration, bool) {
	v = strings.TrimSpace(v)
	whole, fraction, dotted := strings.Cut(v, ".")
	if !digits(whole) || dotted && fraction != "" && !digits(fraction) || len(v) > 64 {
		return 0, false
	}
	n, err := strconv.ParseFloat(v, 64)
	if err != nil {
		return 0, false
	}
	if n >= float64(most/unit) {
		return most, true
	}
	return time.Duration(n * float64(unit)), true
}

func digits(s string) bool {
	for _, c := range []byte(s) {
		if c < '0' || c > '9' {
			return false
		}
	}
	return s != ""
}

func untilDate(v string, now time.Time) (time.Duration, bool) {
	at, err := http.ParseTime(strings.TrimSpace(v))
	if err != nil {
		return 0, false
	}
	return min(max(at.Sub(now), 0), most), true
}
