package spoke_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/libp2p/go-libp2p"
	"github.com/libp2p/go-libp2p/core/host"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/mesh/sim"
	"github.com/chordwheel/chordwheel/mesh/spoke"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

var home = chain.Slot{Scope: chain.DefaultScope, Primitive: chain.LLMChat}

// script answers with what a test put into it.
type script struct {
	hello   func() error
	protest func(ctx context.Context) (wire.ProtestReply, error)
	from    atomic.Value // chain.PeerID of the last caller
}

func (s *script) Hello(_ context.Context, from chain.PeerID, h wire.Hello) (wire.Welcome, error) {
	s.from.Store(from)
	if s.hello != nil {
		if err := s.hello(); err != nil {
			return wire.Welcome{}, err
		}
	}
	return wire.Welcome{MeshName: h.Name}, nil
}

func (s *script) Report(_ context.Context, _ chain.PeerID, r wire.Report) (wire.ReportReply, error) {
	return wire.ReportReply{Accepted: true, Reason: fmt.Sprint(r.Seq), ComeBack: 5000}, nil
}

func (s *script) Fetch(context.Context, chain.PeerID, wire.Fetch) (wire.FetchReply, error) {
	return wire.FetchReply{}, nil // a reply that may not be sent: it has no head
}

func (s *script) Lease(_ context.Context, _ chain.PeerID, l wire.Lease) (wire.LeaseReply, error) {
	var r wire.LeaseReply
	for _, a := range l.Asks {
		r.Grants = append(r.Grants, wire.Grant{ID: "1", Account: a.Account, Slot: a.Slot, Amount: 5, Until: 9})
	}
	return r, nil
}

func (s *script) Provider(_ context.Context, _ chain.PeerID, p wire.Provider) (wire.ProviderReply, error) {
	return wire.ProviderReply{Scope: p.Invitation.Scope, Granted: []string{"*"}}, nil
}

func (s *script) Protest(ctx context.Context, _ chain.PeerID, _ wire.Protest) (wire.ProtestReply, error) {
	return s.protest(ctx)
}

type pair struct {
	server *spoke.Server
	hub    host.Host
	device host.Host
}

func between(t *testing.T, handler spoke.Handler, story func(t *testing.T, p pair)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := sim.New(sim.Config{Nodes: 2})
		defer n.Close()
		var hosts []host.Host
		for i := range 2 {
			h, err := n.HostFactory(i)(libp2p.ResourceManager(&network.NullResourceManager{}), libp2p.DisableMetrics())
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			hosts = append(hosts, h)
		}
		server := spoke.NewServer(handler, slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelDebug})))
		defer server.Close()
		hosts[0].SetStreamHandler(spoke.Protocol, server.Serve)
		if err := hosts[1].Connect(t.Context(), peer.AddrInfo{ID: hosts[0].ID(), Addrs: hosts[0].Addrs()}); err != nil {
			t.Fatal(err)
		}
		story(t, pair{server, hosts[0], hosts[1]})
	})
}

func (p pair) open(t *testing.T) *spoke.Client {
	t.Helper()
	s, err := p.device.NewStream(t.Context(), p.hub.ID(), spoke.Protocol)
	if err != nil {
		t.Fatal(err)
	}
	return spoke.NewClient(s)
}

var hello = wire.Hello{DeviceID: "d", BootID: "b", Name: "laptop", Membership: []byte("m")}

