package orchestrator_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/orchestrator"
	"github.com/chordwheel/chordwheel/orchestrator/registry"
	"github.com/chordwheel/chordwheel/orchestrator/trust"
)

// staffed is declared with agents: one of an option's own, one that is suspended, and one
// that is no option.
const staffed = declared + `
agents:
  - {did: "did:webvh:QmAlpha:alpha.example", capability: llm.chat, model_id: alpha/small}
  - {did: "did:webvh:QmBeta:beta.example", capability: llm.chat, model_id: beta/small, status: STATUS}
  - {did: "did:webvh:QmTool:tool.example", capability: tool.search, endpoint: "https://tool.example/v1", model_id: search}
`

func withStatus(status string) string {
	return strings.ReplaceAll(staffed, "STATUS", status)
}

const (
	alphaDID = "did:webvh:QmAlpha:alpha.example"
	betaDID  = "did:webvh:QmBeta:beta.example"
	toolDID  = "did:webvh:QmTool:tool.example"
)

// agentsOf gives the register by DID and capability.
func agentsOf(t *testing.T, h *orchestrator.Hub) map[[2]string]registry.Agent {
	t.Helper()
	list, err := h.Register().Agents(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out := map[[2]string]registry.Agent{}
	for _, a := range list {
		if _, twice := out[[2]string{a.DID, a.Capability}]; !twice { // as the registry does
			out[[2]string{a.DID, a.Capability}] = a
		}
	}
	return out
}

func TestTheRegisterListsProvidersAndDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, withStatus("suspended")))
		a := r.joined("a", chain.Submit, "execute:llm.chat", "execute:embed.text", "model:x", "key:alpha", "key:beta")
		granted := r.device("b", "execute:llm.chat", "execute:embed.text")
		if _, err := granted.enrol(r.invite(orchestrator.Invite{Grant: []member.Pattern{"execute:llm.*"}})); err != nil {
			t.Fatal(err)
		}
		all := agentsOf(t, r.Hub)
		for _, want := range []registry.Agent{
			{DID: alphaDID, Capability: "llm.chat", Endpoint: "http://127.0.0.1:9001/v1", Status: registry.Active, ModelID: "alpha/small"},
			{DID: betaDID, Capability: "llm.chat", Endpoint: "http://127.0.0.1:9002/v1", Status: registry.Suspended, ModelID: "beta/small"},
			{DID: toolDID, Capability: "tool.search", Endpoint: "https://tool.example/v1", Status: registry.Active, ModelID: "search"},
			{DID: a.key.PeerID().DID(), Capability: "llm.chat", Status: registry.Active, Class: registry.Device},
			{DID: a.key.PeerID().DID(), Capability: "embed.text", Status: registry.Active, Class: registry.Device},
			{DID: granted.key.PeerID().DID(), Capability: "llm.chat", Status: registry.Active, Class: registry.Device},
		} {
			if got := all[[2]string{want.DID, want.Capability}]; got != want {
				t.Errorf("listed is %+v, want %+v", got, want)
			}
		}
		derived := 0
		for k, v := range all {
			if v.ModelID == "gamma/large" || v.ModelID == "gamma/huge" {
				if _, err := chain.ParseDIDKey(k[0]); err != nil {
					t.Error(err)
				}
				derived++
			}
		}
		if len(all) != 8 || derived != 2 {
			t.Errorf("%d agents, %d of them derived: %v", len(all), derived, all)
		}
		c, err := a.fetch(home)
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(c.Options(), func(o chain.Option) bool { return o.ID == "beta/small" })
		if i < 0 || c.Options()[i].Agent != betaDID {
			t.Errorf("a suspended agent is %+v in the chain: another name gets round the suspension", c.Options())
		}
	})
}

func TestTheRegisterChangesWithWhatItLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, withStatus("active")))
		a := r.joined("a", chain.Submit, "execute:llm.chat")
		register := r.Register()
		did := a.key.PeerID().DID()
		agentsOf(t, r.Hub)
		changes := func(what string, want bool, f func()) {
			t.Helper()
			before := register.Version()
			f()
			if got := register.Version() != before; got != want {
				t.Errorf("%s: changed is %v", what, got)
			}
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		changes("a visit without news", false, func() { _, err := a.visit(); must(err) })
		changes("a capability that is none of work", false, func() {
			a.capabilities = append(a.capabilities, "model:y")
			_, err := a.visit()
			must(err)
		})
		changes("another primitive", true, func() {
			a.capabilities = append(a.capabilities, "execute:embed.text")
			_, err := a.visit()
			must(err)
		})
		changes("another catalogue", true, func() { must(r.Reload(t.Context(), parsed(t, withStatus("suspended")))) })
		if s := agentsOf(t, r.Hub)[[2]string{betaDID, "llm.chat"}].Status; s != registry.Suspended {
			t.Error("beta is", s)
		}
		changes("the end of a membership", true, func() { time.Sleep(member.Lifetime + time.Second) })
		if got := agentsOf(t, r.Hub)[[2]string{did, "llm.chat"}]; got.Status != registry.Suspended || got.Class != registry.Former {
			t.Errorf("a membership that ended: %+v", got)
		}
		changes("nothing", false, func() {})
		changes("a renewal", true, func() { _, err := a.visit(); must(err) })
		if got := agentsOf(t, r.Hub)[[2]string{did, "llm.chat"}]; got.Status != registry.Active {
			t.Errorf("renewed: %+v", got)
		}
		changes("a revocation", true, func() { _, err := r.Revoke(t.Context(), "a"); must(err) })
		if got := agentsOf(t, r.Hub)[[2]string{did, "llm.chat"}]; got.Status != registry.Suspended {
			t.Errorf("revoked: %+v", got)
		}
	})
}

func TestWhoMayHaveTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, withStatus("active")))
		a := r.joined("a", chain.Submit, "execute:llm.chat", "key:alpha", "key:beta")
		mute := r.joined("mute", "execute:llm.chat")
		gone := r.joined("gone", chain.Submit, "execute:llm.chat")
		away := r.device("away", chain.Submit, "execute:llm.chat")
		if _, err := away.enrol(r.invite(orchestrator.Invite{Scope: "workspace:other"})); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Revoke(t.Context(), "gone"); err != nil {
			t.Fatal(err)
		}
		did := func(d *device) string { return d.key.PeerID().DID() }
		withheld := ""
		for k, v := range agentsOf(t, r.Hub) {
			if v.ModelID == "gamma/large" {
				withheld = k[0]
			}
		}
		permit := func(seeker, agent, capability string) error {
			return r.Register().Permit(t.Context(), seeker, agent, capability)
		}
		for what, c := range map[string]struct {
			seeker, agent, capability string
			want                      error
		}{
			"an option of the chain":            {did(a), alphaDID, "llm.chat", nil},
			"for another capability":            {did(a), alphaDID, "embed.text", trust.ErrNoAgent},
			"for one that nobody knows":         {did(a), alphaDID, "x.y", trust.ErrNoAgent},
			"a withheld option":                 {did(a), withheld, "llm.chat", nil},
			"an agent that is no option":        {did(a), toolDID, "tool.search", nil},
			"itself":                            {did(a), did(a), "llm.chat", nil},
			"a member of the scope":             {did(a), did(mute), "llm.chat", nil},
			"a member that cannot":              {did(a), did(mute), "embed.text", trust.ErrNoAgent},
			"a device of another scope":         {did(a), did(away), "llm.chat", trust.ErrNoAgent},
			"a revoked device":                  {did(a), did(gone), "llm.chat", trust.ErrSuspended},
			"an agent unknown":                  {did(a), newKey().PeerID().DID(), "llm.chat", trust.ErrNoAgent},
			"by a device that may not submit":   {did(mute), alphaDID, "llm.chat", trust.ErrSeeker},
			"by a revoked device":               {did(gone), alphaDID, "llm.chat", trust.ErrSeeker},
			"by a stranger":                     {newKey().PeerID().DID(), alphaDID, "llm.chat", trust.ErrSeeker},
			"by a DID that is no device's":      {"did:web:x.example", alphaDID, "llm.chat", trust.ErrSeeker},
			"by a member of a scope without it": {did(away), betaDID, "llm.chat", trust.ErrNoAgent},
		} {
			if err := permit(c.seeker, c.agent, c.capability); !errors.Is(err, c.want) || c.want == nil && err != nil {
				t.Errorf("%s: %v, want %v", what, err, c.want)
			}
		}
		for d, want := range map[string]bool{did(a): true, did(gone): true, did(away): true, alphaDID: true, toolDID: true, newKey().PeerID().DID(): false, "did:web:x": false} {
			if known, err := r.Register().Knows(t.Context(), d); err != nil || known != want {
				t.Errorf("%s is known: %v, %v", d, known, err)
			}
		}
		if err := r.Reload(t.Context(), parsed(t, withStatus("suspended"))); err != nil {
			t.Fatal(err)
		}
		if err := permit(did(a), betaDID, "llm.chat"); !errors.Is(err, trust.ErrSuspended) {
			t.Errorf("a suspended agent: %v", err)
		}
		if err := r.Reload(t.Context(), parsed(t, withStatus("deregistered"))); err != nil {
			t.Fatal(err)
		}
		if err := permit(did(a), betaDID, "llm.chat"); !errors.Is(err, trust.ErrNoAgent) {
			t.Errorf("a deregistered agent: %v", err)
		}
	})
}

