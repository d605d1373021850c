package orchestrator_test

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/wire"
	"github.com/chordwheel/chordwheel/orchestrator"
	"github.com/chordwheel/chordwheel/orchestrator/catalog"
)

// many is a catalogue with n provider options for llm.chat.
func many(n int, reversed bool) string {
	var y, order strings.Builder
	y.WriteString("providers:\n")
	for i := range n {
		fmt.Fprintf(&y, "  - {name: p%d, adapter: openai, endpoint: \"https://p%d.example/v1\", models: [{name: m, primitives: [llm.chat], price: {input_per_mtok: %d}}]}\n", i, i, i%17)
		at := i
		if reversed {
			at = n - 1 - i
		}
		fmt.Fprintf(&order, "p%d/m, ", at)
	}
	fmt.Fprintf(&y, "primitives:\n  - {name: llm.chat, default: [%s]}\n", strings.TrimSuffix(order.String(), ", "))
	return y.String()
}

// BenchmarkReload200 is a catalogue of 200 options, ordered and published for one scope.
func BenchmarkReload200(b *testing.B) {
	r := start(b, newDisk(), parsed(b, many(200, false)))
	r.joined("a")
	catalogues := []string{many(200, true), many(200, false)}
	one, two := parsed(b, catalogues[0]), parsed(b, catalogues[1])
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		c := one
		if i%2 == 1 {
			c = two
		}
		if err := r.Reload(context.Background(), c); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReport is the intake of one batch (20 counters, 50 measurements), durable
// writes left out, with the order of the scope looked over after each.
func BenchmarkReport(b *testing.B) {
	for _, options := range []int{3, 20, 200} {
		b.Run(fmt.Sprintf("options=%d", options), func(b *testing.B) {
			r := start(b, newDisk(), parsed(b, many(options, false)))
			peers := make([]chain.PeerID, 200) // none meets its limit
			for i := range peers {
				peers[i] = r.joined(fmt.Sprint("a", i)).key.PeerID()
			}
			now := chain.InstantOf(time.Now())
			q := wire.Report{BootID: "boot", From: now - 60_000, To: now}
			for i := range 20 {
				id := chain.OptionID(fmt.Sprintf("p%d/m", i%options))
				q.Counters = append(q.Counters, wire.Counter{Slot: home, Option: id, Attempts: 10, Outcomes: map[chain.Class]uint64{chain.OK: 9, chain.Timeout: 1}})
			}
			for i := range 50 {
				id := chain.OptionID(fmt.Sprintf("p%d/m", i%options))
				q.Measurements = append(q.Measurements, wire.Measurement{Slot: home, Option: id, Class: chain.OK, At: now, Total: 900})
			}
			b.ReportAllocs()
			for b.Loop() {
				q.Seq++
				if reply, err := r.Report(context.Background(), peers[q.Seq%200], q); err != nil || !reply.Accepted {
					b.Fatal(reply, err)
				}
			}
		})
	}
}

// BenchmarkExplain is what the hub's page and `chain explain` ask for: the whole why of one chain.
func BenchmarkExplain(b *testing.B) {
	for _, options := range []int{12, 200} {
		b.Run(fmt.Sprintf("options=%d", options), func(b *testing.B) {
			r := start(b, newDisk(), parsed(b, many(options, false)))
			r.joined("a")
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Explain(context.Background(), home); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkFetch is a head signed for a device that has the body.
func BenchmarkFetch(b *testing.B) {
	r := start(b, newDisk(), parsed(b, many(200, false)))
	d := r.joined("a")
	e, err := r.Chains(context.Background())
	if err != nil || len(e) != 1 {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Fetch(context.Background(), d.key.PeerID(), wire.Fetch{Slot: home, Body: e[0].Body}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkProtest is a look-up and a signature, beside the bare signature of as
// many bytes, in turn: the ratio of their processor times is what counts. Two
// thousand devices take turns, so that none meets its limit. paced asks a
// thousand times a second and gives the 99th percentile of the answers.
func BenchmarkProtest(b *testing.B) {
	r := start(b, newDisk(), parsed(b, declared))
	i := r.invite(orchestrator.Invite{Uses: 2000})
	peers := make([]chain.PeerID, 2000)
	for n := range peers {
		d := r.device(fmt.Sprintf("%06d", n), "key:alpha")
		if _, err := d.enrol(i); err != nil {
			b.Fatal(err)
		}
		peers[n] = d.key.PeerID()
	}
	e, err := r.Chains(context.Background())
	if err != nil || len(e) != 1 {
		b.Fatal(err)
	}
	number := 0
	protest := func() []byte {
		number++
		reply, err := r.Protest(context.Background(), peers[number%len(peers)], wire.Protest{Slot: home, Body: e[0].Body, Nonce: fmt.Sprint(number),
			Failed: []chain.Failure{{Option: "alpha/small", Class: chain.Timeout}}})
		if err != nil || reply.Extension == nil {
			b.Fatal(reply, err)
		}
		return reply.Extension
	}
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		b.Fatal(err)
	}
	payload := protest()

	b.Run("ratio", func(b *testing.B) {
		var asked, signed time.Duration
		b.ReportAllocs()
		for b.Loop() {
			began := processor()
			for range 200 {
				protest()
			}
			between := processor()
			for range 200 {
				ed25519.Sign(private, payload)
			}
			asked, signed = asked+between-began, signed+processor()-between
		}
		n := float64(200 * b.N)
		b.ReportMetric(float64(asked.Nanoseconds())/n, "ns/protest")
		b.ReportMetric(float64(signed.Nanoseconds())/n, "ns/signature")
		b.ReportMetric(float64(asked)/float64(signed), "x-signature")
	})
	b.Run("paced", func(b *testing.B) {
		var took []time.Duration
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for b.Loop() {
			for range 1000 {
				<-tick.C
				began := time.Now()
				protest()
				took = append(took, time.Since(began))
			}
		}
		slices.Sort(took)
		b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "us-p99")
		b.ReportMetric(float64(took[len(took)/2].Microseconds()), "us-p50")
	})
}

// sweeping is the catalogue declared with a thousand kinds of workspaces beside, whose
// chains of four more primitives hang on a price.
func sweeping(kinds, price int) string {
	var providers, primitives, workspaces strings.Builder
	providers.WriteString("providers:\n")
	for i := range manyOptions {
		fmt.Fprintf(&providers, "  - {name: p%d, adapter: openai, endpoint: \"https://p%d.example/v1\", models: [{name: m, primitives: [llm.t1, llm.t2, llm.t3, embed.text], price: {input_per_mtok: %g}}]}\n",
			i, i, float64((i+price)%7)/10)
	}
	primitives.WriteString("primitives:\n")
	for _, p := range []string{"llm.t1", "llm.t2", "llm.t3", "embed.text"} {
		fmt.Fprintf(&primitives, "  - {name: %s, default: [%s]}\n", p, options(0))
	}
	workspaces.WriteString("workspaces:\n  - {id: home}\n")
	for i := range kinds {
		fmt.Fprintf(&workspaces, "  - {id: kind%d, weights: {second: %d}}\n", i, 100+i)
	}
	return strings.NewReplacer("providers:\n", providers.String(), "primitives:\n", primitives.String(), "workspaces: [{id: home}]\n", workspaces.String()).Replace(declared)
}

// BenchmarkProtestInASweep asks a thousand times a second while one edit after another
// of a price has thousands of chains looked over and published, and gives the 99th
// percentile of the answers. The share of questions that were asked during a sweep
// stands beside it.
func BenchmarkProtestInASweep(b *testing.B) {
	const kinds, askers = 1000, 1000
	catalogues := []catalog.Catalog{parsed(b, sweeping(kinds, 0)), parsed(b, sweeping(kinds, 3))}
	r := start(b, newDisk(), catalogues[0])
	for i := range kinds {
		if _, err := r.device(fmt.Sprintf("k%05d", i)).enrol(r.invite(orchestrator.Invite{Scope: chain.ScopeID(fmt.Sprint("workspace:kind", i))})); err != nil {
			b.Fatal(err)
		}
	}
	invitation := r.invite(orchestrator.Invite{Uses: askers})
	peers := make([]chain.PeerID, askers)
	var d *device
	for n := range peers {
		d = r.device(fmt.Sprintf("%06d", n), "key:alpha")
		if _, err := d.enrol(invitation); err != nil {
			b.Fatal(err)
		}
		peers[n] = d.key.PeerID()
	}
	c, err := d.fetch(home)
	if err != nil {
		b.Fatal(err)
	}

	ctx, stop := context.WithCancel(context.Background())
	var editor sync.WaitGroup
	var busy atomic.Bool
	var sweeps atomic.Int64
	before := r.overview().Orders
	editor.Go(func() {
		for i := 1; ctx.Err() == nil; i++ {
			busy.Store(true)
			if err := r.Reload(ctx, catalogues[i%2]); err != nil {
				return // the benchmark is over
			}
			for r.Sweeping() > 0 && ctx.Err() == nil {
				time.Sleep(10 * time.Millisecond)
			}
			busy.Store(false)
			sweeps.Add(1)
		}
	})
	var took []time.Duration
	during, number := 0, 0
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for b.Loop() {
		for range 1000 {
			<-tick.C
			if busy.Load() {
				during++
			}
			began := time.Now()
			number++
			reply, err := r.Protest(context.Background(), peers[number%len(peers)], wire.Protest{Slot: home, Body: c.Head().Body, Nonce: fmt.Sprint(number),
				Failed: []chain.Failure{{Option: "alpha/small", Class: chain.Timeout}}})
			if err != nil || reply.Extension == nil {
				b.Fatal(reply, err)
			}
			took = append(took, time.Since(began))
		}
	}
	stop()
	editor.Wait()
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "us-p99")
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "us-p50")
	b.ReportMetric(float64(took[len(took)-1].Microseconds()), "us-max")
	b.ReportMetric(100*float64(during)/float64(len(took)), "%-in-sweeps")
	b.ReportMetric(float64(r.overview().Orders-before)/float64(max(sweeps.Load(), 1)), "orders/sweep")
}

// processor is the processor time of this process so far.
func processor() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
