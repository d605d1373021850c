package daemon

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/receipt"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/control"
	"github.com/chordwheel/chordwheel/daemon/edge"
	jobs "github.com/chordwheel/chordwheel/daemon/job"
	"github.com/chordwheel/chordwheel/daemon/pipeline/wave"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/mesh/spoke"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// Providers gives what the edge needs for devices that work over HTTP.
func (d *Daemon) Providers() *edge.Jobs { return &edge.Jobs{Board: d.board, Admit: d.admitProvider} }

// admitProvider has the hub judge the invitation that a provider brought: the hub's
// invitations are the one authority for who may take work, and this device keeps
// none of its own.
func (d *Daemon) admitProvider(ctx context.Context, invitation chain.Secret, r jobs.Registration) (g jobs.Grant, err error) {
	d.mu.Lock()
	trust, joined := d.joined.Trust, d.isJoined
	d.mu.Unlock()
	i, err := member.ParseInvitation(invitation.Reveal())
	if err == nil {
		err = i.Current(time.Now())
	}
	switch {
	case err != nil:
		return g, edge.Refuse(edge.Unauthorized, "%s", err)
	case !joined:
		return g, edge.Refuse(edge.HubUnreachable, "%s", ErrNotJoined)
	case i.Trust() != trust:
		return g, edge.Refuse(edge.Unauthorized, "the invitation is to another mesh than this device's")
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	reply, err := d.nodeNow().Provider(ctx, wire.Provider{Invitation: wire.Redeem{Secret: i.Secret, Scope: i.Scope}, Class: string(r.Class), Capabilities: r.Capabilities, Nonce: rand.Text()})
	var no *spoke.Refusal
	switch {
	case err == nil:
		g.Scope = reply.Scope
		for _, p := range reply.Granted {
			g.Patterns = append(g.Patterns, member.Pattern(p))
		}
		d.cfg.Log.Info("a provider was admitted", "worker_class", r.Class, "scope", g.Scope)
		return g, nil
	case !errors.As(err, &no):
		return g, edge.Refuse(edge.HubUnreachable, "the hub is out of reach, and it has the last word on invitations: try again later")
	}
	d.refusedByHub(err)
	switch no.Code {
	case spoke.CodeInvitation, spoke.CodeScope:
		return g, edge.Refuse(edge.Unauthorized, "%s", chain.ClipTo(no.Message, 256))
	case spoke.CodeUnknown:
		return g, edge.Refuse(edge.HubUnreachable, "the hub is of a version that knows no providers: update it")
	}
	return g, &edge.Refusal{Code: edge.HubUnreachable, Message: "the hub refused: " + chain.ClipTo(no.Message, 256), RetryAfter: no.ComeBack}
}

// Workers implements [control.Workers].
func (d *Daemon) Workers() []jobs.Provider { return d.board.Providers() }

// DropWorker implements [control.Workers].
func (d *Daemon) DropWorker(id string) error {
	err := d.board.Drop(id)
	if errors.Is(err, jobs.ErrProvider) {
		return control.Asked("no provider of that ID works for this device: chordwheel jobs providers lists them")
	}
	if err == nil {
		d.cfg.Log.Info("a provider was dropped", "provider", id)
	}
	return err
}

// providersStatus is what status shows of providers, nil where none ever called.
func (d *Daemon) providersStatus() *control.Providers {
	p := &control.Providers{Registered: d.board.Providers(), Counts: d.board.Counts()}
	if len(p.Registered) == 0 && p.Counts == (jobs.BoardCounts{}) {
		return nil
	}
	for _, one := range p.Registered {
		if one.Online {
			p.Online++
		}
	}
	return p
}

// provided is the work of r for whoever could fill the slot o over HTTP.
func (d *Daemon) provided(slot chain.Slot, o *chain.Option) *jobs.Work {
	return &jobs.Work{Option: o.ID, Scope: slot.Scope.Base(), Primitive: slot.Primitive, Requires: o.Requires}
}

// bindProviders fills the slot o with the providers over HTTP, where no peer can.
// Together they are one candidate: the board hands a job from one to the next. Work
// whose data is local-only has no slot, which the chain sees to.
func (r *run) bindProviders(o *chain.Option, except func(chain.PeerID) bool) (chain.PeerID, bool) {
	if except(jobs.Peer) || r.daemon.board.Able(r.daemon.provided(r.chain.Slot(), o)) == 0 {
		return "", false
	}
	return jobs.Peer, true
}

// providerOffer adds the providers over HTTP to the places where a sub-job can run.
func (d *Daemon) providerOffer(slot chain.Slot, o *chain.Option, now time.Time) []wave.Offer {
	if d.board.Able(d.provided(slot, o)) == 0 {
		return nil
	}
	return []wave.Offer{{Option: o.ID, Peer: jobs.Peer, Provider: string(jobs.Peer), Device: string(jobs.Peer), Quality: o.Cost.Quality.Share(), Resting: d.standing.PeerCooling(jobs.Peer, now)}}
}

// runAtProviders makes one attempt at the board.
func (r *run) runAtProviders(ctx context.Context, a walk.Attempt, emit func(walk.Chunk) error) walk.Outcome {
	d := r.daemon
	w := d.provided(r.chain.Slot(), &a.Option)
	w.RequestID, w.Transaction, w.Body = r.work.ID, r.account.receipt.TransactionID, r.work.Body
	chat := w.Primitive.LLM()
	w.Stream = r.work.Stream && chat
	if r.sub != nil {
		if of, ok := d.jobs.Get(r.sub.id); ok {
			w.Root = of.Root
		}
	} else if hash, err := r.account.requestHash(); err == nil {
		w.RequestHash = hash
	} else {
		w.RequestHash = receipt.OutputHash(r.account.body)
	}
	said := &provision{run: r, emit: emit, began: time.Now()}
	accepted := func(string) { r.sub.tried(&a) }
	answer, err := d.board.Run(ctx, w, accepted, said.part)
	switch {
	case err == nil && chat:
		err = said.chat(answer.Output)
	case err == nil:
		err = emit(walk.Chunk{Data: answer.Output, Meaningful: true})
	}
	o := walk.Outcome{Class: chain.OK, Used: 1, Input: said.input, Output: said.output}
	switch {
	case err == nil:
		return o
	case ctx.Err() != nil:
		o.Class = chain.Canceled
	case errors.Is(err, jobs.ErrNotAccepted), errors.Is(err, jobs.ErrFull):
		o.Class, o.Used = chain.Busy, 0
	case errors.Is(err, jobs.ErrCut):
		o.Class = chain.Cut
	case errors.Is(err, jobs.ErrInvalid):
		o.Class = chain.BadAnswer
	case errors.Is(err, jobs.ErrFailed):
		o.Class = chain.Status
	default:
		o.Class = chain.Canceled // the caller takes no more
	}
	o.Why = chain.ClipTo(err.Error(), 128)
	return o
}

// provision puts what a provider says of a chat into the dialect of the edge.
type provision struct {
	run    *run
	emit   func(walk.Chunk) error
	began  time.Time
	told   strings.Builder // the parts that were delivered
	input  int64
	output int64
}

func (p *provision) form(object string) completion {
	return completionOf(object, p.run.work, p.run.account, p.began)
}

func (p *provision) send(c completion, meaningful bool) error {
	b, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("make the answer of a provider: %w", err)
	}
	return p.emit(walk.Chunk{Data: b, Meaningful: meaningful})
}

