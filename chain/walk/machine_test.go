package walk

import (
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// TestRows goes through the table of docs/walk.md: the first option meets what
// happened, a healthy second one stands behind it.
func TestRows(t *testing.T) {
	const next, stop = "alpha beta", "alpha"
	refusal := &Answer{Status: 400, Body: []byte(`{"error":{}}`)}
	rows := []struct {
		name    string
		turn    turn
		tried   string // "" is next
		end     End    // "" is Answered
		class   chain.Class
		cools   time.Duration // at least; 0: not at all
		most    time.Duration // at most; 0: a quarter more
		neutral bool
		stream  int // 1 streamed only, 2 plain only
		partial string
	}{
		{name: "connection refused", turn: fails(chain.Unreachable), class: chain.Unreachable, cools: time.Minute},
		{name: "server error", turn: fails(chain.Status), class: chain.Status, cools: time.Minute},
		{name: "server error with Retry-After", turn: wants(fails(chain.Status), 7*time.Second), class: chain.Status, cools: 7 * time.Second, most: 7 * time.Second},
		{name: "hangs", turn: turn{hang: true}, class: chain.Timeout, cools: time.Minute},
		{name: "role only, then silence", turn: turn{chunks: []Chunk{role()}, hang: true}, class: chain.Timeout, cools: time.Minute},
		{name: "role only, then the end", turn: turn{chunks: []Chunk{role()}, end: Outcome{Class: chain.OK, Status: 200}}, class: chain.BadAnswer, cools: time.Minute},
		{name: "empty", turn: turn{end: Outcome{Class: chain.OK, Status: 200}}, class: chain.BadAnswer, cools: time.Minute},
		{name: "no answer in a 200", turn: fails(chain.BadAnswer), class: chain.BadAnswer, cools: time.Minute},
		{name: "429 without a wish", turn: fails(chain.RateLimited), class: chain.RateLimited, cools: time.Minute},
		{name: "429 with a wish", turn: wants(fails(chain.RateLimited), 90*time.Second), class: chain.RateLimited, cools: 90 * time.Second, most: 90 * time.Second},
		{name: "429 with a wish in the past", turn: wants(fails(chain.RateLimited), 0), class: chain.RateLimited},
		{name: "429 with an absurd wish", turn: wants(fails(chain.RateLimited), 1000*time.Hour), class: chain.RateLimited, cools: time.Hour, most: time.Hour},
		{name: "401 without another key", turn: fails(chain.Credentials), class: chain.Credentials, cools: time.Minute},
		{name: "400", turn: turn{end: Outcome{Class: chain.CallerError, Status: 400, Answer: refusal}}, tried: stop, end: Refused, class: chain.CallerError, neutral: true},
		{name: "content filter", turn: turn{end: Outcome{Class: chain.Filtered, Status: 400, Answer: refusal}}, tried: stop, end: Refused, class: chain.Filtered, neutral: true},
		{name: "too long", turn: fails(chain.ContextLength), class: chain.ContextLength, neutral: true},
		{name: "feature missing", turn: fails(chain.Feature), class: chain.Feature, neutral: true},
		{name: "busy", turn: fails(chain.Busy), class: chain.Busy, neutral: true},
		{name: "declined", turn: fails(chain.Declined), class: chain.Declined, neutral: true},
		{name: "denied", turn: fails(chain.Denied), class: chain.Denied, neutral: true},
		{name: "no route", turn: fails(chain.Offline), class: chain.Offline, neutral: true},
		{name: "a defect of ours", turn: fails(chain.Internal), class: chain.Internal, neutral: true},
		{name: "unknown class", turn: fails("surprise"), class: chain.Internal, neutral: true},
		{name: "canceled by nobody", turn: fails(chain.Canceled), class: chain.Internal, neutral: true},
		{name: "breaks mid-answer", turn: turn{chunks: []Chunk{text("par")}, end: Outcome{Class: chain.Unreachable}}, tried: stop, end: Broken, class: chain.Cut, cools: time.Minute, stream: 1, partial: "par"},
		{name: "stalls mid-answer", turn: turn{chunks: []Chunk{text("par")}, hang: true}, tried: stop, end: Broken, class: chain.Cut, cools: time.Minute, stream: 1, partial: "par"},
		{name: "refuses mid-answer", turn: turn{chunks: []Chunk{text("par")}, end: Outcome{Class: chain.CallerError, Answer: refusal}}, tried: stop, end: Broken, class: chain.Cut, cools: time.Minute, stream: 1, partial: "par"},
		{name: "breaks mid-answer", turn: turn{chunks: []Chunk{text("par")}, end: Outcome{Class: chain.Cut}}, class: chain.Cut, cools: time.Minute, stream: 2},
		{name: "stalls mid-answer", turn: turn{chunks: []Chunk{text("par")}, hang: true}, class: chain.Timeout, cools: time.Minute, stream: 2},
	}
	for _, row := range rows {
		for mode, name := range []string{1: "streamed", 2: "plain"} {
			if mode == 0 || row.stream != 0 && row.stream != mode {
				continue
			}
			t.Run(name+"/"+row.name, func(t *testing.T) {
				p := Plan{Options: options("alpha", "beta"), Stream: mode == 1, Budget: 10 * time.Minute}
				p.Options[1].Limits.Context, p.Options[1].Limits.Features = 1<<20, []string{"tools"}
				s, now := standing(), epoch
				l := drive(p, s, script{"alpha": row.turn, "beta": answer("hel", "lo")}, &now, nil)

				end, tried, want := row.end, row.tried, row.partial
				if end == "" {
					end = Answered
				}
				if tried == "" {
					tried, want = next, "hello"
				}
				if l.result.End != end || join(l.tried) != tried || l.delivered != want {
					t.Errorf("end %s after %q with %q, want %s after %q with %q", l.result.End, join(l.tried), l.delivered, end, tried, want)
				}
				if got, want := l.classes(), "alpha:"+string(row.class); got != want {
					t.Errorf("failures %q, want %q", got, want)
				}
				m := l.measured[0]
				if m.Option != "alpha" || m.Class != row.class || m.Neutral != row.neutral {
					t.Errorf("measured %+v, want class %s, neutral %v", m, row.class, row.neutral)
				}
				if (l.result.Answer != nil) != (end == Refused) {
					t.Errorf("answer %v at the end %s", l.result.Answer, end)
				}
				own, asked := s.optionRest(&p.Options[0], m.At)
				wait := later(own, asked).Sub(m.At)
				if own.IsZero() && asked.IsZero() {
					wait = 0
				}
				most := row.most
				if most == 0 {
					most = row.cools + row.cools/4
				}
				if wait < row.cools || wait > most {
					t.Errorf("cools down for %v, want %v to %v", wait, row.cools, most)
				}
				if own, asked := s.optionRest(&p.Options[1], now); !own.IsZero() || !asked.IsZero() {
					t.Error("the healthy option cools down")
				}
			})
		}
	}
}

func join(all []string) string {
	out := ""
	for i, s := range all {
		if i > 0 {
			out += " "
		}
		out += s
	}
	return out
}
