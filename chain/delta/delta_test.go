package delta_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/chain/delta"
)

var (
	epoch = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	slot  = chain.Slot{Scope: chain.DefaultScope, Primitive: chain.LLMChat}
)

func view(t chaintest.T, text string) delta.View {
	options := chaintest.Options(t, text)
	for i := range options {
		options[i].Cost.Weight = 32
	}
	return delta.View{Slot: slot, Body: chain.CIDOf([]byte(text)), Options: options, Rules: chain.DefaultRules()}
}

func key(option string) delta.Key {
	return delta.Key{Primitive: chain.LLMChat, Option: chain.OptionID(option)}
}

// names spells an order out.
func names(v *delta.View, places []int) string {
	var out []chain.OptionID
	for _, at := range places {
		out = append(out, v.Options[at].ID)
	}
	return fmt.Sprint(out)
}

func (w *world) order() string {
	return names(&w.view, w.book.Order(&w.view, delta.Conversation{}, w.now))
}

// world is one device with one chain, and a clock.
type world struct {
	book *delta.Book
	view delta.View
	now  time.Time
}

func newWorld(t chaintest.T, text string) *world {
	return &world{delta.New(), view(t, text), epoch}
}

// request is one own request that option answered, or not, after a minute.
func (w *world) request(option string, ok bool, took time.Duration) (moved int) {
	w.now = w.now.Add(time.Minute)
	w.book.Observe(key(option), delta.Sample{OK: ok, Took: took, At: w.now})
	return w.book.Evaluate(&w.view, w.now)
}

// The hub's order may have reasons that the numbers in a body do not show.
func TestWithoutOwnSamplesTheHubsOrderStands(t *testing.T) {
	w := newWorld(t, "a p=.99 s=90 | b p=.99 s=1")
	for range delta.Enough - 1 {
		w.request("b", true, time.Second)
	}
	for range 10 {
		w.book.Evaluate(&w.view, w.now)
	}
	if got := w.order(); got != "[a b]" {
		t.Errorf("%s", got)
	}
	for range delta.Held {
		w.request("b", true, time.Second)
	}
	if got := w.order(); got != "[b a]" {
		t.Errorf("with samples: %s", got)
	}
}

func TestAGainMustBeLargeAndHold(t *testing.T) {
	w := newWorld(t, "a p=.99 s=1 | b p=.99 s=1.5")
	at := 0
	for i := 1; i <= 12 && at == 0; i++ {
		w.request("a", true, 20*time.Second)
		if w.order() == "[b a]" {
			at = i
		}
	}
	if at < delta.Enough+delta.Held-1 || at == 0 {
		t.Errorf("moved after %d requests, want at least %d samples and %d evaluations", at, delta.Enough, delta.Held)
	}
	rows := w.book.Explain(&w.view, w.now)
	if rows[1].Option != "a" || rows[1].HubAt != 1 || rows[1].Own.Latency <= rows[1].Hub.Latency || rows[1].Why == "" {
		t.Errorf("%+v", rows)
	}

	small := newWorld(t, "a p=.99 s=1 | b p=.99 s=1")
	for range 40 {
		small.request("a", true, 1100*time.Millisecond) // ten per cent of a part of the cost
	}
	if got := small.order(); got != "[a b]" {
		t.Errorf("a gain below the threshold moved it: %s", got)
	}
}

func TestAGainThatDoesNotHoldMovesNothing(t *testing.T) {
	w := newWorld(t, "a p=.99 s=1 | b p=.99 s=1.5")
	for range 20 {
		w.request("a", true, time.Second)
	}
	w.request("a", true, time.Hour)
	w.request("a", true, time.Hour)
	for range 5 {
		w.request("a", true, time.Second)
	}
	if got := w.order(); got != "[a b]" {
		t.Errorf("%s", got)
	}
}