func TestASession(t *testing.T) {
	s := &script{protest: func(context.Context) (wire.ProtestReply, error) {
		return wire.ProtestReply{}, fmt.Errorf("escalate: %w", &spoke.Refusal{Code: spoke.CodeTooMany, Message: "ten a minute are enough", ComeBack: 6 * time.Second})
	}}
	between(t, s, func(t *testing.T, p pair) {
		c := p.open(t)
		w, err := c.Hello(t.Context(), hello)
		if err != nil || w.MeshName != "laptop" || s.from.Load() != chain.PeerID(p.device.ID().String()) {
			t.Fatalf("%+v %v from %v", w, err, s.from.Load())
		}
		if r, err := c.Report(t.Context(), wire.Report{BootID: "b", Seq: 3}); err != nil || r.Reason != "3" || r.ComeBack != 5000 {
			t.Errorf("%+v %v", r, err)
		}
		_, err = c.Protest(t.Context(), wire.Protest{Slot: home, Nonce: "n"})
		var no *spoke.Refusal
		if !errors.As(err, &no) || no.Code != spoke.CodeTooMany || no.ComeBack != 6*time.Second || no.Message != "ten a minute are enough" {
			t.Errorf("a refusal came back as %v", err)
		}
		if errors.Is(err, &spoke.Refusal{Code: spoke.CodeBusy}) || !errors.Is(err, &spoke.Refusal{Code: spoke.CodeTooMany}) {
			t.Error("the class of a refusal is lost")
		}
		if _, err := c.Fetch(t.Context(), wire.Fetch{Slot: home}); !errors.Is(err, &spoke.Refusal{Code: spoke.CodeInternal}) {
			t.Errorf("a reply that nobody could read: %v", err)
		}
		if _, err := c.Report(t.Context(), wire.Report{}); !errors.Is(err, wire.ErrMessage) {
			t.Errorf("a report that nobody would read was sent: %v", err)
		}
		if _, err := c.Report(t.Context(), wire.Report{BootID: "b"}); err != nil {
			t.Errorf("refusals and our own mistakes do not end a session: %v", err)
		}
		c.Close()
		if _, err := c.Report(t.Context(), wire.Report{BootID: "b"}); !errors.Is(err, spoke.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		time.Sleep(time.Second)
		if n, _ := p.server.Open(); n != 0 {
			t.Errorf("%d sessions", n)
		}
	})
}

// Whoever lost the right to talk is not heard on the open session either.
func TestAHelloThatIsRefusedLaterEndsTheRightToAsk(t *testing.T) {
	s := &script{}
	between(t, s, func(t *testing.T, p pair) {
		c := p.open(t)
		if _, err := c.Hello(t.Context(), hello); err != nil {
			t.Fatal(err)
		}
		s.hello = func() error { return spoke.Refuse(spoke.CodeRevoked, "the membership was ended") }
		if _, err := c.Hello(t.Context(), hello); !errors.Is(err, &spoke.Refusal{Code: spoke.CodeRevoked}) {
			t.Errorf("got %v", err)
		}
		if _, err := c.Report(t.Context(), wire.Report{BootID: "b"}); !errors.Is(err, &spoke.Refusal{Code: spoke.CodeProtocol}) {
			t.Errorf("it was heard: %v", err)
		}
	})
}

func TestSessionsOfOnePeerAreFew(t *testing.T) {
	between(t, &script{}, func(t *testing.T, p pair) {
		for range spoke.SessionsPerPeer {
			if _, err := p.open(t).Hello(t.Context(), hello); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := p.open(t).Hello(t.Context(), hello); !errors.Is(err, &spoke.Refusal{Code: spoke.CodeBusy}) {
			t.Errorf("one more: %v", err)
		}
	})
}

func TestCloseEndsHandlersAndSaysSo(t *testing.T) {
	s := &script{}
	between(t, s, func(t *testing.T, p pair) {
		entered := make(chan struct{}, 1) // of the bubble
		s.protest = func(ctx context.Context) (wire.ProtestReply, error) {
			entered <- struct{}{}
			<-ctx.Done()
			return wire.ProtestReply{}, ctx.Err()
		}
		c := p.open(t)
		if _, err := c.Hello(t.Context(), hello); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() {
			_, err := c.Protest(t.Context(), wire.Protest{Slot: home, Nonce: "n"})
			ended <- err
		}()
		<-entered
		p.server.Close()
		if err := <-ended; !errors.Is(err, &spoke.Refusal{Code: spoke.CodeShutdown}) {
			t.Errorf("got %v", err)
		}
		if _, err := p.open(t).Hello(t.Context(), hello); !errors.Is(err, &spoke.Refusal{Code: spoke.CodeShutdown}) {
			t.Errorf("afterwards: %v", err)
		}
	})
}

func TestRefusalsThatCannotBeSent(t *testing.T) {
	s := &script{hello: func() error {
		return spoke.Refuse("x", "\x1b[2J")
	}}
	between(t, s, func(t *testing.T, p pair) {
		_, err := p.open(t).Hello(t.Context(), hello)
		if !errors.Is(err, &spoke.Refusal{Code: spoke.CodeInternal}) || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("got %v", err)
		}
	})
}

// A reason that grew long, of many options and keys, keeps its code and its beginning.
func TestALongRefusalIsCut(t *testing.T) {
	s := &script{hello: func() error { return spoke.Refuse("x", "nothing can run it: %s", strings.Repeat("long ", 1000)) }}
	between(t, s, func(t *testing.T, p pair) {
		_, err := p.open(t).Hello(t.Context(), hello)
		if !errors.Is(err, &spoke.Refusal{Code: "x"}) || !strings.Contains(err.Error(), "nothing can run it: long") {
			t.Errorf("got %v", err)
		}
	})
}

// Frames that are announced and do not come hold room, and when it is used up
// strangers wait: members and small frames do not.
func TestHalfSentFramesOfStrangers(t *testing.T) {
	between(t, &script{}, func(t *testing.T, p pair) {
		p.server.SetRoom(2 << 20)
		member := p.open(t)
		if _, err := member.Hello(t.Context(), hello); err != nil {
			t.Fatal(err)
		}
		head := binary.AppendUvarint(nil, 1<<20)
		var slow []network.Stream
		for range 3 {
			s, err := p.device.NewStream(t.Context(), p.hub.ID(), spoke.Protocol)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Write(append(head, 0xa1)); err != nil {
				t.Fatal(err)
			}
			slow = append(slow, s)
			time.Sleep(time.Second) // streams of one connection may overtake each other
		}
		_, err := slow[2].Read(make([]byte, 1))
		var reset *network.StreamError
		if !errors.As(err, &reset) || reset.ErrorCode != network.StreamResourceLimitExceeded {
			t.Errorf("the third megabyte: %v", err)
		}
		big := wire.Report{BootID: "b"}
		for range 4000 {
			big.Counters = append(big.Counters, wire.Counter{Slot: home, Option: "provider/model"})
		}
		if _, err := member.Report(t.Context(), big); err != nil {
			t.Errorf("a member's large report: %v", err)
		}
		if _, err := p.open(t).Hello(t.Context(), hello); err != nil {
			t.Errorf("another's small hello: %v", err)
		}
		time.Sleep(30 * time.Second)
		s, err := p.device.NewStream(t.Context(), p.hub.ID(), spoke.Protocol)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Write(append(head, 0xa1)); err != nil {
			t.Fatal(err)
		}
		_ = s.SetReadDeadline(time.Now().Add(time.Second))
		if _, err := s.Read(make([]byte, 1)); errors.As(err, &reset) && reset.Remote {
			t.Errorf("the room did not come back: %v", err)
		}
	})
}
