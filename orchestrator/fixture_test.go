package orchestrator_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/spoke"
	"github.com/chordwheel/chordwheel/mesh/wire"
	"github.com/chordwheel/chordwheel/orchestrator"
	"github.com/chordwheel/chordwheel/orchestrator/catalog"
)

// bigHub names a directory: this process is the hub that a benchmark looks at.
const bigHub = "CHORDWHEEL_TEST_BIG_HUB"

var bigHubMain func(dir string) int

func TestMain(m *testing.M) {
	if dir := os.Getenv(bigHub); dir != "" && bigHubMain != nil {
		os.Exit(bigHubMain(dir))
	}
	goleak.VerifyTestMain(m)
}

// declared is the catalogue of most tests: two providers and one that is withheld.
const declared = `
providers:
  - {name: alpha, adapter: openai, endpoint: "http://127.0.0.1:9001/v1", keys: [alpha], models: [{name: small, primitives: [llm.chat], price: {input_per_mtok: 0.1, output_per_mtok: 0.4}, prior: {latency_ms: 300, reliability: 0.99}}]}
  - {name: beta, adapter: openai, endpoint: "http://127.0.0.1:9002/v1", keys: [beta], models: [{name: small, primitives: [llm.chat], price: {input_per_mtok: 0.1, output_per_mtok: 0.4}, prior: {latency_ms: 500, reliability: 0.98}}]}
  - {name: gamma, adapter: openai, endpoint: "http://127.0.0.1:9003/v1", models: [{name: large, primitives: [llm.chat]}, {name: huge, primitives: [llm.chat], price: {per_call: 1}}]}
primitives:
  - {name: llm.chat, default: [alpha/small, beta/small, peer], withheld: [gamma/large, gamma/huge]}
workspaces: [{id: home}]
`

func parsed(t testing.TB, text string) catalog.Catalog {
	t.Helper()
	c, err := catalog.Parse("catalogue.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// disk is what survives a restart, in memory. Every write counts as durable.
type disk struct {
	mu      sync.Mutex
	buckets map[string]map[string][]byte
	files   map[string][]byte
	fail    error // of every write, if set
	writes  map[string]int
}

func newDisk() *disk {
	return &disk{buckets: map[string]map[string][]byte{}, files: map[string][]byte{}}
}

// copy is a backup of d as it is now.
func (d *disk) copy() *disk {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := newDisk()
	for name, b := range d.buckets {
		c.buckets[name] = maps.Clone(b)
	}
	c.files = maps.Clone(d.files)
	return c
}

func (d *disk) storage() orchestrator.Storage {
	return orchestrator.Storage{Bucket: func(name string) orchestrator.Bucket { return bucket{d, name} }, Files: d}
}

func (d *disk) ReadChecked(name string) ([]byte, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if b, ok := d.files[name]; ok {
		return b, nil
	}
	return nil, fs.ErrNotExist
}

func (d *disk) WriteChecked(name string, b []byte) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fail != nil {
		return d.fail
	}
	d.files[name] = bytes.Clone(b)
	return nil
}

// failing makes every write fail from now on; nil ends that.
func (d *disk) failing(err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fail = err
}

// kept gives the number of records in a bucket.
func (d *disk) kept(bucket string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.buckets[bucket])
}

// written gives the number of writes to a bucket.
func (d *disk) written(bucket string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.writes[bucket]
}

// holds reports whether any record or file contains text.
func (d *disk) holds(text string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range d.buckets {
		for key, v := range b {
			if strings.Contains(key, text) || bytes.Contains(v, []byte(text)) {
				return true
			}
		}
	}
	return slices.ContainsFunc(slices.Collect(maps.Values(d.files)), func(b []byte) bool { return bytes.Contains(b, []byte(text)) })
}

type bucket struct {
	d    *disk
	name string
}

func (b bucket) PutAll(records map[string]any) error {
	b.d.mu.Lock()
	defer b.d.mu.Unlock()
	if b.d.fail != nil {
		return b.d.fail
	}
	if b.d.writes == nil {
		b.d.writes = map[string]int{}
	}
	b.d.writes[b.name]++
	for key, v := range records {
		encoded, err := chain.Marshal(v)
		if err != nil {
			return err
		}
		if b.d.buckets[b.name] == nil {
			b.d.buckets[b.name] = map[string][]byte{}
		}
		b.d.buckets[b.name][key] = encoded
	}
	return nil
}

