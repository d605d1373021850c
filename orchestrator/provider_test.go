package orchestrator_test

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/spoke"
	"github.com/chordwheel/chordwheel/mesh/wire"
	"github.com/chordwheel/chordwheel/orchestrator"
)

// TestProvidersAreAdmittedByInvitation: one use each, for members of its scope only,
// and each is in the operations log.
func TestProvidersAreAdmittedByInvitation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := start(t, newDisk(), parsed(t, declared))
		a := r.joined("a", "key:alpha")
		i := r.invite(orchestrator.Invite{Uses: 2, TTL: time.Hour, Grant: []member.Pattern{"net:*", "execute:text.*"}})
		lab := r.invite(orchestrator.Invite{Scope: "workspace:lab"})
		question := func(i member.Invitation, nonce string) wire.Provider {
			return wire.Provider{Invitation: wire.Redeem{Secret: i.Secret, Scope: i.Scope}, Class: "browser", Capabilities: []chain.Capability{"execute:text.keywords"}, Nonce: nonce}
		}
		wrong := question(i, "n")
		wrong.Invitation.Scope = "workspace:lab"
		made := question(i, "n")
		made.Invitation.Secret = make([]byte, 32)
		for _, test := range []struct {
			name string
			from chain.PeerID
			q    wire.Provider
			code string // "" admitted
		}{
			{"a stranger asks", newKey().PeerID(), question(i, "n"), spoke.CodeNotMember},
			{"a secret that nobody gave out", a.key.PeerID(), made, spoke.CodeInvitation},
			{"a scope that the device is not in", a.key.PeerID(), question(lab, "n"), spoke.CodeScope},
			{"a scope that the invitation is not for", a.key.PeerID(), wrong, spoke.CodeScope},
			{"a class that is too long", a.key.PeerID(), wire.Provider{Invitation: made.Invitation, Class: "a class of its own", Nonce: "n"}, spoke.CodeProtocol},
			{"the first use", a.key.PeerID(), question(i, "one"), ""},
			{"the same question again", a.key.PeerID(), question(i, "one"), ""},
			{"the second use", a.key.PeerID(), question(i, "two"), ""},
			{"used up", a.key.PeerID(), question(i, "three"), spoke.CodeInvitation},
			{"and the first answer is still known", a.key.PeerID(), question(i, "one"), ""},
		} {
			reply, err := r.Provider(t.Context(), test.from, test.q)
			var no *spoke.Refusal
			if errors.As(err, &no); test.code == "" && err != nil || test.code != "" && (no == nil || no.Code != test.code) {
				t.Errorf("%s: %v, want %q", test.name, err, test.code)
			}
			if test.code == "" && (reply.Scope != chain.DefaultScope || !slices.Equal(reply.Granted, []string{"execute:text.*", "net:*"})) {
				t.Errorf("%s: %+v", test.name, reply)
			}
		}
		late := r.invite(orchestrator.Invite{TTL: time.Minute})
		time.Sleep(time.Minute)
		if _, err := r.Provider(t.Context(), a.key.PeerID(), question(late, "n")); !errors.Is(err, &spoke.Refusal{Code: spoke.CodeInvitation}) {
			t.Errorf("an invitation that is over: %v", err)
		}
		outcomes := map[string]int{}
		for _, op := range r.Operations(0, 100) {
			if op.Kind == "provider" {
				outcomes[op.Outcome]++
			}
		}
		if outcomes["ok"] != 4 || outcomes[spoke.CodeInvitation] != 3 || outcomes[spoke.CodeScope] != 2 {
			t.Errorf("the operations log has %v", outcomes)
		}
	})
}
