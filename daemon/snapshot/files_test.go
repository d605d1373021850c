package snapshot

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/daemon/gate"
)

func seedOf(t testing.TB, date time.Time, agents ...string) []byte {
	t.Helper()
	var page map[string]json.RawMessage
	if err := json.Unmarshal([]byte(listing("", agents...)), &page); err != nil {
		t.Fatal(err)
	}
	return fmt.Appendf(nil, `{"date":%q,"capabilities":[{"id":"chat"}],"agents":%s}`, date.UTC().Format(time.RFC3339), page["agents"])
}

func fileOf(t testing.TB, at time.Time, agents ...string) []byte {
	t.Helper()
	var list []Agent
	if err := json.Unmarshal([]byte(strings.TrimSuffix(strings.TrimPrefix(listing("", agents...), `{"agents":`), `,"next_cursor":""}`)), &list); err != nil {
		t.Fatal(err)
	}
	b, err := lastGood{Registry: registryURL, FetchedAt: at, Agents: list}.encode()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// What a start takes, from registry, last-good and seed in that order.
func TestStart(t *testing.T) {
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) // where a bubble's clock begins
	file := func(age time.Duration) []byte { return fileOf(t, now.Add(-age), "file") }
	seed := func(age time.Duration) []byte { return seedOf(t, now.Add(-age), "seed") }
	up := []reply{untagged("", "live")}
	for name, c := range map[string]struct {
		registry   []reply
		file, seed []byte
		want       string
		source     Source
		after      string // 20 s later
	}{
		"the registry":                          {registry: up, file: file(0), seed: seed(0), want: "live", source: FromRegistry},
		"an empty registry, and no seed then":   {registry: []reply{untagged("")}, file: file(0), seed: seed(0), want: ErrNoSnapshot.Error()},
		"last-good":                             {file: file(time.Minute), seed: seed(0), want: "file", source: FromLastGood},
		"last-good at its oldest":               {file: file(time.Hour), seed: seed(0), want: "file", source: FromLastGood, after: ErrStale.Error()},
		"a stale last-good, not the seed":       {file: file(time.Hour + time.Second), seed: seed(0), want: ErrStale.Error(), source: FromLastGood},
		"the seed":                              {seed: seed(time.Minute), want: "seed", source: FromSeed},
		"a seed that is old":                    {seed: seed(2 * time.Hour), want: ErrStale.Error(), source: FromSeed},
		"a seed without agents":                 {seed: []byte(`{"date":"2000-01-01"}`), want: ErrNoSnapshot.Error()},
		"a damaged last-good is none":           {file: []byte("rubbish"), seed: seed(0), want: "seed", source: FromSeed},
		"a last-good of the future is none":     {file: file(-2 * time.Minute), seed: seed(0), want: "seed", source: FromSeed},
		"a last-good a little ahead":            {file: file(-time.Minute), seed: seed(0), want: "file", source: FromLastGood},
		"nothing":                               {want: ErrNoSnapshot.Error()},
		"a registry that hangs, and then fails": {registry: []reply{{delay: time.Hour}}, file: file(0), want: "file", source: FromLastGood},
		"a registry that is slow":               {registry: []reply{{body: listing("", "live"), delay: 5 * time.Second}}, file: file(0), want: "file", source: FromLastGood, after: "live"},
		"slow, and then empty":                  {registry: []reply{{body: listing(""), delay: 5 * time.Second}}, file: file(0), want: "file", source: FromLastGood, after: ErrNoSnapshot.Error()},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &script{}
			k := keeper(t, s, func(cfg *Config) { cfg.Store, cfg.Seed = &memory{b: c.file}, c.seed })
			s.play(c.registry...)
			began := time.Now()
			k.Start(t.Context())
			if st := k.State(time.Now()); names(k) != c.want || st.Source != c.source {
				t.Errorf("%s: %s from %q, want %s from %q", name, names(k), st.Source, c.want, c.source)
			}
			if d := time.Since(began); d > startWait {
				t.Errorf("%s: started after %v", name, d)
			}
			time.Sleep(20 * time.Second)
			if c.after != "" && names(k) != c.after {
				t.Errorf("%s: later %s, want %s", name, names(k), c.after)
			}
		})
	}
}

