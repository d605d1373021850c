package snapshot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/daemon/gate"
)

// many gives n names from a prefix.
func many(prefix string, n int) []string {
	var out []string
	for i := range n {
		out = append(out, fmt.Sprintf("%s%03d", prefix, i))
	}
	return out
}

// pages gives n pages of 100 agents each, the last of which leads on to more.
func pages(n int) []reply {
	var out []reply
	for i := range n {
		out = append(out, untagged(fmt.Sprint("c", i+1), many(fmt.Sprintf("p%02d-", i), 100)...))
	}
	return out
}

// Each row is two walks: a first one that gives a snapshot of "a b", and the one
// that is looked at. What a registry does wrong leaves that snapshot, and its age, as
// they were.
func TestARegistryPlaysEveryFault(t *testing.T) {
	a, b := tagged(`"1"`, "n", "a"), tagged(`"2"`, "", "b")
	big := strings.Repeat(" ", maxPage)
	html := reply{body: "<html>", header: http.Header{"Content-Type": {"text/html"}}}
	for name, c := range map[string]struct {
		first, then []reply
		want        string // published afterwards
		fresh       bool   // the age began anew
		err         error  // of the second walk, nil where any does
		fails       bool
		asked       string // in the second walk, "" where it does not matter
	}{
		"304 for a page for which we sent no validator": {first: []reply{untagged("", "a", "b")}, then: []reply{unchanged}, want: "a b", fails: true, err: ErrUnasked, asked: "|"},
		"304 for a page that is new":                    {first: []reply{a, b}, then: []reply{tagged(`"3"`, "new", "a"), unchanged}, want: "a b", fails: true, err: ErrUnasked},
		"304 for some pages, 200 for others":            {first: []reply{a, b}, then: []reply{unchanged, tagged(`"4"`, "", "b=suspended")}, want: "a b=suspended", fresh: true, asked: `|"1" n|"2"`},
		"200 for the first, 304 for the rest":           {first: []reply{a, b}, then: []reply{tagged(`"4"`, "n", "x"), unchanged}, want: "x b", fresh: true, asked: `|"1" n|"2"`},
		"304 for all":                                   {first: []reply{a, b}, then: []reply{unchanged, unchanged}, want: "a b", fresh: true, asked: `|"1" n|"2"`},
		"a page without a validator among them":         {first: []reply{untagged("n", "a"), b}, then: []reply{untagged("n", "a"), unchanged}, want: "a b", fresh: true, asked: `| n|"2"`},
		"it grows by a page":                            {first: []reply{untagged("", "a", "b")}, then: []reply{untagged("n", "a", "b"), untagged("", "c")}, want: "a b c", fresh: true},
		"it shrinks to one":                             {first: []reply{a, b}, then: []reply{tagged(`"9"`, "", "a")}, want: "a", fresh: true},

		"a cursor loop":                {first: []reply{a, b}, then: []reply{untagged("x", "a"), untagged("y", "b"), untagged("x", "c")}, want: "a b", fails: true, err: ErrCursor},
		"a cursor that is itself":      {first: []reply{a, b}, then: []reply{untagged("x", "a"), untagged("x", "b")}, want: "a b", fails: true, err: ErrCursor},
		"a very long cursor":           {first: []reply{a, b}, then: []reply{untagged(strings.Repeat("x", maxCursor+1), "a")}, want: "a b", fails: true, err: ErrCursor},
		"a cursor of the longest kind": {first: []reply{a, b}, then: []reply{untagged(strings.Repeat("x", maxCursor), "a"), b}, want: "a b", fresh: true},
		"a cursor that is a number":    {first: []reply{a, b}, then: []reply{{body: `{"agents":[],"next_cursor":1}`}}, want: "a b", fails: true, err: ErrCursor},
		"a cursor that is null":        {first: []reply{a, b}, then: []reply{{body: strings.Replace(listing("", "z"), `""`, "null", 1)}}, want: "z", fresh: true},
		"a cursor with an ampersand":   {first: []reply{a, b}, then: []reply{untagged("x&page_size=9/../é", "a"), b}, want: "a b", fresh: true, asked: `|"1" x&page_size=9/../é|`},
		"empty pages without end":      {first: []reply{a, b}, then: emptyPages(), want: "a b", fails: true, err: ErrCursor},

		"the same agent twice":                  {first: []reply{a, b}, then: []reply{untagged("", "a", "b", "a")}, want: "a b", fresh: true},
		"the same agent on two pages":           {first: []reply{a, b}, then: []reply{untagged("x", "a", "b"), untagged("", "b", "c")}, want: "a b c", fresh: true},
		"an agent twice, differently":           {first: []reply{a, b}, then: []reply{untagged("", "a", "b", "c=suspended", "c")}, want: "a b", fresh: true},
		"an agent that changed during the walk": {first: []reply{a, b}, then: []reply{untagged("x", "a", "c"), untagged("", "c=suspended", "b", "c")}, want: "a b", fresh: true},
		"nothing but contradictions":            {first: []reply{a, b}, then: []reply{untagged("", "c", "c=suspended")}, want: "a b", fails: true, err: ErrNothing},

		"records that cannot be used": {first: []reply{a, b}, then: []reply{{body: strings.Replace(listing("", "a"), "[", `[null,1,[],{},{"did":"x"},`, 1)}}, want: "a", fresh: true},
		"none that can":               {first: []reply{a, b}, then: []reply{{body: `{"agents":[{}]}`}}, want: "a b", fails: true, err: ErrNothing},

		"HTML":                       {first: []reply{a, b}, then: []reply{html}, want: "a b", fails: true, err: ErrPage},
		"HTML that says it is JSON":  {first: []reply{a, b}, then: []reply{{body: "<html>"}}, want: "a b", fails: true, err: ErrPage},
		"an empty body":              {first: []reply{a, b}, then: []reply{{}}, want: "a b", fails: true, err: ErrPage},
		"a body cut short":           {first: []reply{a, b}, then: []reply{{body: listing("", "a")[:30]}}, want: "a b", fails: true, err: ErrPage},
		"a connection cut short":     {first: []reply{a, b}, then: []reply{{body: listing("", "c"), cut: true}}, want: "a b", fails: true},
		"no list":                    {first: []reply{a, b}, then: []reply{{body: `{}`}}, want: "a b", fails: true, err: ErrPage},
		"a list that is null":        {first: []reply{a, b}, then: []reply{{body: `{"agents":null}`}}, want: "a b", fails: true, err: ErrPage},
		"a list of another name":     {first: []reply{a, b}, then: []reply{{body: `{"Agents":[]}`}}, want: "a b", fails: true, err: ErrPage},
		"a list that is an object":   {first: []reply{a, b}, then: []reply{{body: `{"agents":{}}`}}, want: "a b", fails: true, err: ErrPage},
		"a name twice":               {first: []reply{a, b}, then: []reply{{body: `{"agents":[],` + listing("", "a")[1:]}}, want: "a b", fails: true, err: ErrPage},
		"more behind it":             {first: []reply{a, b}, then: []reply{{body: listing("", "a") + "{}"}}, want: "a b", fails: true, err: ErrPage},
		"a body that is large":       {first: []reply{a, b}, then: []reply{{body: listing("", "a") + big}}, want: "a b", fails: true},
		"gzip":                       {first: []reply{a, b}, then: []reply{{body: "\x1f\x8b", header: http.Header{"Content-Encoding": {"gzip"}}}}, want: "a b", fails: true},
		"500":                        {first: []reply{a, b}, then: []reply{{status: 500, body: listing("", "c")}}, want: "a b", fails: true},
		"a redirect":                 {first: []reply{a, b}, then: []reply{{status: 302, header: http.Header{"Location": {"https://evil.example"}}}}, want: "a b", fails: true},
		"204":                        {first: []reply{a, b}, then: []reply{{status: 204}}, want: "a b", fails: true},
		"refused":                    {first: []reply{a, b}, then: nil, want: "a b", fails: true},
		"the second page fails":      {first: []reply{a, b}, then: []reply{untagged("n", "x"), {status: 503}}, want: "a b", fails: true},
		"headers, and then nothing":  {first: []reply{a, b}, then: []reply{{body: listing("", "c"), drip: time.Hour}}, want: "a b", fails: true, err: context.DeadlineExceeded},
		"one byte a second":          {first: []reply{a, b}, then: []reply{{body: listing("", "c"), drip: time.Second}}, want: "a b", fails: true, err: context.DeadlineExceeded},
		"each page just in time":     {first: []reply{a, b}, then: []reply{{body: listing("x", "c"), delay: 8 * time.Second}, {body: listing("", "d"), delay: 8 * time.Second}}, want: "a b", fails: true, err: context.DeadlineExceeded},
		"nothing at all":             {first: []reply{a, b}, then: []reply{{delay: time.Hour}}, want: "a b", fails: true, err: context.DeadlineExceeded},
		"suspended and deregistered": {first: []reply{a, b}, then: []reply{untagged("", "a=suspended", "b=deregistered")}, want: "a=suspended b=deregistered", fresh: true},
		"an empty catalogue":         {first: []reply{a, b}, then: []reply{untagged("")}, want: ErrNoSnapshot.Error(), fresh: true},
		"an empty one over pages":    {first: []reply{a, b}, then: []reply{untagged("x"), untagged("")}, want: ErrNoSnapshot.Error(), fresh: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &script{}
			k := keeper(t, s, nil)
			s.play(c.first...)
			if err := k.Refresh(t.Context()); err != nil || names(k) != "a b" {
				t.Fatalf("%s: first: %s, %v", name, names(k), err)
			}
			before := k.State(time.Now()).FetchedAt
			time.Sleep(time.Minute)
			s.play(c.then...)
			began := time.Now()
			err := k.Refresh(t.Context())
			if (err != nil) != c.fails || c.err != nil && !errors.Is(err, c.err) || names(k) != c.want {
				t.Errorf("%s: %s, %v; want %s, %v", name, names(k), err, c.want, c.err)
			}
			if st := k.State(time.Now()); st.Err == nil && st.FetchedAt.Equal(before) == c.fresh || (st.Refresh != nil) != c.fails {
				t.Errorf("%s: fetched at %v, before at %v: %+v", name, st.FetchedAt, before, st)
			}
			if c.asked != "" && s.requests() != c.asked {
				t.Errorf("%s: asked %s, want %s", name, s.requests(), c.asked)
			}
			if d := time.Since(began); d > walkLimit {
				t.Errorf("%s: took %v", name, d)
			}
			if c.fails { // a failed walk keeps the validators of the last good one
				s.play(unchanged, unchanged)
				if err := k.Refresh(t.Context()); slices.ContainsFunc(c.first, func(r reply) bool { return r.header == nil }) == (err == nil) {
					t.Errorf("%s: afterwards: %v", name, err)
				}
			}
		})
	}
}