// Two of one domain fail together: by index the second of them stands before c, but
// behind a failure of the first it is worth less.
func TestFailureDomainsAreMinded(t *testing.T) {
	for _, c := range []struct{ domain, want string }{{"d", "[a c b]"}, {"e", "[a b c]"}} {
		w := newWorld(t, "a p=.6 s=1 domain=d | c p=.6 s=8 | b p=.6 s=1.2 domain="+c.domain)
		for range 8 {
			for _, ok := range []bool{true, false, true, false, true} {
				w.request("b", ok, 1200*time.Millisecond)
			}
		}
		if got := w.order(); got != c.want {
			t.Errorf("b in domain %s: %s, want %s", c.domain, got, c.want)
		}
	}
}

func TestAFixedOrderStays(t *testing.T) {
	w := newWorld(t, "a p=.99 s=1 | b p=.99 s=1")
	w.view.Rules.Fixed = true
	for range 30 {
		w.request("a", false, time.Minute)
	}
	w.book.Warm(slot, delta.ConversationOf([]byte("x")), "b", w.now)
	if got := names(&w.view, w.book.Order(&w.view, delta.ConversationOf([]byte("x")), w.now)); got != "[a b]" {
		t.Errorf("%s", got)
	}
}

func TestASuspectMarkIsIgnoredWhileOwnSuccessIsYoung(t *testing.T) {
	const before = "a p=.99 s=1 | b p=.99 s=2 | c p=.99 s=3"
	w := newWorld(t, before)
	for range 6 {
		w.request("a", true, time.Second)
	}
	marked := view(t, "b p=.99 s=2 | c p=.99 s=3 | a p=.1 s=1")
	marked.Options[2].Cost.Usual = chain.PPMOf(.99)
	w.view = marked
	if got := w.order(); got != "[a b c]" {
		t.Errorf("with a young success: %s", got)
	}
	w.now = w.now.Add(delta.Fresh - time.Second)
	if got := w.order(); got != "[a b c]" {
		t.Errorf("just young enough: %s", got)
	}

	failed := newWorld(t, before)
	for range 6 {
		failed.request("a", true, time.Second)
	}
	failed.request("a", false, time.Second)
	failed.view = marked
	if got := failed.order(); got != "[b c a]" {
		t.Errorf("after a failure of its own: %s", got)
	}
}

// What was measured does not pass with the body it was first used on.
func TestANewBodyKeepsWhatIsKnown(t *testing.T) {
	w := newWorld(t, "a p=.99 s=1 | b p=.99 s=1.5")
	for range 12 {
		w.request("a", true, 20*time.Second)
	}
	w.view = view(t, "a p=.99 s=1.1 | b p=.99 s=1.5 | new p=.9 s=9")
	if got := w.order(); got != "[b a new]" {
		t.Errorf("%s", got)
	}
}

func TestWarmPath(t *testing.T) {
	w := newWorld(t, "a p=.99 s=1 | b p=.99 s=2 | far p=.99 s=60")
	talk := delta.ConversationOf([]byte("session"))
	order := func(c delta.Conversation) string { return names(&w.view, w.book.Order(&w.view, c, w.now)) }
	w.book.Warm(slot, talk, "b", w.now)
	w.book.Warm(slot, delta.Conversation{}, "b", w.now)
	if got := order(talk); got != "[b a far]" {
		t.Errorf("warm: %s", got)
	}
	if got := order(delta.ConversationOf([]byte("other"))) + order(delta.Conversation{}); got != "[a b far][a b far]" {
		t.Errorf("others: %s", got)
	}
	w.book.Warm(slot, talk, "far", w.now)
	if got := order(talk); got != "[a b far]" {
		t.Errorf("a credit is no order: %s", got)
	}
	w.book.Warm(slot, talk, "b", w.now)
	w.now = w.now.Add(2 * time.Hour)
	if got := order(talk); got != "[a b far]" {
		t.Errorf("cold by now: %s", got)
	}
	for i := range 5000 {
		w.book.Warm(slot, delta.ConversationOf(fmt.Append(nil, i)), "b", w.now)
	}
	if got := order(delta.ConversationOf([]byte("0"))) + order(delta.ConversationOf([]byte("4999"))); got != "[a b far][b a far]" {
		t.Errorf("the oldest are given up: %s", got)
	}
}