// part takes the next piece of the text.
func (p *provision) part(text string) error {
	words := &spokenWords{Content: &text}
	if p.told.Len() == 0 {
		words.Role = "assistant"
	}
	p.told.WriteString(text)
	c := p.form("chat.completion.chunk")
	c.Choices = append(c.Choices, spokenChoice{Delta: words})
	return p.send(c, true)
}

// chat gives the whole answer, or what of it was not delivered in parts.
func (p *provision) chat(output json.RawMessage) error {
	said, err := jobs.ReadChat(output)
	if err != nil {
		return err
	}
	p.input, p.output = said.Input, said.Output
	usage := &spokenUsage{said.Input, said.Output, said.Input + said.Output}
	if said.Input+said.Output == 0 {
		usage = nil
	}
	if !p.run.work.Stream {
		c := p.form("chat.completion")
		c.Choices, c.Usage = append(c.Choices, spokenChoice{Message: &spokenWords{Role: "assistant", Content: &said.Text, ToolCalls: said.ToolCalls}, Finish: &said.Finish}), usage
		return p.send(c, true)
	}
	rest, ok := strings.CutPrefix(said.Text, p.told.String())
	if !ok { // the caller has other words already
		return jobs.ErrCut
	}
	if rest != "" {
		if err := p.part(rest); err != nil {
			return err
		}
	}
	c := p.form("chat.completion.chunk")
	c.Choices = append(c.Choices, spokenChoice{Delta: &spokenWords{ToolCalls: numbered(said.ToolCalls)}, Finish: &said.Finish})
	if err := p.send(c, said.ToolCalls != nil); err != nil || !p.run.work.Usage || usage == nil {
		return err
	}
	c = p.form("chat.completion.chunk")
	c.Usage = usage
	return p.send(c, false)
}

// numbered gives tool calls as a stream has them: each says which it is.
func numbered(calls json.RawMessage) json.RawMessage {
	var list []map[string]json.RawMessage
	if len(calls) == 0 || json.Unmarshal(calls, &list) != nil {
		return nil
	}
	for i := range list {
		if list[i] == nil {
			list[i] = map[string]json.RawMessage{}
		}
		list[i]["index"] = json.RawMessage(fmt.Sprint(i))
	}
	b, err := json.Marshal(list)
	if err != nil {
		return nil
	}
	return b
}