func (b bucket) Delete(keys ...string) error {
	b.d.mu.Lock()
	defer b.d.mu.Unlock()
	for _, key := range keys {
		delete(b.d.buckets[b.name], key)
	}
	return b.d.fail
}

func (b bucket) Each(f func(key string, decode func(any) error) error) error {
	b.d.mu.Lock()
	records := maps.Clone(b.d.buckets[b.name])
	b.d.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(records)) {
		if err := f(key, func(v any) error { return chain.Unmarshal(records[key], v) }); err != nil {
			return err
		}
	}
	return nil
}

// said is a publisher that remembers.
type said struct {
	mu            sync.Mutex
	keys          []wire.TopicKey
	invalidations []wire.Available
	lists         [][]byte
}

func (s *said) Join(keys ...wire.TopicKey) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keys = keys
	return nil
}

func (s *said) Invalidate(_ context.Context, slot chain.Slot, seq uint64, body chain.CID) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.invalidations = append(s.invalidations, wire.Available{Slot: slot, Seq: seq, Body: body})
	return nil
}

func (s *said) Revoked(_ context.Context, list []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists = append(s.lists, list)
	return nil
}

// last gives the newest invalidation, once everything was said.
func (s *said) last() wire.Available {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.invalidations) == 0 {
		return wire.Available{}
	}
	return s.invalidations[len(s.invalidations)-1]
}

// revoked gives the lists of revocations that were published.
func (s *said) revoked() [][]byte {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.lists)
}

func (s *said) count() int {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.invalidations)
}

// rig is a hub and what stands round it.
type rig struct {
	*orchestrator.Hub
	t    testing.TB
	key  chain.Key
	disk *disk
	said *said
	logs *journal
}

// journal is what a hub logs. Its goroutines may go on logging while a test reads.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

var hubKey = sync.OnceValue(func() chain.Key { return newKey() })

func newKey() chain.Key {
	k, err := chain.NewKey(nil)
	if err != nil {
		panic(err)
	}
	return k
}

// start runs a hub over d, and closes it with the test.
func start(t testing.TB, d *disk, c catalog.Catalog) *rig {
	t.Helper()
	r := &rig{t: t, key: hubKey(), disk: d, said: &said{}, logs: &journal{}}
	id, err := orchestrator.MeshID(d)
	if err != nil {
		t.Fatal(err)
	}
	r.Hub, err = orchestrator.New(orchestrator.Config{Key: r.key, Mesh: id, Catalogue: c, Storage: d.storage(), Version: "test",
		Addrs: func() []string { return []string{"/ip4/192.0.2.1/tcp/7411"} }, Log: slog.New(slog.NewJSONHandler(r.logs, nil))})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Start(t.Context(), r.said); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.stop)
	return r
}

func (r *rig) stop() {
	if err := r.Close(); err != nil {
		r.t.Errorf("close: %v", err)
	}
}

func (r *rig) trust() chain.Trust {
	id, _ := orchestrator.MeshID(r.disk)
	return chain.Trust{Mesh: id, Orchestrator: r.key.PeerID()}
}

// invite gives the parts of an invitation that a device uses.
func (r *rig) invite(q orchestrator.Invite) member.Invitation {
	r.t.Helper()
	made, err := r.Invite(context.Background(), q)
	if err != nil {
		r.t.Fatal(err)
	}
	i, err := member.ParseInvitation(made.Text)
	if err != nil {
		r.t.Fatal(err)
	}
	return i
}

// device plays a device that speaks to the hub's handler.
type device struct {
	rig          *rig
	key          chain.Key
	id           chain.DeviceID
	name         string
	capabilities []chain.Capability
	locals       []wire.LocalOption
	membership   []byte
	holds        []wire.Held
	boot         string
	seq          uint64
	marks        map[chain.Slot]chain.Mark
}

