package store_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/store"
	"github.com/chordwheel/chordwheel/store/storetest"
)

func TestChainsSurviveARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	d := start(t, path, store.Options{}, now)
	other := chain.Slot{Scope: "workspace:other", Primitive: chain.LLMChat}
	must(t, offer(d, chaintest.Slot, 1))
	must(t, offer(d, other, 1)) // the same body
	must(t, offer(d, chaintest.Slot, 4))
	stop(t, d)
	d = start(t, path, store.Options{}, now)
	if len(d.refused) > 0 || number(d, chaintest.Slot) != 4 || number(d, other) != 1 || len(d.chains.All()) != 2 {
		t.Errorf("chains %d and %d of %d, refused %v", number(d, chaintest.Slot), number(d, other), len(d.chains.All()), d.refused)
	}
	for _, c := range d.chains.All() {
		_, body := c.Bytes()
		if got := d.chains.Body(c.Head().Body); string(got) != string(body) {
			t.Error("a body has other bytes")
		}
	}
	if d.chains.Body(chain.CIDOf(nil)) != nil {
		t.Error("there is a body that nobody stored")
	}
}

// What is refused leaves chain, marks and every byte of the directory.
func TestRefusalsChangeNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	d := start(t, path, store.Options{}, now)
	must(t, offer(d, chaintest.Slot, 7))
	slot := chaintest.Slot
	_, body7 := signed(slot, 7)
	head6, body6 := signed(slot, 6)
	head8, body8 := signed(slot, 8)
	headOther, bodyOther := signed(chain.Slot{Scope: "workspace:other", Primitive: chain.LLMChat}, 9)
	twin := hub.HeadOf(body8, now)
	twin.Seq = 7
	early := hub.HeadOf(body7, now.Add(-time.Minute))
	early.Seq = 7
	forged := append([]byte(nil), head8...)
	forged[len(forged)-1] ^= 1
	stranger := chaintest.Stranger()
	disordered := append([]byte{0xbf}, body8...) // signed for, or its address alone would refuse it
	cases := map[string]struct {
		head, body []byte
		now        time.Time
		want       error
	}{
		"rollback":          {head6, body6, now, chain.ErrRollback},
		"issued earlier":    {hub.Sign(t, chain.DomainChain, early), body7, now, chain.ErrRollback},
		"equivocation":      {hub.Sign(t, chain.DomainChain, twin), body8, now, chain.ErrEquivocation},
		"forged":            {forged, body8, now, chain.ErrSignature},
		"stranger":          {stranger.Head(t, body8, now), body8, now, chain.ErrSigner},
		"another body":      {head8, body7, now, chain.ErrBody},
		"another slot":      {headOther, bodyOther, now, chain.ErrSlot},
		"expired":           {head8, body8, now.Add(8 * 24 * time.Hour), chain.ErrExpired},
		"from the future":   {head8, body8, now.Add(-time.Hour), chain.ErrFuture},
		"another purpose":   {hub.Sign(t, chain.DomainExtension, hub.HeadOf(body8, now)), body8, now, chain.ErrDomain},
		"nothing":           {nil, nil, now, chain.ErrEncoding},
		"body not in order": {hub.Head(t, disordered, now), disordered, now, chain.ErrEncoding},
	}
	before := storetest.Take(t, path)
	for name, c := range cases {
		for _, when := range []string{"", " after a restart"} {
			got, err := d.chains.Accept(hub.Trust, slot, c.head, c.body, c.now)
			if got != nil || !errors.Is(err, c.want) {
				t.Errorf("%s%s: %v, want %v", name, when, err, c.want)
			}
			if number(d, slot) != 7 || d.marks.Get(slot).Seq != 7 {
				t.Errorf("%s%s: chain %d, mark %d", name, when, number(d, slot), d.marks.Get(slot).Seq)
			}
			before.Same(t, path)
			if when == "" && (name == "rollback" || name == "equivocation") {
				stop(t, d)
				d = start(t, path, store.Options{}, now)
				before = storetest.Take(t, path)
			}
		}
	}
	must(t, offer(d, slot, 7)) // the same again is no news
	before.Same(t, path)
	must(t, offer(d, slot, 8))
}

func TestARenewalIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	d := start(t, path, store.Options{}, now)
	head, body := signed(chaintest.Slot, 7)
	must(t, offer(d, chaintest.Slot, 7))
	renewed := hub.HeadOf(body, now.Add(time.Hour))
	renewed.Seq = 7
	later := now.Add(2 * time.Hour)
	if _, err := d.chains.Accept(hub.Trust, chaintest.Slot, hub.Sign(t, chain.DomainChain, renewed), body, later); err != nil {
		t.Fatal(err)
	}
	stop(t, d)
	d = start(t, path, store.Options{}, later)
	if got := d.chains.Get(chaintest.Slot); got == nil || got.Head().Issued != renewed.Issued {
		t.Error("the renewal is gone")
	}
	if _, err := d.chains.Accept(hub.Trust, chaintest.Slot, head, body, later); !errors.Is(err, chain.ErrRollback) {
		t.Errorf("the one before it: %v", err)
	}
}

// A clock that is wrong for one start costs that start only.
func TestWhatIsRefusedAtLoadingStays(t *testing.T) {
	path := filled(t)
	for _, wrong := range []time.Time{time.Unix(0, 0), now.AddDate(10, 0, 0)} {
		d := start(t, path, store.Options{}, wrong)
		if number(d, chaintest.Slot) != 0 || len(d.refused) != 1 || !(errors.Is(d.refused[0], chain.ErrFuture) || errors.Is(d.refused[0], chain.ErrExpired)) {
			t.Errorf("at %s: chain %d, refused %v", wrong, number(d, chaintest.Slot), d.refused)
		}
		stop(t, d)
	}
	d := start(t, path, store.Options{}, now)
	if number(d, chaintest.Slot) != 2 {
		t.Errorf("refused %v", d.refused)
	}
	// Another hub's device takes nothing of it.
	cache := store.NewChainCache(d.store, d.marks)
	refused := cache.Load(chain.Trust{Mesh: hub.Trust.Mesh, Orchestrator: chaintest.PeerID(9)}, now)
	if len(refused) != 1 || !errors.Is(refused[0], chain.ErrSigner) || len(cache.All()) != 0 {
		t.Errorf("refused %v", refused)
	}
}

func TestBodiesThatNobodyHasAreDropped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "data")
	d := start(t, path, store.Options{}, now)
	other := chain.Slot{Scope: "workspace:other", Primitive: chain.LLMChat}
	must(t, offer(d, chaintest.Slot, 1))
	must(t, offer(d, other, 1))
	_, body := signed(chaintest.Slot, 1)
	first := chain.CIDOf(body)
	must(t, offer(d, chaintest.Slot, 2))
	if d.chains.Body(first) == nil {
		t.Error("a body was dropped that another slot has")
	}
	must(t, offer(d, other, 2))
	if d.chains.Body(first) != nil {
		t.Error("a body stays that nobody has")
	}
	// A slot that was dropped is gone after a restart, its mark is not.
	must(t, d.chains.Drop(other))
	stop(t, d)
	d = start(t, path, store.Options{}, now)
	if number(d, other) != 0 || number(d, chaintest.Slot) != 2 || d.marks.Get(other).Seq != 2 {
		t.Errorf("chains %d and %d, mark %d", number(d, other), number(d, chaintest.Slot), d.marks.Get(other).Seq)
	}
	if err := offer(d, other, 1); !errors.Is(err, chain.ErrRollback) {
		t.Errorf("err = %v", err)
	}
}

// A process that dies at any step of accepting has the chain before it or the
// one it was accepting, never none, and a mark that is not above it.
func TestDyingWhileAChainIsAccepted(t *testing.T) {
	var path string
	storetest.AtEveryStep(t, "accept", func() []string {
		path = filepath.Join(t.TempDir(), "data")
		d := start(t, path, store.Options{}, now)
		must(t, offer(d, chaintest.Slot, 1))
		stop(t, d)
		return []string{path}
	}, func(_ int, ended bool) {
		d := start(t, path, storetest.Options(), now)
		n := number(d, chaintest.Slot)
		if n == 0 || ended && n != 2 || d.marks.Get(chaintest.Slot).Seq != n {
			t.Errorf("chain %d, mark %d, refused %v", n, d.marks.Get(chaintest.Slot).Seq, d.refused)
		}
		stop(t, d)
	})
}

// A process that dies at any step of its first start can be started again.
func TestDyingWhileTheDatabaseIsMade(t *testing.T) {
	var path string
	storetest.AtEveryStep(t, "create", func() []string {
		path = filepath.Join(t.TempDir(), "data")
		return []string{path}
	}, func(int, bool) {
		o, log := logged()
		d := start(t, path, o, now)
		must(t, offer(d, chaintest.Slot, 1))
		if strings.Contains(log.String(), "set aside") {
			t.Errorf("log: %s", log)
		}
		stop(t, d)
	})
}
