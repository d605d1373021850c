package executor

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/daemon/sharing"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// T is a *testing.T or a *rapid.T.
type T = chaintest.T

// world is an executor and one request that it admits; a test changes one thing.
type world struct {
	hub       chaintest.Hub
	submitter chain.Key
	now       time.Time
	device    *device
	will      *will
	executor  *Executor

	from       chain.PeerID // of the stream
	member     member.Membership
	memberKey  chain.Key
	body       []byte
	head       chain.Head
	headKey    chain.Key
	extension  []byte
	request    wire.ExecRequest
	requestKey chain.Key
	domain     chain.Domain
}

const slots = "local | peer requires=model:big | other/one | other/two kind=peer via=local,provider"

// device is an executor's device as a test sets it.
type device struct {
	member Member
	joined bool
	has    []chain.Capability
	chains map[chain.Slot]*chain.Chain
	marks  map[chain.Slot]chain.Mark
	runs   func(o *chain.Option) bool
}

func (d *device) Member() (Member, bool)             { return d.member, d.joined }
func (d *device) Has() []chain.Capability            { return d.has }
func (d *device) Chain(slot chain.Slot) *chain.Chain { return d.chains[slot] }
func (d *device) Mark(slot chain.Slot) chain.Mark    { return d.marks[slot] }
func (d *device) Runs(o *chain.Option) bool          { return d.runs(o) }
func (d *device) hold(c *chain.Chain)                { d.chains[c.Slot()], d.marks[c.Slot()] = c, c.Mark() }

type will struct {
	decision      sharing.Decision
	device, scope int
}

func (w *will) May(chain.ScopeID, time.Time) sharing.Decision { return w.decision }
func (w *will) Jobs(chain.ScopeID) (int, int)                 { return w.device, w.scope }

var executorKey = chaintest.Key(2)

// boot names the run of the executor.
const boot = "BOOT-1"

func newWorld(t T) *world {
	hub := chaintest.NewHub()
	w := &world{hub: hub, submitter: chaintest.Key(1), now: chaintest.Start, will: &will{sharing.Decision{OK: true}, 8, 8}, domain: chain.DomainExecRequest}
	w.device = &device{
		member: Member{Trust: hub.Trust, Scopes: []chain.ScopeID{chain.DefaultScope, "workspace:work"}}, joined: true,
		has:    []chain.Capability{"execute:llm.chat", "model:big"},
		chains: map[chain.Slot]*chain.Chain{}, marks: map[chain.Slot]chain.Mark{},
		runs: func(o *chain.Option) bool { return true },
	}
	w.from, w.requestKey, w.memberKey, w.headKey = w.submitter.PeerID(), w.submitter, hub.Key, hub.Key
	w.member = member.Membership{Mesh: hub.Trust.Mesh, DeviceID: "d1", Peer: w.from, Name: "laptop", Scopes: []chain.ScopeID{chain.DefaultScope, "workspace:far"},
		Granted: []member.Pattern{"*"}, Issued: chain.InstantOf(w.now.Add(-time.Hour)), Serial: 1}
	w.body = hub.Body(t, slots)
	w.head = hub.HeadOf(w.body, w.now.Add(-time.Minute))
	held, err := hub.Trust.Verify(hub.Slot, hub.Sign(t, chain.DomainChain, w.head), w.body, chain.Mark{}, w.now)
	if err != nil {
		t.Fatalf("%v", err)
	}
	w.device.hold(held)
	payload := sha256.Sum256([]byte("payload"))
	hash, _ := receipt.RequestHash([]byte(`{}`))
	w.request = wire.ExecRequest{
		Executor: executorKey.PeerID(), Body: chain.CIDOf(w.body), Option: "peer", Scope: chain.DefaultScope, Primitive: chain.LLMChat,
		PayloadBytes: 7, PayloadHash: payload[:], TransactionID: "t1", Nonce: wire.ExecNonce(boot, "the-first-request"), RequestHash: hash, RequestID: "r1",
		Attempts: 4, Budget: 30_000, Hop: 1, Expires: chain.InstantOf(w.now.Add(time.Minute)),
	}
	w.executor = New(executorKey.PeerID(), boot, w.device, w.will, Limits{Payload: 1000})
	return w
}

