package member_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/member"
)

func invitation(t testing.TB) member.Invitation {
	return member.Invitation{Mesh: "m", Orchestrator: key(t, 1).PeerID(), Addresses: []string{"/ip4/192.0.2.7/tcp/7411", "/dns4/hub.example/udp/7411/quic-v1"},
		Scope: "workspace:home", Secret: bytes.Repeat([]byte{0xA5}, 32), Expires: chain.InstantOf(now.Add(member.DefaultTTL)), Uses: 1}
}

func text(t testing.TB) string {
	s, err := invitation(t).Encode()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestInvitationRoundTrip(t *testing.T) {
	s := text(t)
	for name, form := range map[string]string{
		"as it is":                 s,
		"with a line break behind": s + "\n",
		"with blanks before":       "  \t" + s,
		"broken by a terminal":     s[:60] + "\n" + s[60:130] + "\r\n  " + s[130:],
	} {
		got, err := member.ParseInvitation(form)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want := invitation(t)
		if !bytes.Equal(got.Secret, want.Secret) || fmt.Sprint(got.Addresses) != fmt.Sprint(want.Addresses) || got.Trust() != want.Trust() ||
			got.Scope != want.Scope || got.Expires != want.Expires || got.Uses != 1 {
			t.Errorf("%s: got other content", name)
		}
	}
}

func TestBrokenInvitations(t *testing.T) {
	s := text(t)
	swapped := s[:50] + s[51:52] + s[50:51] + s[52:]
	for i := 50; swapped == s; i++ {
		swapped = s[:i] + s[i+1:i+2] + s[i:i+1] + s[i+2:]
	}
	for _, c := range []struct {
		name, text string
		want       error
	}{
		{"empty", "", member.ErrNoInvitation},
		{"a word", "hello", member.ErrNoInvitation},
		{"an address", "https://example.org/chordwheel1:", member.ErrNoInvitation},
		{"the bytes without the prefix", strings.TrimPrefix(s, "chordwheel1:"), member.ErrNoInvitation},
		{"another prefix", "chordwheels:" + s[12:], member.ErrNoInvitation},
		{"the next format", "chordwheel2:" + s[12:], member.ErrNewer},
		{"a later format", "chordwheel17:AAAA", member.ErrNewer},
		{"cut in the prefix", "chordwh", member.ErrCut},
		{"the prefix alone", "chordwheel1:", member.ErrCut},
		{"cut after a few characters", s[:15], member.ErrCut},
		{"cut in the middle", s[:len(s)/2], member.ErrCut},
		{"without its last character", s[:len(s)-1], member.ErrCut},
		{"two characters swapped", swapped, member.ErrDamaged},
		{"one character altered", flip(s, len(s)/2), member.ErrDamaged},
		{"the last character altered", flip(s, len(s)-1), member.ErrDamaged},
		{"something behind it", s + "AAAA", member.ErrDamaged},
		{"a character too many", s + "A", member.ErrDamaged},
		{"a full stop behind it", s + ".", member.ErrDamaged},
		{"of a megabyte", "chordwheel1:" + strings.Repeat("A", 1<<20), member.ErrNoInvitation},
	} {
		_, err := member.ParseInvitation(c.text)
		if !errors.Is(err, c.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: got %v, want %v", c.name, err, c.want)
		}
	}
}

// flip gives s with another character at i, one that changes the bytes.
func flip(s string, i int) string {
	const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
	k := strings.IndexByte(digits, s[i])
	return s[:i] + string(digits[k^32]) + s[i+1:]
}

// Wherever it is cut, the line says so; whatever character is altered, it is
// never accepted as something else.
func TestEveryCutAndEveryAlteration(t *testing.T) {
	s := text(t)
	for i := 1; i < len(s); i++ {
		if _, err := member.ParseInvitation(s[:i]); !errors.Is(err, member.ErrCut) {
			t.Errorf("cut after %d of %d: %v", i, len(s), err)
		}
	}
	for i := range s {
		for _, c := range "A5_" {
			if altered := s[:i] + string(c) + s[i+1:]; altered != s {
				if _, err := member.ParseInvitation(altered); err == nil {
					t.Errorf("accepted with %q at %d", c, i)
				}
			}
		}
	}
}

func TestInvitationsOutOfRange(t *testing.T) {
	for name, change := range map[string]func(*member.Invitation){
		"no mesh":        func(i *member.Invitation) { i.Mesh = "" },
		"no hub":         func(i *member.Invitation) { i.Orchestrator = "hub" },
		"no address":     func(i *member.Invitation) { i.Addresses = nil },
		"a bad address":  func(i *member.Invitation) { i.Addresses = []string{"\x07"} },
		"a bad scope":    func(i *member.Invitation) { i.Scope = "home" },
		"a short secret": func(i *member.Invitation) { i.Secret = i.Secret[:8] },
		"no expiry":      func(i *member.Invitation) { i.Expires = 0 },
		"negative uses":  func(i *member.Invitation) { i.Uses = -1 },
	} {
		i := invitation(t)
		change(&i)
		if _, err := i.Encode(); !errors.Is(err, chain.ErrContent) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestInvitationsExpire(t *testing.T) {
	i := invitation(t)
	if err := i.Current(now.Add(member.DefaultTTL - time.Millisecond)); err != nil {
		t.Error(err)
	}
	if err := i.Current(now.Add(member.DefaultTTL)); !errors.Is(err, member.ErrOver) {
		t.Error(err)
	}
}

func TestInvitationsDoNotPrintTheirSecret(t *testing.T) {
	i := invitation(t)
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("x", "i", i)
	asJSON, err := json.Marshal(i)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{fmt.Sprint(i), fmt.Sprintf("%+v", i), fmt.Sprintf("%#v", i), fmt.Sprintf("%v", &i), log.String(), string(asJSON)} {
		if strings.Contains(s, "165") || strings.Contains(s, base64.StdEncoding.EncodeToString(i.Secret)[:12]) || !strings.Contains(s, "workspace:home") {
			t.Errorf("printed as %s", s)
		}
	}
}

func TestSecretsAndTheirHashes(t *testing.T) {
	a, b := member.NewSecret(), member.NewSecret()
	if len(a) != 32 || bytes.Equal(a, b) || member.HashSecret(a) == member.HashSecret(b) || len(member.HashSecret(a)) != 64 {
		t.Error("secrets are not 32 random bytes with a hash of their own")
	}
}

func FuzzInvitation(f *testing.F) {
	s := text(f)
	f.Add(s)
	f.Add(s[:80])
	f.Add("chordwheel2:abc")
	f.Add("chordwheel1:AAAAAAA")
	f.Fuzz(func(t *testing.T, s string) {
		i, err := member.ParseInvitation(s)
		if err != nil {
			return
		}
		again, err := i.Encode()
		if err != nil {
			t.Fatalf("accepted what it would not write: %v", err)
		}
		if again != strings.Join(strings.Fields(s), "") {
			t.Errorf("%q became %q", s, again)
		}
	})
}

func TestOnlyLoopback(t *testing.T) {
	for _, c := range []struct {
		addresses []string
		want      bool
	}{
		{[]string{"/ip4/127.0.0.1/tcp/7411", "/ip6/::1/udp/7411/quic-v1", "/dns4/localhost/tcp/7411"}, true},
		{[]string{"/ip4/127.0.0.1/tcp/7411", "/ip4/192.0.2.1/tcp/7411"}, false},
		{[]string{"/dns/localhost.example/tcp/7411"}, false},
	} {
		if got := member.OnlyLoopback(c.addresses); got != c.want {
			t.Errorf("%v: %v", c.addresses, got)
		}
	}
}