// What a device signed as a name before it went by another is taken down, over a restart of the
// hub too, if its own key signed it. No token is given for such a name, and it ends with the
// membership.
func TestANameOfBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const name = "did:webvh:QmOwn:a.example"
		d := newDisk()
		r := start(t, d, parsed(t, declared))
		a, b := r.joined("a", chain.Submit, "key:alpha"), r.joined("b", chain.Submit)
		visit := func(d *device, did string) {
			t.Helper()
			q := d.hello()
			q.DID = did
			if _, err := d.welcome(q); err != nil {
				t.Fatal(err)
			}
		}
		is := func(when string, now, before bool) {
			t.Helper()
			known, err := r.Register().Knows(t.Context(), name)
			if err != nil || known != now {
				t.Errorf("%s: it is known: %v, %v; want %v", when, known, err, now)
			}
			for who, want := range map[*device]bool{a: before, b: false} {
				own, err := who.key.PeerID().Public()
				if err != nil {
					t.Fatal(err)
				}
				knew, err := r.Register().Knew(t.Context(), name, func(key ed25519.PublicKey) bool { return key.Equal(own) })
				if err != nil || knew != want {
					t.Errorf("%s: it was known, signed by %s: %v, %v; want %v", when, who.name, knew, err, want)
				}
			}
		}
		is("before", false, false)
		visit(a, name)
		is("while it has it", true, false)
		visit(a, "")
		is("when it has its key alone", false, true)
		if err := r.Register().Permit(t.Context(), name, alphaDID, "llm.chat"); !errors.Is(err, trust.ErrSeeker) {
			t.Errorf("a token for a name of before: %v", err)
		}
		visit(b, name)
		is("when another says that it has it", true, true)
		visit(b, "")
		r.stop()
		r = start(t, d, parsed(t, declared))
		a.rig, b.rig = r, r
		if _, err := r.Revoke(t.Context(), "b"); err != nil {
			t.Fatal(err)
		}
		is("after a restart", false, true)
		if _, err := r.Revoke(t.Context(), "a"); err != nil {
			t.Fatal(err)
		}
		is("after the revocation", false, false)
		if d.holds(name) {
			t.Error("the name is kept of who was revoked")
		}
	})
}

// Devices ask the registry with each visit: they are told to come where an agent stands
// otherwise, and only then.
func TestASuspensionCallsTheDevicesIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, withStatus("active")))
		r.joined("a", chain.Submit, "key:alpha", "key:beta")
		for _, c := range []struct {
			status string
			told   bool
		}{{"active", false}, {"suspended", true}, {"suspended", false}, {"active", true}, {"deregistered", true}} {
			before := r.said.count()
			if err := r.Reload(t.Context(), parsed(t, withStatus(c.status))); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			told := r.said.count() > before && r.said.last().Slot == chain.Slot{Scope: chain.DefaultScope, Primitive: chain.Overrides}
			if told != c.told {
				t.Errorf("%s: told %t, want %t", c.status, told, c.told)
			}
		}
	})
}

// A hub that stops must not say that it has no agents: devices would forget theirs.
func TestAHubThatStopsKnowsNoAgents(t *testing.T) {
	r := start(t, newDisk(), parsed(t, declared))
	r.stop()
	if list, err := r.Register().Agents(context.Background()); err == nil {
		t.Errorf("%d agents and no error", len(list))
	}
	if err := r.Register().Permit(context.Background(), newKey().PeerID().DID(), alphaDID, "llm.chat"); err == nil || errors.Is(err, trust.ErrSeeker) {
		t.Errorf("permit: %v", err)
	}
}
