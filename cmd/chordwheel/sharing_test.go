package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/daemon/control"
)

func TestSharingInWords(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	later := now.Add(3 * time.Hour)
	on := control.Sharing{Scope: "workspace:home", On: true, Jobs: 8}
	off := control.Sharing{Scope: "workspace:work", Why: "it is outside of the hours for sharing", Back: &later}
	paused := control.Sharing{Scope: "workspace:home", Why: "sharing is paused until 15:00", Back: &later}
	for name, c := range map[string]struct {
		sharing []control.Sharing
		want    []string
	}{
		"in no mesh":            {nil, nil},
		"one scope":             {[]control.Sharing{on}, []string{"on, up to 8 jobs at once"}},
		"off, with a return":    {[]control.Sharing{off}, []string{"off: it is outside of the hours for sharing, on again in 3 h"}},
		"a return is said once": {[]control.Sharing{paused}, []string{"off: sharing is paused until 15:00"}},
		"alike in all scopes":   {[]control.Sharing{on, on}, []string{"on, up to 8 jobs at once"}},
		"different":             {[]control.Sharing{on, off}, []string{"workspace:home on, up to 8 jobs at once", "workspace:work off: it is outside of the hours for sharing, on again in 3 h"}},
	} {
		if got := (&app{}).sharingLines(control.Foreign{Sharing: c.sharing}, now); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
	line := foreignLine(control.Foreign{Running: 1, Answered: 2, Refused: map[string]uint64{"busy": 3, "revoked": 7, "expired": 3}})
	if !strings.HasSuffix(line, "; refused: 7 revoked, 3 busy, 3 expired") {
		t.Error(line)
	}
}