func emptyPages() []reply {
	var out []reply
	for i := range maxPages {
		out = append(out, untagged(fmt.Sprint("c", i+1)))
	}
	return out
}

func TestTheEleventhPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		k := keeper(t, s, nil)
		s.play(pages(11)...)
		if err := k.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		st := k.State(time.Now())
		if st.Agents != 1000 || !st.Truncated || st.Err != nil || strings.Count(s.requests(), "|") != 10 {
			t.Errorf("%+v", st)
		}
		ten := pages(10)
		ten[9] = untagged("", many("p09-", 100)...)
		s.play(ten...)
		if err := k.Refresh(t.Context()); err != nil || k.State(time.Now()).Truncated || k.State(time.Now()).Agents != 1000 {
			t.Errorf("ten pages: %v, %+v", err, k.State(time.Now()))
		}
		s.play(untagged("", many("x", 1500)...))
		if err := k.Refresh(t.Context()); err != nil || !k.State(time.Now()).Truncated || k.State(time.Now()).Agents != 1000 {
			t.Errorf("one large page: %v, %+v", err, k.State(time.Now()))
		}
	})
}

// What is passed over is counted, and said in the log, also where its page is only known from
// before.
func TestWhatIsLeftOutIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		var log bytes.Buffer
		k := keeper(t, s, func(c *Config) { c.Log = slog.New(slog.NewJSONHandler(&log, nil)) })
		bad := tagged(`"1"`, "n", "a", "c=suspended")
		bad.body = strings.Replace(bad.body, "[", `[null,1,[],{},{"did":"x"},`, 1)
		s.play(bad, tagged(`"2"`, "", "b", "c"))
		if err := k.Refresh(t.Context()); err != nil || names(k) != "a b" {
			t.Fatal(names(k), err)
		}
		if st := k.State(time.Now()); st.Skipped != 5 || st.Conflicts != 1 || !strings.Contains(log.String(), `"agents":2,"skipped":5,"conflicts":1,"truncated":false`) {
			t.Errorf("%+v %s", st, log.String())
		}
		s.play(unchanged, tagged(`"3"`, "", "b"))
		if err := k.Refresh(t.Context()); err != nil || names(k) != "a c=suspended b" {
			t.Error(names(k), err)
		}
		if st := k.State(time.Now()); st.Skipped != 5 || st.Conflicts != 0 {
			t.Errorf("%+v", st)
		}
		log.Reset()
		s.play(pages(11)...)
		if err := k.Refresh(t.Context()); err != nil || !strings.Contains(log.String(), `"truncated":true`) {
			t.Error(err, log.String())
		}
	})
}

