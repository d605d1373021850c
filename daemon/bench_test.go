package daemon_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon"
	"github.com/chordwheel/chordwheel/daemon/edge"
	"github.com/chordwheel/chordwheel/mesh/exec"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// instant is a node whose one peer opens the request, answers at once and signs
// its statement. What is left to be measured is the submitter's own work.
type instant struct {
	*hub
	answer []byte
	key    chain.Key
}

func (i *instant) Exec(_ context.Context, _ chain.PeerID, open wire.ExecOpen, _ []byte, emit exec.Emit) (wire.ExecTrailer, error) {
	if err := emit(i.answer, true, false); err != nil {
		return wire.ExecTrailer{}, err
	}
	_, r, err := wire.OpenExecRequest(open.Request)
	if err != nil {
		return wire.ExecTrailer{}, err
	}
	says := receipt.Statement{TransactionID: r.TransactionID, Nonce: r.Nonce, SeekerDID: r.Seeker, AgentDID: r.Agent, RequestHash: r.RequestHash,
		ResponseHash: receipt.ResponseHash("hello", nil)}
	signature, err := says.Sign(i.key)
	return wire.ExecTrailer{Class: chain.OK, Used: 1, ResponseHash: says.ResponseHash, Signature: []byte(signature)}, err
}

// BenchmarkHandingOver is one plain request of 1 KiB at a peer, without the way
// there and the executor's own work: as a multiple of what it cannot do without,
// two signatures made and checked (the request's and the statement's).
func BenchmarkHandingOver(b *testing.B) {
	h := &hub{t: new(testing.T), policy: chaintest.NewHub(), peer: chaintest.PeerID(device), others: newOthers()}
	h.rules = chain.Rules{Fixed: true}
	h.serve("peer | beta/small")
	m := newMemory()
	var events daemon.Events
	node := &instant{hub: h, key: chaintest.Key(10), answer: []byte(`{"choices":[{"index":0,"message":{"role":"assistant","content":"hello"}}]}`)}
	d, err := daemon.New(daemon.Config{Key: chaintest.Key(device), DeviceID: "d", Name: "a", Version: "test", Keys: &ring{}, Chains: chains{m}, Marks: marks{m}, State: m,
		Log: slog.New(slog.DiscardHandler), Random: random(),
		Connect: func(_ context.Context, _ daemon.Joined, e daemon.Events) (daemon.Node, error) {
			events = e
			return node, nil
		}})
	if err == nil {
		err = d.Start(b.Context())
	}
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	text, err := member.Invitation{Mesh: h.policy.Trust.Mesh, Orchestrator: h.policy.Trust.Orchestrator, Addresses: []string{"/ip4/127.0.0.1/tcp/7411"},
		Scope: chain.DefaultScope, Secret: member.NewSecret(), Expires: chain.InstantOf(time.Now().Add(time.Hour)), Uses: 1}.Encode()
	if err == nil {
		err = d.Join(b.Context(), text)
	}
	if err != nil {
		b.Fatal(err)
	}
	<-d.Visited()
	x := &box{n: 10, name: "box"}
	events.Contact(x.contact())
	body := append([]byte(`{"messages":[{"role":"user","content":"`), make([]byte, 0, 1100)...)
	for len(body) < 1020 {
		body = append(body, 'x')
	}
	body = append(body, `"}]}`...)

	key := node.key
	says := receipt.Statement{AgentDID: key.PeerID().DID()}
	signature, err := says.Sign(key)
	if err != nil {
		b.Fatal(err)
	}
	const rounds = 2000
	begin := time.Now()
	for range rounds {
		envelope, err := key.Seal(chain.DomainExecRequest, body)
		if err == nil {
			_, _, err = chain.Open(chain.DomainExecRequest, envelope)
		}
		if err == nil {
			_, err = says.Sign(key)
		}
		if err != nil {
			b.Fatal(err)
		}
		if err := says.Verify(key.PeerID(), signature); err != nil {
			b.Fatal(err)
		}
	}
	floor := float64(time.Since(begin).Nanoseconds()) / rounds
	b.ReportAllocs()
	for b.Loop() {
		w := edge.Work{ID: "r", Primitive: chain.LLMChat, Model: edge.Auto, Body: body}
		if result, err := d.Do(b.Context(), &w, func(walk.Attempt, [][]byte) error { return nil }); err != nil || result.Option != "peer" {
			b.Fatal(result, err)
		}
	}
	if n := d.Status().Requests.Unproven; n != 0 {
		b.Fatalf("%d statements did not hold", n)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/floor, "x/signatures")
}