// TestItOnlyReorders: whatever happens, an order is a permutation of the chain.
func TestItOnlyReorders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b, now := delta.New(), epoch
		bodies := map[int]delta.View{}
		draw := func(n int) delta.View {
			if v, ok := bodies[n]; ok {
				return v
			}
			v := delta.View{Slot: slot, Body: chain.CIDOf(fmt.Append(nil, n)), Rules: chain.DefaultRules()}
			v.Rules.Fixed = n == 3
			for i := range rapid.IntRange(1, 40).Draw(t, "options") {
				o := chain.Option{ID: chain.OptionID(fmt.Sprint("o", (i*7+n)%41)), Kind: chain.Provider, Domain: fmt.Sprint(i % 3)}
				o.Cost = chain.Cost{Reliability: chain.PPM(rapid.IntRange(0, 1e6).Draw(t, "p")), Latency: chain.Millis(rapid.IntRange(0, 1e6).Draw(t, "s")),
					Credit: chain.MicroUSD(rapid.IntRange(0, 5000).Draw(t, "credit")), Usual: chain.PPM(rapid.SampledFrom([]int{0, 0, 900000}).Draw(t, "usual"))}
				v.Options = append(v.Options, o)
			}
			v.Usable = func(o *chain.Option) bool { return o.ID != "o4" }
			bodies[n] = v
			return v
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			v := draw(rapid.IntRange(0, 3).Draw(t, "body"))
			now = now.Add(time.Duration(rapid.Int64Range(-1e9, 1e13).Draw(t, "pause")))
			o := v.Options[rapid.IntRange(0, len(v.Options)-1).Draw(t, "option")].ID
			took := time.Duration(rapid.Int64Range(-1, 1e12).Draw(t, "took"))
			b.Observe(delta.Key{Primitive: chain.LLMChat, Option: o}, delta.Sample{OK: rapid.Bool().Draw(t, "ok"), Took: took, At: now})
			talk := delta.ConversationOf([]byte{byte(rapid.IntRange(0, 3).Draw(t, "talk"))})
			b.Warm(slot, talk, o, now)
			b.Evaluate(&v, now)
			for _, c := range []delta.Conversation{{}, talk} {
				got := slices.Clone(b.Order(&v, c, now))
				if v.Rules.Fixed && !slices.IsSorted(got) {
					t.Fatalf("a fixed order was changed: %v", got)
				}
				slices.Sort(got)
				for i := range max(len(got), len(v.Options)) {
					if i >= len(got) || got[i] != i {
						t.Fatalf("not a permutation of %d: %v", len(v.Options), got)
					}
				}
			}
			if len(b.Explain(&v, now)) != len(v.Options) {
				t.Fatal("explain leaves something out")
			}
		}
	})
}

// TestADistantDevice: ten times farther from the domain that the fleet likes best,
// a device has its own right order within 20 samples.
func TestADistantDevice(t *testing.T) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		w := newWorld(t, "near p=.99 s=1 domain=x | nearer p=.99 s=1.2 domain=x | other p=.99 s=2 domain=y")
		truth := map[string]float64{"near": 10, "nearer": 12, "other": 2}
		n := 0
		for ; n < 20 && w.order() != "[other near nearer]"; n++ {
			at := w.book.Order(&w.view, delta.Conversation{}, w.now)[0]
			id := string(w.view.Options[at].ID)
			w.request(id, random.Float64() < .99, time.Duration(truth[id]*noise(random)*1e9))
		}
		if got := w.order(); got != "[other near nearer]" && got != "[other nearer near]" {
			t.Errorf("seed %d: after %d samples %s", seed, n, got)
		}
	}
}

// noise is log-normal around 1.
// TestADistanceIsRemembered: what a device measured of an option long ago is worth
// nothing by itself, for the provider may have changed since. How much farther the
// device is from it than others still holds.
func TestADistanceIsRemembered(t *testing.T) {
	w := newWorld(t, "a p=.99 s=2 | b p=.99 s=2")
	hub := 2 * time.Second
	for range 30 {
		w.now = w.now.Add(10 * time.Minute)
		w.book.Observe(key("b"), delta.Sample{OK: true, Took: time.Second, At: w.now, Hub: hub})
	}
	seconds := func() float64 {
		for _, r := range w.book.Explain(&w.view, w.now) {
			if r.Option == "b" {
				return r.Own.Latency
			}
		}
		return 0
	}
	near := seconds()
	w.now = w.now.Add(4 * 24 * time.Hour)
	for i := range w.view.Options {
		w.view.Options[i].Cost.Latency *= 3
	}
	if later := seconds() / 3; later > 1.3*near {
		t.Errorf("%.2f of the hub's value then, %.2f four days later", near/2, later/2)
	}
}