// open makes the opening frame of the world's request.
func (w *world) open(t T) *wire.ExecOpen {
	t.Helper()
	o := &wire.ExecOpen{Body: w.body, Extension: w.extension}
	var err error
	if o.Membership, err = member.Issue(w.memberKey, w.member); err != nil {
		t.Fatalf("%v", err)
	}
	if o.Head, err = w.headKey.Seal(chain.DomainChain, chaintest.Encode(t, w.head)); err != nil {
		t.Fatalf("%v", err)
	}
	if w.request.Membership == nil {
		w.request.Membership = wire.EnvelopeHash(o.Membership)
	}
	if w.request.Head == nil {
		w.request.Head = wire.EnvelopeHash(o.Head)
	}
	if o.Extension != nil && w.request.Extension == nil {
		w.request.Extension = wire.EnvelopeHash(o.Extension)
	}
	if o.Request, err = w.requestKey.Seal(w.domain, chaintest.Encode(t, w.request)); err != nil {
		t.Fatalf("%v", err)
	}
	return o
}

func (w *world) admit(t T) (*Job, error) {
	t.Helper()
	return w.executor.Admit(w.from, w.open(t), w.now)
}

// next makes the request a new one.
func (w *world) next() { w.request.Nonce = wire.ExecNonce(boot, rand.Text()) }

// chainOf replaces the submitter's chain.
func (w *world) chainOf(t T, hub chaintest.Hub, body []byte, at time.Time) {
	t.Helper()
	w.body, w.head, w.headKey = body, hub.HeadOf(body, at), hub.Key
	w.request.Body, w.request.Head = chain.CIDOf(body), nil
}

func code(err error) wire.ExecCode {
	var r *wire.ExecRefusal
	if errors.As(err, &r) {
		return r.Code
	}
	return ""
}

func TestARequestThatIsAdmitted(t *testing.T) {
	w := newWorld(t)
	j, err := w.admit(t)
	if err != nil {
		t.Fatal(err)
	}
	if j.From != w.from || j.Name != "laptop" || j.Seeker != w.from.DID() || j.Agent != executorKey.PeerID().DID() || j.Request.RequestID != "r1" || j.Slot.ID != "peer" {
		t.Errorf("%+v", j)
	}
	if !slices.Equal(j.Kinds, []chain.Kind{chain.Local}) || len(j.Options) != 1 || j.Options[0].ID != "local" {
		t.Errorf("it may walk %v of %v", j.Options, j.Kinds)
	}
	if c := w.executor.Counts(); c.Running != 1 || c.Admitted != 1 {
		t.Errorf("%+v", c)
	}
	j.Release()
	j.Release()
	if c := w.executor.Counts(); c.Running != 0 || len(w.executor.peers)+len(w.executor.scopes) != 0 {
		t.Errorf("%+v", c)
	}
}