// A restart finds what was published, and a suspension that was published.
func TestLastGoodIsWhatWasPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, disk := &script{}, &memory{}
		k := keeper(t, s, func(c *Config) { c.Store = disk })
		s.play(tagged(`"1"`, "", "a", "b"))
		if err := k.Refresh(t.Context()); err != nil || disk.saves != 1 {
			t.Fatal(err)
		}
		restarted := func() string {
			other := keeper(t, &script{}, func(c *Config) { c.Store = disk })
			other.Start(t.Context())
			return names(other)
		}
		if got := restarted(); got != "a b" {
			t.Error(got)
		}
		s.play(tagged(`"2"`, "", "a", "b=suspended"))
		if err := k.Refresh(t.Context()); err != nil || restarted() != "a b=suspended" || disk.saves != 2 {
			t.Error(restarted(), err)
		}
		// Unchanged, the file is written again only as it grows old.
		for range 60 {
			time.Sleep(time.Minute)
			s.play(unchanged)
			if err := k.Refresh(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if disk.saves < 8 || disk.saves > 12 || restarted() != "a b=suspended" {
			t.Errorf("%d saves, %s", disk.saves, restarted())
		}
		// A disk that fails: said, published all the same, and tried again at the next walk.
		disk.err = errors.New("no space left")
		s.play(tagged(`"3"`, "", "a=suspended", "b"))
		if err := k.Refresh(t.Context()); err == nil || names(k) != "a=suspended b" || k.State(time.Now()).Err != nil {
			t.Error(names(k), err)
		}
		disk.err = nil
		s.play(unchanged)
		if err := k.Refresh(t.Context()); err != nil || restarted() != "a=suspended b" {
			t.Error(restarted(), err)
		}
		disk.err = errors.New("read only")
		s.play(untagged(""))
		if err := k.Refresh(t.Context()); err == nil || names(k) != ErrNoSnapshot.Error() {
			t.Error(names(k), err)
		}
	})
}

func TestEveryByteOfLastGood(t *testing.T) {
	now := time.Unix(1764460800, 0)
	good := fileOf(t, now, "a", "b=suspended")
	if _, err := decodeLastGood(good, registryURL, false, now); err != nil {
		t.Fatal(err)
	}
	if _, err := decodeLastGood(good, "https://other.example", false, now); !errors.Is(err, errFile) {
		t.Error("of another registry:", err)
	}
	for i := range good {
		changed := bytes.Clone(good)
		changed[i] ^= 1
		if _, err := decodeLastGood(changed, registryURL, false, now); !errors.Is(err, errFile) {
			t.Errorf("byte %d: %v", i, err)
		}
		if _, err := decodeLastGood(good[:i], registryURL, false, now); !errors.Is(err, errFile) {
			t.Errorf("cut at %d: %v", i, err)
		}
	}
}