// After an empty catalogue nothing revives what was: no 304, no last-good, no seed.
func TestEmptyThen304(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := &script{}, &memory{}
		k := keeper(t, s, func(c *Config) { c.Store, c.Seed = disk, seedOf(t, time.Now(), "s") })
		s.play(tagged(`"1"`, "", "a"))
		k.Start(t.Context())
		if names(k) != "a" || disk.b == nil {
			t.Fatal(names(k))
		}
		s.play(tagged(`"2"`, ""))
		if err := k.Refresh(t.Context()); err != nil || names(k) != ErrNoSnapshot.Error() || disk.b != nil || !k.State(time.Now()).Empty {
			t.Error(names(k), err)
		}
		for range 2 {
			s.play(unchanged)
			if err := k.Refresh(t.Context()); !errors.Is(err, ErrUnasked) || s.requests() != "|" || names(k) != ErrNoSnapshot.Error() {
				t.Errorf("304: %v, asked %s, %s", err, s.requests(), names(k))
			}
		}
		k.fallBack(time.Now())
		if names(k) != ErrNoSnapshot.Error() {
			t.Error("revived:", names(k))
		}
		s.play(tagged(`"1"`, "", "a"))
		if err := k.Refresh(t.Context()); err != nil || names(k) != "a" || disk.b == nil || k.State(time.Now()).Empty {
			t.Error(names(k), err)
		}
	})
}