var home = chain.Slot{Scope: chain.DefaultScope, Primitive: chain.LLMChat}

func (r *rig) device(name string, capabilities ...chain.Capability) *device {
	return &device{rig: r, key: newKey(), id: chain.DeviceID("00000000-0000-4000-8000-" + fmt.Sprintf("%x", name+"\x00\x00\x00\x00\x00\x00")[:12]), name: name,
		capabilities: capabilities, boot: "boot-" + name, marks: map[chain.Slot]chain.Mark{}}
}

func (d *device) hello() wire.Hello {
	return wire.Hello{Version: "test", DeviceID: d.id, Name: d.name, Capabilities: d.capabilities, Locals: d.locals, Membership: d.membership, Holds: d.holds, BootID: d.boot}
}

// enrol joins with an invitation.
func (d *device) enrol(i member.Invitation) (wire.Welcome, error) {
	q := d.hello()
	q.Membership, q.Invitation = nil, &wire.Redeem{Secret: i.Secret, Scope: i.Scope}
	return d.welcome(q)
}

func (d *device) visit() (wire.Welcome, error) { return d.welcome(d.hello()) }

func (d *device) welcome(q wire.Hello) (wire.Welcome, error) {
	w, err := d.rig.Hello(context.Background(), d.key.PeerID(), q)
	if err == nil && w.Membership != nil {
		d.membership = w.Membership
	}
	return w, err
}

// joined is a device that enrolled to home.
func (r *rig) joined(name string, capabilities ...chain.Capability) *device {
	r.t.Helper()
	d := r.device(name, capabilities...)
	if _, err := d.enrol(r.invite(orchestrator.Invite{})); err != nil {
		r.t.Fatalf("%s: %v", name, err)
	}
	return d
}

// fetch gets and verifies a chain as a device does, with its mark.
func (d *device) fetch(slot chain.Slot) (*chain.Chain, error) {
	f, err := d.rig.Fetch(context.Background(), d.key.PeerID(), wire.Fetch{Slot: slot})
	if err != nil {
		return nil, err
	}
	c, err := d.rig.trust().Verify(slot, f.Head, f.Body, d.marks[slot], time.Now())
	if err == nil {
		d.marks[slot] = c.Mark()
	}
	return c, err
}

// order fetches a chain and gives its options.
func (d *device) order(slot chain.Slot) []chain.OptionID {
	d.rig.t.Helper()
	c, err := d.fetch(slot)
	if err != nil {
		d.rig.t.Fatalf("fetch %s: %v", slot, err)
	}
	return ids(c.Options())
}

func ids(options []chain.Option) []chain.OptionID {
	var list []chain.OptionID
	for _, o := range options {
		list = append(list, o.ID)
	}
	return list
}

// report sends a batch of n attempts on an option that all ended in class.
func (d *device) report(option chain.OptionID, class chain.Class, n uint64, took time.Duration) wire.ReportReply {
	d.rig.t.Helper()
	d.seq++
	reply, err := d.rig.Report(context.Background(), d.key.PeerID(), batch(d.boot, d.seq, option, class, n, took))
	if err != nil || !reply.Accepted {
		d.rig.t.Fatalf("report: %+v %v", reply, err)
	}
	return reply
}

func batch(boot string, seq uint64, option chain.OptionID, class chain.Class, n uint64, took time.Duration) wire.Report {
	now := chain.InstantOf(time.Now())
	r := wire.Report{BootID: boot, Seq: seq, From: now - 60_000, To: now,
		Counters: []wire.Counter{{Slot: home, Option: option, Attempts: n, Outcomes: map[chain.Class]uint64{class: n}, LastOK: class == chain.OK}}}
	for range min(n, 10) {
		r.Measurements = append(r.Measurements, wire.Measurement{Slot: home, Option: option, Class: class, At: now, Total: chain.MillisOf(took)})
	}
	return r
}

// code gives the code of a refusal, or "".
func code(err error) string {
	var r *spoke.Refusal
	if errors.As(err, &r) {
		return r.Code
	}
	return ""
}

func want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func wantOrder(t testing.TB, got []chain.OptionID, want ...chain.OptionID) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("order %v, want %v", got, want)
	}
}