// A row for each refusal: one thing is wrong, and its own code says which.
func TestRefusals(t *testing.T) {
	other := chaintest.Key(3)
	for _, c := range []struct {
		name string
		want wire.ExecCode
		set  func(t *testing.T, w *world)
	}{
		{"a request that was not signed as one", wire.ExecBadSignature, func(t *testing.T, w *world) { w.domain = chain.DomainExecResult }},
		{"garbage for a request", wire.ExecProtocol, func(t *testing.T, w *world) { w.request.Nonce = "short" }},
		{"another hop", wire.ExecProtocol, func(t *testing.T, w *world) { w.request.Hop = 2 }},
		{"no attempt left", wire.ExecProtocol, func(t *testing.T, w *world) { w.request.Attempts = 0 }},
		{"no budget left", wire.ExecProtocol, func(t *testing.T, w *world) { w.request.Budget = 0 }},
		{"a hash that is none", wire.ExecProtocol, func(t *testing.T, w *world) { w.request.RequestHash = "sha256:beef" }},
		{"a request that somebody else signed", wire.ExecWrongPeer, func(t *testing.T, w *world) { w.requestKey = other }},
		{"a request that somebody else sent", wire.ExecWrongPeer, func(t *testing.T, w *world) { w.from = other.PeerID() }},
		{"another seeker", wire.ExecWrongPeer, func(t *testing.T, w *world) { w.request.Seeker = other.PeerID().DID() }},
		{"a request for another executor", wire.ExecWrongExecutor, func(t *testing.T, w *world) { w.request.Executor = other.PeerID() }},
		{"another agent", wire.ExecWrongExecutor, func(t *testing.T, w *world) { w.request.Agent = other.PeerID().DID() }},
		{"a request whose time is over", wire.ExecExpired, func(t *testing.T, w *world) { w.request.Expires = chain.InstantOf(w.now) }},
		{"a request for next year", wire.ExecExpired, func(t *testing.T, w *world) { w.request.Expires = chain.InstantOf(w.now.Add(Ahead)) + 1 }},
		{"a device that joined nothing", wire.ExecNotMember, func(t *testing.T, w *world) { w.device.joined = false }},
		{"no membership", wire.ExecNoMembership, func(t *testing.T, w *world) { w.request.Membership = wire.EnvelopeHash(nil) }},
		{"a membership that nobody signed", wire.ExecNoMembership, func(t *testing.T, w *world) { w.memberKey = other }},
		{"a membership of another mesh", wire.ExecNoMembership, func(t *testing.T, w *world) { w.member.Mesh = "other" }},
		{"another membership than the named one", wire.ExecNoMembership, func(t *testing.T, w *world) { w.request.Membership = wire.EnvelopeHash([]byte("x")) }},
		{"a membership of the future", wire.ExecNoMembership, func(t *testing.T, w *world) { w.member.Issued = chain.InstantOf(w.now.Add(time.Hour)) }},
		{"a membership that has expired", wire.ExecMembershipOver, func(t *testing.T, w *world) { w.member.Expires = chain.InstantOf(w.now) }},
		{"another peer's membership", wire.ExecWrongPeer, func(t *testing.T, w *world) { w.member.Peer = other.PeerID() }},
		{"a membership that was revoked", wire.ExecRevoked, func(t *testing.T, w *world) {
			w.device.member.Revocations = &member.Revocations{Ended: []member.Ended{{Peer: w.from, At: chain.InstantOf(w.now)}}}
		}},
		{"a membership without submit", wire.ExecMayNotSubmit, func(t *testing.T, w *world) { w.member.Granted = []member.Pattern{"execute:*"} }},
		{"a member of other scopes", wire.ExecNotMember, func(t *testing.T, w *world) { w.member.Scopes = []chain.ScopeID{"workspace:far"} }},
		{"a scope that is not this device's", wire.ExecNotMember, func(t *testing.T, w *world) { w.request.Scope = "workspace:far" }},
		{"a chain of another hub", wire.ExecNoChain, func(t *testing.T, w *world) { w.chainOf(t, chaintest.Stranger(), w.body, w.now) }},
		{"another head than the named one", wire.ExecNoChain, func(t *testing.T, w *world) {
			w.chainOf(t, w.hub, w.hub.Body(t, "peer | x"), w.now)
			w.request.Head = wire.EnvelopeHash([]byte("x"))
		}},
		{"another body than the head's", wire.ExecNoChain, func(t *testing.T, w *world) {
			w.chainOf(t, w.hub, w.hub.Body(t, "peer | x"), w.now)
			w.body = w.hub.Body(t, "peer | y")
		}},
		{"another body than the request's", wire.ExecNoChain, func(t *testing.T, w *world) { w.request.Body = chain.CIDOf([]byte("x")) }},
		{"two bodies under one sequence number", wire.ExecNoChain, func(t *testing.T, w *world) {
			w.chainOf(t, w.hub, w.hub.Body(t, "peer | x"), w.now.Add(-time.Minute))
		}},
		{"another scope's chain", wire.ExecForeignChain, func(t *testing.T, w *world) {
			far := w.hub.For("workspace:far", chain.LLMChat)
			w.chainOf(t, far, w.body, w.now)
		}},
		{"another primitive's chain", wire.ExecForeignChain, func(t *testing.T, w *world) {
			embed := w.hub.For(chain.DefaultScope, "embed.text")
			w.chainOf(t, embed, embed.Body(t, "peer"), w.now)
		}},
		{"a chain that has expired", wire.ExecChainOver, func(t *testing.T, w *world) {
			w.chainOf(t, w.hub, w.hub.Body(t, "peer | x"), w.now.Add(-7*24*time.Hour))
		}},
		{"a chain without the slot", wire.ExecNoSlot, func(t *testing.T, w *world) { w.chainOf(t, w.hub, w.hub.Body(t, "local"), w.now) }},
		{"an option that is no slot", wire.ExecNoSlot, func(t *testing.T, w *world) { w.request.Option = "local" }},
		{"rules without peers", wire.ExecNoSlot, func(t *testing.T, w *world) {
			w.chainOf(t, w.hub, w.hub.BodyWith(t, slots, chain.Rules{NoPeers: true}), w.now)
		}},
		{"an older chain whose slot is gone from the one in force", wire.ExecNoSlot, func(t *testing.T, w *world) { w.device.hold(w.hub.Chain(t, "local", w.now)) }},
		{"an older chain, and none in force", wire.ExecNoChain, func(t *testing.T, w *world) {
			w.device.hold(w.hub.Chain(t, slots, w.now))
			delete(w.device.chains, w.hub.Slot)
		}},
		{"a slot whose capability is lacking", wire.ExecLacksCapability, func(t *testing.T, w *world) { w.device.has = w.device.has[:1] }},
		{"a primitive that the device does not execute", wire.ExecLacksCapability, func(t *testing.T, w *world) { w.device.has = w.device.has[1:] }},
		{"a forged extension", wire.ExecBadExtension, func(t *testing.T, w *world) {
			w.extension = chaintest.Stranger().Extension(t, w.device.chains[w.hub.Slot], "n", w.from, "peer/more", w.now)
		}},
		{"another device's extension", wire.ExecBadExtension, func(t *testing.T, w *world) {
			w.extension = w.hub.Extension(t, w.device.chains[w.hub.Slot], "n", other.PeerID(), "peer/more", w.now)
		}},
		{"an extension that has expired", wire.ExecBadExtension, func(t *testing.T, w *world) {
			w.extension = w.hub.Extension(t, w.device.chains[w.hub.Slot], "n", w.from, "peer/more", w.now.Add(-time.Hour))
		}},
		{"another extension than the named one", wire.ExecBadExtension, func(t *testing.T, w *world) {
			w.extension = w.hub.Extension(t, w.device.chains[w.hub.Slot], "n", w.from, "peer/more", w.now)
			w.request.Extension = wire.EnvelopeHash([]byte("x"))
		}},
		{"an extension of an older chain", wire.ExecBadExtension, func(t *testing.T, w *world) {
			w.extension = w.hub.Extension(t, w.device.chains[w.hub.Slot], "n", w.from, "peer/more", w.now)
			w.device.hold(w.hub.Chain(t, slots, w.now))
		}},
		{"an extension without the option", wire.ExecNoSlot, func(t *testing.T, w *world) {
			w.extension = w.hub.Extension(t, w.device.chains[w.hub.Slot], "n", w.from, "peer/more", w.now)
		}},
		{"no chain of its own", wire.ExecNothingToRun, func(t *testing.T, w *world) {
			delete(w.device.chains, w.hub.Slot)
			delete(w.device.marks, w.hub.Slot)
		}},
		{"its own chain has expired", wire.ExecNothingToRun, func(t *testing.T, w *world) {
			old := w.hub.Chain(t, slots, w.now.Add(-7*24*time.Hour))
			w.device.hold(old)
		}},
		{"nothing of its own chain may be used", wire.ExecNothingToRun, func(t *testing.T, w *world) {
			w.device.runs = func(o *chain.Option) bool { return o.Kind == chain.Provider }
		}},
		{"what it has is for its own data", wire.ExecNothingToRun, func(t *testing.T, w *world) {
			w.device.hold(w.hub.Chain(t, "local local-only | peer requires=model:big", w.now))
			w.chainOf(t, w.hub, w.hub.Body(t, "local local-only | peer requires=model:big"), w.now)
		}},
		{"a request that came before", wire.ExecReplayed, func(t *testing.T, w *world) {
			j, err := w.admit(t)
			if err != nil {
				t.Fatal(err)
			}
			j.Release()
		}},
		{"the same nonce in another request", wire.ExecReplayed, func(t *testing.T, w *world) {
			if _, err := w.admit(t); err != nil {
				t.Fatal(err)
			}
			w.request.Expires += 1000
		}},
		{"a payload over the limit", wire.ExecTooLarge, func(t *testing.T, w *world) { w.request.PayloadBytes = 1001 }},
		{"no room on the device", wire.ExecBusy, func(t *testing.T, w *world) { w.will.device = 0 }},
		{"no room for the scope", wire.ExecBusy, func(t *testing.T, w *world) { w.will.scope = 0 }},
		{"an owner who does not share now", wire.ExecSharingOff, func(t *testing.T, w *world) { w.will.decision = sharing.Decision{Why: "sharing is paused"} }},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			c.set(t, w)
			before := w.executor.Counts().Running
			j, err := w.admit(t)
			if got := code(err); got != c.want || j != nil {
				t.Fatalf("%v, want %s", err, c.want)
			}
			if err := err.(*wire.ExecRefusal).Validate(); err != nil {
				t.Errorf("the refusal cannot be sent: %v", err)
			}
			if counts := w.executor.Counts(); counts.Refused[c.want] != 1 || counts.Running != before {
				t.Errorf("%+v", counts)
			}
		})
	}
}