func TestETags(t *testing.T) {
	for tag, want := range map[string]string{
		`"a"`: `"a"`, `W/"a"`: `W/"a"`, "unquoted": "unquoted", "": "", strings.Repeat("x", maxETag): strings.Repeat("x", maxETag), strings.Repeat("x", maxETag+1): "", "a\tb": "", "é": "",
	} {
		if got := validator(http.Header{"Etag": {tag}}); got != want {
			t.Errorf("%q: %q", tag, got)
		}
	}
	if validator(http.Header{"Etag": {`"a"`, `"b"`}}) != "" {
		t.Error("one of two")
	}
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		k := keeper(t, s, nil)
		s.play(tagged(`"same"`, "n", "a"), tagged(`"same"`, "", "b"))
		if err := k.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		s.play(unchanged, tagged(`"other"`, "", "c"))
		if err := k.Refresh(t.Context()); err != nil || names(k) != "a c" || s.requests() != `|"same" n|"same"` {
			t.Error(names(k), err, s.requests())
		}
		// What a walk no longer visits is forgotten.
		s.play(tagged(`"x"`, "", "a"))
		_ = k.Refresh(t.Context())
		s.play(tagged(`"y"`, "n", "a"), tagged(`"z"`, "", "b"))
		if err := k.Refresh(t.Context()); err != nil || s.requests() != `|"x" n|` {
			t.Error(err, s.requests())
		}
	})
}