func TestSeeds(t *testing.T) {
	for name, c := range map[string]struct{ seed, want string }{
		"no JSON":              {"date: x", "no RFC 8785 form"},
		"no date":              {`{"agents":[]}`, "date: want"},
		"a date of no kind":    {`{"date":"yesterday"}`, "date: want"},
		"a date in the future": {`{"date":"2999-01-01"}`, "in the future"},
		"an agent half":        {`{"date":"2020-01-01","agents":[{"did":"did:web:a"}]}`, "agent 1:"},
		"a name twice":         {`{"date":"2020-01-01","date":"2021-01-01"}`, "no RFC 8785 form"},
		"a contradiction":      {string(seedOf(t, time.Unix(0, 0), "a", "a=suspended")), "1 agents twice"},
		"too many":             {string(seedOf(t, time.Unix(0, 0), many("x", maxAgents+1)...)), "at most 1000"},
		"agents of no list":    {`{"date":"2020-01-01","agents":{}}`, "cannot unmarshal"},
	} {
		if _, _, err := decodeSeed([]byte(c.seed), false, time.Unix(1764460800, 0)); !errors.Is(err, errSeed) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := New(Config{Server: nilServer(t), Seed: []byte("{}")}); err == nil || !strings.HasPrefix(err.Error(), "SEED_PATH: ") {
		t.Error(err)
	}
}

func nilServer(t *testing.T) Server { return keeper(t, &script{}, nil).cfg.Server }

func TestRecords(t *testing.T) {
	good := Agent{"did:web:a.example", "llm.chat", "https://a.example/v1", StatusActive, "m"}
	for name, c := range map[string]struct {
		change func(*Agent)
		any    bool // usable of any registry
		own    bool // usable of the own one
	}{
		"good":                 {func(*Agent) {}, true, true},
		"suspended":            {func(a *Agent) { a.Status = StatusSuspended }, true, true},
		"no model":             {func(a *Agent) { a.ModelID = "" }, true, true},
		"webvh with a port":    {func(a *Agent) { a.DID = "did:webvh:Qm1:a.example%3A8443:x" }, true, true},
		"no DID":               {func(a *Agent) { a.DID = "" }, false, false},
		"no DID at all":        {func(a *Agent) { a.DID = "a.example" }, false, false},
		"a DID with a space":   {func(a *Agent) { a.DID += " " }, false, false},
		"a DID with a part":    {func(a *Agent) { a.DID += "#key-1" }, false, false},
		"a DID that goes on":   {func(a *Agent) { a.DID += ":" }, false, false},
		"half a percent":       {func(a *Agent) { a.DID += "%4" }, false, false},
		"a percent that is no": {func(a *Agent) { a.DID += "%zz" }, false, false},
		"an empty part":        {func(a *Agent) { a.DID = "did:x::y" }, true, true},
		"a method in capitals": {func(a *Agent) { a.DID = "did:Web:a.example" }, false, false},
		"a long DID":           {func(a *Agent) { a.DID += strings.Repeat("x", 512) }, false, false},
		"a did:key of no key":  {func(a *Agent) { a.DID = "did:key:z6Mk" }, false, false},
		"no capability":        {func(a *Agent) { a.Capability = "" }, false, false},
		"a capability of two":  {func(a *Agent) { a.Capability = "a b" }, false, false},
		"a status unknown":     {func(a *Agent) { a.Status = "Active" }, false, false},
		"no status":            {func(a *Agent) { a.Status = "" }, false, false},
		"a model with a line":  {func(a *Agent) { a.ModelID = "a\nb" }, false, false},
		"a long model":         {func(a *Agent) { a.ModelID = strings.Repeat("x", 257) }, false, false},
		"no endpoint":          {func(a *Agent) { a.Endpoint = "" }, false, true},
		"plain http":           {func(a *Agent) { a.Endpoint = "http://a.example" }, false, true},
		"loopback":             {func(a *Agent) { a.Endpoint = "https://127.0.0.1:1" }, false, true},
		"localhost":            {func(a *Agent) { a.Endpoint = "https://LOCALHOST./x" }, false, true},
		"the LAN":              {func(a *Agent) { a.Endpoint = "https://[fd00::1]" }, false, true},
		"metadata of a cloud":  {func(a *Agent) { a.Endpoint = "https://169.254.169.254" }, false, true},
		"mapped":               {func(a *Agent) { a.Endpoint = "https://[::ffff:10.0.0.1]" }, false, true},
		"a file":               {func(a *Agent) { a.Endpoint = "file:///etc/passwd" }, false, false},
		"a user":               {func(a *Agent) { a.Endpoint = "https://u:p@a.example" }, false, false},
		"a public address":     {func(a *Agent) { a.Endpoint = "https://93.184.215.14" }, true, true},
		"an endpoint too long": {func(a *Agent) { a.Endpoint += strings.Repeat("x", 1024) }, false, false},
	} {
		a := good
		c.change(&a)
		raw, err := json.Marshal(a)
		if err != nil {
			t.Fatal(err)
		}
		_, strict := readAgent(raw, false)
		_, loose := readAgent(raw, true)
		if strict != c.any || loose != c.own {
			t.Errorf("%s: %v of any registry, %v of the own one", name, strict, loose)
		}
	}
	for why, s := range chaintest.NoDIDs() {
		a := good
		a.DID = s
		if a.usable(true) {
			t.Errorf("%s: %q passes", why, s)
		}
	}
	if _, ok := readAgent([]byte(`{"DID":"did:web:a","Capability":"c","Endpoint":"https://a.example","Status":"active"}`), false); ok {
		t.Error("names in another case")
	}
	if _, ok := readAgent([]byte(`{"did":1}`), true); ok {
		t.Error("a DID that is a number")
	}
}

func FuzzLastGood(f *testing.F) {
	now := time.Unix(1764460800, 0)
	f.Add(fileOf(f, now, "a"))
	f.Add([]byte(magic + "\n{}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := decodeLastGood(b, registryURL, false, now)
		if err == nil && (len(l.Agents) == 0 || l.FetchedAt.After(now.Add(clockSlip))) {
			t.Errorf("%q", b)
		}
	})
}

func FuzzRecord(f *testing.F) {
	f.Add([]byte(`{"did":"did:web:a","capability":"c","endpoint":"https://a.example","status":"active","model_id":"m"}`), true)
	f.Add([]byte(`{"did":null,"status":[]}`), false)
	f.Fuzz(func(t *testing.T, b []byte, own bool) {
		a, ok := readAgent(b, own)
		if ok && (a.DID == "" || a.Capability == "" || !own && !strings.HasPrefix(a.Endpoint, "https://")) {
			t.Errorf("%q: %+v", b, a)
		}
	})
}

// Until the own hub's registry was heard for the first time, the chains that the same
// hub signs say who is an agent; from then on it does, over restarts too.
func TestTheOwnHubsRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := &script{}, &memory{}
		own := func(cfg *Config) { cfg.Own, cfg.Store = true, m }
		k := keeper(t, s, own)
		stands := func(k *Keeper, did string, want gate.Standing, fresh error) {
			t.Helper()
			if got := k.Standing("did:web:"+did, "llm.chat", time.Now()); got != want || !errors.Is(k.Fresh(time.Now()), fresh) {
				t.Errorf("%s is %s, fresh %v; want %s, %v", did, got, k.Fresh(time.Now()), want, fresh)
			}
		}
		k.Start(t.Context()) // nobody answers
		stands(k, "a", gate.Active, nil)
		s.play(untagged("", "a", "b"))
		if err := k.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		stands(k, "a", gate.Active, nil)
		stands(k, "c", gate.Unknown, nil)
		again := keeper(t, &script{}, own)
		done := make(chan struct{})
		go func() { defer close(done); again.Start(t.Context()) }()
		synctest.Wait()
		stands(again, "c", gate.Unknown, nil) // at once, from last-good
		<-done
		time.Sleep(168*time.Hour + time.Second)
		stands(again, "a", gate.Stale, ErrStale)
		s.play(untagged(""))
		if err := k.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		stands(k, "a", gate.Missing, ErrNoSnapshot) // empty is an answer
	})
}

// A fleet of more agents than a snapshot holds: who is not listed may be asked, if
// the registry is the own hub's.
func TestATruncatedSnapshotOfTheOwnHub(t *testing.T) {
	for own, want := range map[bool]gate.Standing{true: gate.Active, false: gate.Unknown} {
		synctest.Test(t, func(t *testing.T) {
			s := &script{}
			k := keeper(t, s, func(cfg *Config) { cfg.Own = own })
			s.play(pages(11)...)
			if err := k.Refresh(t.Context()); err != nil || !k.State(time.Now()).Truncated {
				t.Fatal(err)
			}
			if got := k.Standing("did:web:beyond", "llm.chat", time.Now()); got != want {
				t.Errorf("own %v: %s, want %s", own, got, want)
			}
		})
	}
}