// A failure while the option is marked leaves no bad name behind.
func TestASuspectFailureIsTheMarksMatter(t *testing.T) {
	w := newWorld(t, "a p=.99 s=1 | b p=.99 s=3")
	for range 30 {
		w.request("a", true, time.Second)
	}
	for range 20 {
		w.now = w.now.Add(time.Minute)
		w.book.Observe(key("a"), delta.Sample{Took: time.Second, At: w.now, Suspect: true})
	}
	if rows := w.book.Explain(&w.view, w.now); rows[0].Option != "a" || rows[0].Own.Reliability < .95 {
		t.Errorf("%+v", rows[0])
	}
}

func noise(r *rand.Rand) float64 { return exp(.35 * r.NormFloat64()) }

func TestItSurvivesARestart(t *testing.T) {
	w := newWorld(t, "a p=.99 s=1 | b p=.99 s=1.5")
	for range 12 {
		w.request("a", true, 20*time.Second)
	}
	kept, changed := w.book.Keep(w.now)
	if _, again := w.book.Keep(w.now); !changed || again {
		t.Errorf("changed %v, then %v", changed, again)
	}
	next := delta.New()
	next.Restore(kept, w.now)
	before, after := w.book.Explain(&w.view, w.now), next.Explain(&w.view, w.now)
	for i := range before {
		j := slices.IndexFunc(after, func(r delta.Row) bool { return r.Option == before[i].Option })
		if before[i].Own != after[j].Own {
			t.Errorf("%+v became %+v", before[i], after[j])
		}
	}
	back := delta.New()
	back.Restore(kept, w.now.Add(-24*time.Hour))
	if rows := back.Explain(&w.view, w.now); rows[0].Samples+rows[1].Samples != 0 {
		t.Error("records of the future were taken in")
	}
}

func BenchmarkOrder(b *testing.B) {
	w := benchWorld(b)
	talk := delta.ConversationOf([]byte("x"))
	w.book.Warm(slot, talk, w.view.Options[3].ID, w.now)
	b.ReportAllocs()
	for b.Loop() {
		w.book.Order(&w.view, delta.Conversation{}, w.now)
	}
}

func BenchmarkEvaluate(b *testing.B) {
	w := benchWorld(b)
	b.ReportAllocs()
	for b.Loop() {
		w.book.Evaluate(&w.view, w.now)
	}
}

func benchWorld(b *testing.B) *world {
	text := ""
	for i := range 12 {
		text += fmt.Sprintf("o%d p=.98 s=%d domain=d%d |", i, i+1, i%6)
	}
	w := newWorld(b, text)
	for i := range 120 {
		w.request(fmt.Sprint("o", i%12), true, time.Duration(i%12+1)*time.Second)
	}
	return w
}

// What was measured while the clock was ahead by years does not stand until then:
// when it is back, what is measured counts again.
func TestAClockThatWasAheadByYears(t *testing.T) {
	w := newWorld(t, "a p=.99 s=1 | b p=.99 s=1.5")
	right := w.now
	w.now = right.AddDate(10, 0, 0)
	for range 12 {
		w.request("a", true, time.Second)
	}
	w.now = right
	for range 30 {
		w.request("a", true, 20*time.Second)
	}
	if got := w.order(); got != "[b a]" {
		t.Errorf("%s", got)
	}
	k, _ := w.book.Keep(w.now)
	for _, r := range k.Records {
		if latest := chain.InstantOf(w.now); r.Last > latest || r.Latency.Newest > latest || r.Reliability.Newest > latest {
			t.Errorf("still in the future: %+v", r)
		}
	}
}