// Who asks while a refresh is under way shares the next one: the first has asked the registry
// already, which may have news since. Whoever leaves, the refresh goes on.
func TestRefreshesCoalesce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		k := keeper(t, s, nil)
		s.play(reply{body: listing("", "a"), delay: 5 * time.Second}, reply{body: listing("", "a", "b"), delay: 5 * time.Second}, reply{body: listing("", "c"), always: true})
		ctx, cancel := context.WithCancel(t.Context())
		errs := make(chan error, 3)
		go func() { errs <- k.Refresh(ctx) }()
		synctest.Wait()
		for range 2 {
			go func() { errs <- k.Refresh(t.Context()) }()
		}
		synctest.Wait()
		cancel()
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		time.Sleep(5*time.Second + time.Millisecond)
		if got := names(k); got != "a" {
			t.Errorf("after the first: %s", got)
		}
		if err := errors.Join(<-errs, <-errs); err != nil || s.requests() != "| |" || names(k) != "a b" {
			t.Error(err, s.requests(), names(k))
		}
		if err := k.Refresh(t.Context()); err != nil || names(k) != "c" {
			t.Error(err, names(k))
		}
		s.play(reply{body: listing("", "d"), delay: time.Hour})
		for range 3 {
			go func() { errs <- k.Refresh(t.Context()) }()
			synctest.Wait()
		}
		k.Close()
		ended := 0
		for range 3 {
			if errors.Is(<-errs, ErrClosed) {
				ended++
			}
		}
		if ended != 2 || names(k) != "c" {
			t.Errorf("%d were told that it is closed, and %s are known", ended, names(k))
		}
	})
}

func TestStaleness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		k := keeper(t, s, nil)
		s.play(untagged("", "a", "b=suspended", "c=deregistered"))
		if err := k.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]gate.Standing{"a": gate.Active, "b": gate.Suspended, "c": gate.Unknown, "d": gate.Unknown} {
			if got := k.Standing("did:web:"+name, "llm.chat", time.Now()); got != want {
				t.Errorf("%s: %s", name, got)
			}
		}
		if got := k.Standing("did:web:a", "llm.t3", time.Now()); got != gate.Unknown {
			t.Error("another capability:", got)
		}
		time.Sleep(time.Hour)
		if got := k.Standing("did:web:a", "llm.chat", time.Now()); got != gate.Active || k.State(time.Now()).Err != nil {
			t.Error("at its oldest:", got)
		}
		time.Sleep(1 * time.Nanosecond)
		if got := k.Standing("did:web:a", "llm.chat", time.Now()); got != gate.Stale || !errors.Is(k.State(time.Now()).Err, ErrStale) {
			t.Error("older:", got)
		}
		s.play(untagged("", "a"))
		if err := k.Refresh(t.Context()); err != nil || names(k) != "a" {
			t.Error(names(k), err)
		}
		// A wall clock that was set ahead counts too, one that was set back does not help.
		if _, err := k.Current(time.Now().Round(0).Add(2 * time.Hour)); !errors.Is(err, ErrStale) {
			t.Error(err)
		}
	})
}

func TestTheLoop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		k := keeper(t, s, func(c *Config) { c.Interval = time.Minute })
		s.play(reply{body: listing("", "a"), always: true})
		k.Start(t.Context())
		time.Sleep(time.Hour)
		if n := strings.Count(s.requests(), "|"); n < 54 || n > 68 {
			t.Errorf("%d requests", n)
		}
		k.Close()
		if err := k.Refresh(t.Context()); !errors.Is(err, ErrClosed) || names(k) != "a" {
			t.Error(err, names(k))
		}
	})
}

func TestLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &script{}
		var log bytes.Buffer
		k := keeper(t, s, func(c *Config) { c.Log = slog.New(slog.NewJSONHandler(&log, nil)) })
		s.play(untagged("", "a", "c", "c=suspended"))
		if err := k.Refresh(t.Context()); err != nil || !strings.Contains(log.String(), "registered twice") || strings.Contains(log.String(), "c.example") || strings.Count(log.String(), "sha256:") != 2 {
			t.Error(err, log.String())
		}
	})
}
