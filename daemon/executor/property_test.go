package executor

import (
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/mesh/wire"
	"pgregory.net/rapid"
)

// Whatever comes in whatever order: never more jobs than the owner allows, on the
// device, of a scope, of a peer; a nonce runs once within its life; and when all is
// released, nothing is left.
func TestPlacesAreNeverOverfilled(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		will := &will{device: rapid.IntRange(1, 5).Draw(t, "device"), scope: rapid.IntRange(1, 5).Draw(t, "scope")}
		will.decision.OK = true
		e := New(executorKey.PeerID(), boot, nil, will, Limits{})
		now := chaintest.Start
		var jobs []*Job
		ran := map[string]time.Time{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "seconds")) * time.Second)
			if len(jobs) > 0 && rapid.Bool().Draw(t, "release") {
				i := rapid.IntRange(0, len(jobs)-1).Draw(t, "which")
				jobs[i].Release()
				jobs = append(jobs[:i], jobs[i+1:]...)
				continue
			}
			from := chain.PeerID(rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "from"))
			nonce := rapid.SampledFrom([]string{"1", "2", "3", "4", "5", "6", "7", "8"}).Draw(t, "nonce")
			scope := chain.ScopeID(rapid.SampledFrom([]string{"workspace:x", "workspace:y"}).Draw(t, "in"))
			expires := now.Add(time.Duration(rapid.IntRange(1, 120).Draw(t, "life")) * time.Second)
			j := &Job{From: from, Request: wire.ExecRequest{Nonce: wire.ExecNonce(boot, nonce), Scope: scope, Expires: chain.InstantOf(expires)}, executor: e}
			refusal := e.claim(j, now)
			name := string(from) + nonce
			switch until, seen := ran[name]; {
			case seen && now.Before(until) && (refusal == nil || refusal.Code != wire.ExecReplayed):
				t.Fatalf("nonce %s of %s ran twice: %v", nonce, from, refusal)
			case (!seen || !now.Before(until)) && refusal != nil && refusal.Code == wire.ExecReplayed:
				t.Fatalf("nonce %s of %s is no replay", nonce, from)
			}
			if refusal == nil {
				jobs, ran[name] = append(jobs, j), expires.Add(2*maxDrift)
			}
			perPeer, perScope := map[chain.PeerID]int{}, map[chain.ScopeID]int{}
			for _, j := range jobs {
				perPeer[j.From]++
				perScope[j.Request.Scope]++
				if len(jobs) > will.device || perPeer[j.From] > share(will.device) || perScope[j.Request.Scope] > will.scope {
					t.Fatalf("%d jobs, %v, %v", len(jobs), perPeer, perScope)
				}
			}
		}
		for _, j := range jobs {
			j.Release()
		}
		if e.running != 0 || len(e.peers) != 0 || len(e.scopes) != 0 {
			t.Fatalf("left: %d, %v, %v", e.running, e.peers, e.scopes)
		}
	})
}

// BenchmarkAdmit measures one decision with all envelopes known, over the one
// verification of a signature that it cannot do without, in the same run.
func BenchmarkAdmit(b *testing.B) {
	w := newWorld(b)
	w.executor.nonces = newWindow(1 << 30)
	var floor, whole time.Duration
	for b.Loop() {
		w.next()
		open := w.open(b)
		began := time.Now()
		if _, _, err := wire.OpenExecRequest(open.Request); err != nil {
			b.Fatal(err)
		}
		middle := time.Now()
		j, err := w.executor.Admit(w.from, open, w.now)
		whole, floor = whole+time.Since(middle), floor+middle.Sub(began)
		if err != nil {
			b.Fatal(err)
		}
		j.Release()
	}
	b.ReportMetric(float64(whole.Nanoseconds())/float64(b.N), "ns/admit")
	b.ReportMetric(float64(whole)/float64(floor), "x_verify")
}
