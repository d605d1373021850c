package retry

import (
	"net/http"
	"testing"
	"time"
)

var noon = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func TestAfter(t *testing.T) {
	for _, tt := range []struct {
		header http.Header
		want   time.Duration
		given  bool
	}{
		{http.Header{}, 0, false},
		{http.Header{"Retry-After": {"7"}}, 7 * time.Second, true},
		{http.Header{"Retry-After": {" 7 "}}, 7 * time.Second, true},
		{http.Header{"Retry-After": {"0"}}, 0, true},
		{http.Header{"Retry-After": {"1.5"}}, 1500 * time.Millisecond, true},
		{http.Header{"Retry-After": {"2."}}, 2 * time.Second, true},
		{http.Header{"Retry-After": {"Sun, 29 Nov 2026 12:00:30 GMT"}}, 30 * time.Second, true},
		{http.Header{"Retry-After": {"Sunday, 29-Nov-26 12:00:30 GMT"}}, 30 * time.Second, true},
		{http.Header{"Retry-After": {"Sun Nov 29 12:00:30 2026"}}, 30 * time.Second, true},
		{http.Header{"Retry-After": {"Sun, 29 Nov 2020 12:00:30 GMT"}}, 0, true},
		{http.Header{"Retry-After": {"Sun, 29 Nov 2999 12:00:30 GMT"}}, most, true},
		{http.Header{"Retry-After": {"99999999999999999999999"}}, most, true},
		{http.Header{"Retry-After": {""}}, 0, false},
		{http.Header{"Retry-After": {"soon"}}, 0, false},
		{http.Header{"Retry-After": {"-1"}}, 0, false},
		{http.Header{"Retry-After": {"+1"}}, 0, false},
		{http.Header{"Retry-After": {"1e3"}}, 0, false},
		{http.Header{"Retry-After": {"inf"}}, 0, false},
		{http.Header{"Retry-After": {"NaN"}}, 0, false},
		{http.Header{"Retry-After": {"0x10"}}, 0, false},
		{http.Header{"Retry-After": {"1.2.3"}}, 0, false},
		{http.Header{"Retry-After": {".5"}}, 0, false},
		{http.Header{"Retry-After": {"1_000"}}, 0, false},
		{http.Header{"Retry-After": {"5", "9", "x"}}, 9 * time.Second, true},
		{http.Header{"Retry-After-Ms": {"2500"}}, 2500 * time.Millisecond, true},
		{http.Header{"Retry-After-Ms": {"2500"}, "Retry-After": {"1"}}, 2500 * time.Millisecond, true},
	} {
		if got, given := After(tt.header, noon); got != tt.want || given != tt.given {
			t.Errorf("%v: %v (%v), want %v (%v)", tt.header, got, given, tt.want, tt.given)
		}
	}
}

func FuzzAfter(f *testing.F) {
	for _, s := range []string{"7", "1.5", "Sun, 29 Nov 2026 12:00:30 GMT", "soon", "-1", "1e9", "9223372036854775807.9"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, v string) {
		for _, name := range []string{"Retry-After", "Retry-After-Ms"} {
			if d, given := After(http.Header{name: {v}}, noon); d < 0 || d > most || d > 0 && !given {
				t.Errorf("%s %q: %v (%v)", name, v, d, given)
			}
		}
	})
}
