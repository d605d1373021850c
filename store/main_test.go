package store_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/store"
	"github.com/chordwheel/chordwheel/store/datadir"
	"github.com/chordwheel/chordwheel/store/storetest"
)

var (
	update   = flag.Bool("update", false, "make testdata anew")
	thorough = flag.Bool("thorough", false, "change every byte, not one in a few")
	kills    = flag.Int("kills", 12, "how often to kill a writer")
	seed     = flag.Uint64("seed", 0, "seed of random tests; 0: the clock's")
)

func TestMain(m *testing.M) {
	storetest.Main(m, verbs)
}

func fail(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// device is an open device: directory, database and chains.
type device struct {
	dir     *datadir.Dir
	store   *store.Store
	marks   *datadir.Marks
	chains  *store.ChainCache
	refused []error
}

// openDevice opens all that is at path as a daemon does.
func openDevice(path string, o store.Options, now time.Time) (d device, err error) {
	if d.dir, err = datadir.Open(path); err != nil {
		return d, err
	}
	if d.store, err = store.Open(d.dir, o); err != nil {
		return d, errors.Join(err, d.dir.Close())
	}
	d.marks, _ = d.dir.Marks()
	d.chains = store.NewChainCache(d.store, d.marks)
	d.refused = d.chains.Load(hub.Trust, now)
	return d, nil
}

func (d device) close() error { return errors.Join(d.store.Close(), d.dir.Close()) }

func start(t testing.TB, path string, o store.Options, now time.Time) device {
	t.Helper()
	d, err := openDevice(path, o, now)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.close() })
	return d
}

func stop(t testing.TB, d device) {
	t.Helper()
	if err := d.close(); err != nil {
		t.Fatal(err)
	}
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

var (
	hub = chaintest.NewHub()
	now = chaintest.Start
)

// create opens a device: N DIR.
func create(args []string) int {
	dieAt(args[0])
	d, err := openDevice(args[1], store.Options{}, now)
	if err != nil {
		return fail(err)
	}
	if err := d.close(); err != nil {
		return fail(err)
	}
	return 0
}

// accept accepts the second chain: N DIR.
func accept(args []string) int {
	d, err := openDevice(args[1], store.Options{}, now)
	if err != nil {
		return fail(err)
	}
	dieAt(args[0])
	if err := offer(d, chaintest.Slot, 2); err != nil {
		return fail(err)
	}
	if err := d.close(); err != nil {
		return fail(err)
	}
	return 0
}

func dieAt(arg string) {
	n, err := strconv.Atoi(arg)
	if err != nil {
		panic(err)
	}
	storetest.DieAt(n)
}

// signed gives the n-th chain of slot: its only option is called after n.
func signed(slot chain.Slot, n uint64) (head, body []byte) {
	options, err := chaintest.Parse(fmt.Sprintf("beta/n%d", n))
	if err != nil {
		panic(err)
	}
	body, err = chain.Marshal(chain.Body{Primitive: slot.Primitive, Options: options})
	if err != nil {
		panic(err)
	}
	h := hub.For(slot.Scope, slot.Primitive).HeadOf(body, now)
	h.Seq = n
	payload, err := chain.Marshal(h)
	if err != nil {
		panic(err)
	}
	head, err = chaintest.Key(0).Seal(chain.DomainChain, payload)
	if err != nil {
		panic(err)
	}
	return head, body
}

func offer(d device, slot chain.Slot, n uint64) error {
	head, body := signed(slot, n)
	_, err := d.chains.Accept(hub.Trust, slot, head, body, now)
	return err
}

// number gives the n of the chain in force for slot, or 0.
func number(d device, slot chain.Slot) uint64 {
	c := d.chains.Get(slot)
	if c == nil {
		return 0
	}
	n, err := strconv.ParseUint(strings.TrimPrefix(string(c.Options()[0].ID), "beta/n"), 10, 64)
	if err != nil || n != c.Head().Seq {
		panic(fmt.Sprintf("chain %d has option %s", c.Head().Seq, c.Options()[0].ID))
	}
	return n
}

var verbs = map[string]storetest.Verb{}

func init() {
	verbs["create"], verbs["accept"], verbs["work"], verbs["flips"] = create, accept, work, flips
}

func touch(path string) error { return os.WriteFile(path, nil, 0o600) }

func read(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	return string(b)
}