func TestWhatAnotherChainMayAuthorise(t *testing.T) {
	for name, set := range map[string]func(t *testing.T, w *world){
		"a newer chain than the one held": func(t *testing.T, w *world) { w.chainOf(t, w.hub, w.hub.Body(t, "peer | x"), w.now) },
		"a renewal that is not known here": func(t *testing.T, w *world) {
			w.head.Issued, w.request.Head = chain.InstantOf(w.now), nil
		},
		"an older head of the same chain": func(t *testing.T, w *world) {
			renewed := w.head
			renewed.Issued = chain.InstantOf(w.now)
			c, err := w.hub.Trust.Verify(w.hub.Slot, w.hub.Sign(t, chain.DomainChain, renewed), w.body, chain.Mark{}, w.now)
			if err != nil {
				t.Fatal(err)
			}
			w.device.hold(c)
		},
		"an older chain whose slot is still in force": func(t *testing.T, w *world) { w.device.hold(w.hub.Chain(t, slots+" | more", w.now)) },
		"an extension": func(t *testing.T, w *world) {
			w.extension = w.hub.Extension(t, w.device.chains[w.hub.Slot], "n", w.from, "peer/more", w.now)
			w.request.Option = "peer/more"
		},
	} {
		w := newWorld(t)
		set(t, w)
		if _, err := w.admit(t); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	t.Run("a stage's chain, and this device's own for all stages", func(t *testing.T) {
		w := newWorld(t)
		w.request.Scope = "workspace:home;stage=extract"
		stage := w.hub.For(w.request.Scope, chain.LLMChat)
		w.chainOf(t, stage, stage.Body(t, "peer | x"), w.now)
		j, err := w.admit(t)
		if err != nil || j.Chain.Slot() != w.hub.Slot {
			t.Fatalf("%+v, %v", j, err)
		}
		w.device.hold(stage.Chain(t, "peer | local/own", w.now.Add(-time.Second)))
		w.next()
		if j, err = w.admit(t); err != nil || j.Options[0].ID != "local/own" {
			t.Errorf("%+v, %v", j, err)
		}
	})
	t.Run("the newer chain says what the slot requires", func(t *testing.T) {
		w := newWorld(t)
		w.device.hold(w.hub.Chain(t, "local | peer requires=model:huge", w.now))
		if _, err := w.admit(t); code(err) != wire.ExecLacksCapability {
			t.Error(err)
		}
	})
}

func TestViaDecidesWhatMayBeWalked(t *testing.T) {
	w := newWorld(t)
	w.request.Option = "other/two"
	j, err := w.admit(t)
	if err != nil || len(j.Options) != 2 || j.Options[0].ID != "local" || j.Options[1].ID != "other/one" || len(j.Kinds) != 2 {
		t.Errorf("%+v, %v", j, err)
	}
	for via, want := range map[chain.Kind]int{chain.Local: 1, chain.Provider: 1, chain.Peer: 0, "quantum": 0} {
		if got := mayWalk(&chain.Option{Via: []chain.Kind{via}}, chain.DefaultRules()); len(got) != want {
			t.Errorf("via %s: %v", via, got)
		}
	}
}

func TestEnvelopesMayBeLeftOutOnceKnown(t *testing.T) {
	w := newWorld(t)
	w.chainOf(t, w.hub, w.hub.Body(t, "peer | x"), w.now) // not the one held
	bare := func() error {
		t.Helper()
		w.next()
		o := w.open(t)
		o.Membership, o.Head, o.Body = nil, nil, nil
		_, err := w.executor.Admit(w.from, o, w.now)
		return err
	}
	if err := bare(); code(err) != wire.ExecNeed {
		t.Fatalf("nothing is known yet: %v", err)
	}
	if _, err := w.admit(t); err != nil {
		t.Fatalf("after ExecNeed the same request is sent once more: %v", err)
	}
	if err := bare(); err != nil {
		t.Fatalf("all was shown before: %v", err)
	}
	w.now = w.head.Expires.Time() // what was verified may still run out
	w.request.Expires, w.member.Issued, w.request.Membership = chain.InstantOf(w.now.Add(time.Minute)), chain.InstantOf(w.now), nil
	if _, err := w.admit(t); code(err) != wire.ExecChainOver {
		t.Errorf("an expired chain from the cache: %v", err)
	}
	w = newWorld(t)
	if _, err := w.admit(t); err != nil {
		t.Fatal(err)
	}
	w.device.member.Trust = chaintest.Stranger().Trust
	if err := bare(); code(err) != wire.ExecNeed {
		t.Errorf("what another hub signed is of no use: %v", err)
	}
}

// A chain that was verified for one scope is of no use in another.
func TestACachedChainIsOfItsOwnScope(t *testing.T) {
	w := newWorld(t)
	w.member.Scopes = []chain.ScopeID{chain.DefaultScope, "workspace:work"}
	w.chainOf(t, w.hub, w.hub.Body(t, "peer | x"), w.now) // not the one held
	if _, err := w.admit(t); err != nil {
		t.Fatal(err)
	}
	w.next()
	w.request.Scope = "workspace:work"
	if _, err := w.admit(t); code(err) != wire.ExecForeignChain {
		t.Error(err)
	}
}

// A cached membership is judged anew each time.
func TestARevocationHoldsForWhatIsCached(t *testing.T) {
	w := newWorld(t)
	if _, err := w.admit(t); err != nil {
		t.Fatal(err)
	}
	w.next()
	w.device.member.Revocations = &member.Revocations{Ended: []member.Ended{{Peer: w.from, At: chain.InstantOf(w.now)}}}
	if _, err := w.admit(t); code(err) != wire.ExecRevoked {
		t.Error(err)
	}
}

func TestRoomIsSharedAmongPeers(t *testing.T) {
	w := newWorld(t)
	var jobs []*Job
	for {
		w.next()
		j, err := w.admit(t)
		if err != nil {
			if code(err) != wire.ExecBusy {
				t.Fatal(err)
			}
			break
		}
		jobs = append(jobs, j)
	}
	if len(jobs) != share(w.will.device) || len(jobs) >= w.will.device {
		t.Fatalf("one peer took %d of %d places", len(jobs), w.will.device)
	}
	second := newWorld(t)
	second.executor, second.will, second.device = w.executor, w.will, w.device
	second.submitter = chaintest.Key(9)
	second.from, second.requestKey, second.member.Peer = second.submitter.PeerID(), second.submitter, second.submitter.PeerID()
	if _, err := second.admit(t); err != nil {
		t.Errorf("a second peer finds no place: %v", err)
	}
	jobs[0].Release()
	w.next()
	if _, err := w.admit(t); err != nil {
		t.Errorf("a place that was given back: %v", err)
	}
}

func TestARefusalSaysWhenToComeBack(t *testing.T) {
	w := newWorld(t)
	w.will.decision = sharing.Decision{Why: "sharing is paused", Back: w.now.Add(time.Hour)}
	_, err := w.admit(t)
	var r *wire.ExecRefusal
	if !errors.As(err, &r) || r.ComeBack != chain.MillisOf(time.Hour) || r.Code != wire.ExecSharingOff {
		t.Errorf("%+v", r)
	}
	w.will.decision.OK = true
	if _, err := w.admit(t); err != nil {
		t.Errorf("a refusal leaves no trace, the same request may come again: %v", err)
	}
}

func TestNoncesAreForgottenInTimeAndNeverBefore(t *testing.T) {
	w := newWindow(100)
	now := chaintest.Start
	for i := range 50 {
		if !w.add("a", fmt.Sprint(i), now.Add(time.Minute), now) {
			t.Fatal(i)
		}
	}
	if w.add("a", "one more", now.Add(time.Minute), now) {
		t.Error("one peer takes more than its part")
	}
	for i := range 25 {
		if !w.add("b", fmt.Sprint(i), now.Add(2*time.Minute), now) {
			t.Fatal(i)
		}
	}
	if w.add("b", "one more", now.Add(time.Minute), now) || !w.has("a", "0", now) {
		t.Error("a full part must neither be forgotten nor grow")
	}
	if !w.add("c", "first", now.Add(time.Minute), now) {
		t.Error("two that fill all they can leave nothing for a third")
	}
	if now = now.Add(time.Minute); w.has("a", "0", now) || !w.has("b", "0", now) {
		t.Error("what has expired need not be known, what has not must")
	}
	for i := range 20 {
		if !w.add("c", fmt.Sprint(i), now.Add(time.Minute), now) {
			t.Fatal(i)
		}
	}
	if len(w.nonces) != 45 || len(w.peers) != 2 {
		t.Errorf("%d nonces of %d peers", len(w.nonces), len(w.peers))
	}
}

func TestTheCacheIsBounded(t *testing.T) {
	var c cache
	trust := chain.Trust{Mesh: "m"}
	for i := range 3 * maxEntries {
		c.put(trust, fmt.Append(nil, i), entry{body: []byte("x"), size: 1})
		c.get(trust, []byte("0"))
	}
	if len(c.entries) != maxEntries || c.bytes != maxEntries || c.get(trust, []byte("0")).body == nil {
		t.Errorf("%d entries of %d bytes", len(c.entries), c.bytes)
	}
	c.put(trust, []byte("big"), entry{body: []byte("x"), size: maxEntryBytes})
	if len(c.entries) != 1 {
		t.Errorf("%d entries beside one as large as all", len(c.entries))
	}
	c.put(trust, []byte("big"), entry{body: []byte("x"), size: 5})
	if c.bytes != 5 {
		t.Errorf("%d bytes", c.bytes)
	}
	if c.put(chain.Trust{Mesh: "n"}, nil, entry{}); len(c.entries) != 1 || c.bytes != 0 {
		t.Error("another trust keeps nothing")
	}
}

// A refusal may be shown to people: it holds nothing of a token, and is one short line.
func TestRefusalsHoldNoSecrets(t *testing.T) {
	w := newWorld(t)
	w.request.Token = []byte("canary-token")
	w.request.Option = "canary-\u0007-option"
	_, err := w.admit(t)
	if err == nil || strings.Contains(err.Error(), "canary-token") || strings.ContainsAny(err.Error(), "\n\a") || len(err.Error()) > 400 {
		t.Error(err)
	}
}

func FuzzAdmit(f *testing.F) {
	w := newWorld(f)
	good := w.open(f)
	f.Add(good.Request, good.Membership, good.Head, good.Body, []byte{})
	f.Add(good.Request, good.Head, good.Membership, good.Body, good.Head)
	f.Add([]byte{1}, []byte{}, []byte{}, []byte{}, []byte{2})
	f.Fuzz(func(t *testing.T, request, membership, head, body, extension []byte) {
		w := newWorld(t)
		w.request = wire.ExecRequest{}
		j, err := w.executor.Admit(w.from, &wire.ExecOpen{Request: request, Membership: membership, Head: head, Body: body, Extension: extension}, w.now)
		switch {
		case err == nil && !bytes.Equal(request, good.Request):
			t.Fatal("a request that nobody signed was admitted")
		case err == nil:
			j.Release()
		case code(err) == "" || err.(*wire.ExecRefusal).Validate() != nil:
			t.Fatalf("a refusal that cannot be sent: %v", err)
		}
		if c := w.executor.Counts(); c.Running != 0 {
			t.Fatal("a place was lost")
		}
	})
}
