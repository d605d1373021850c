package daemon

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/edge"
	jobs "github.com/chordwheel/chordwheel/daemon/job"
	"github.com/chordwheel/chordwheel/daemon/pipeline/wave"
)

// subjob is one walk for a part of a request. It is walked like any other, but for
// where it begins: at the place that was offered, and away from where its other
// copies run. A nil subjob is the request itself, and changes nothing.
type subjob struct {
	id       string
	copy     *wave.Copy
	accepted func(chain.OptionID, chain.PeerID)
	self     string // DID of this device

	mu      sync.Mutex // an attempt that was given up may still be on its way
	tries   map[chain.OptionID]chain.Option
	began   time.Time // when the first attempt did
	option  chain.OptionID
	peer    chain.PeerID
	input   int64
	output  int64
	cost    int64
	atLeast bool

	deliver func(string) error
	text    strings.Builder
	short   bool // the model stopped at a limit of length
	long    bool // the answer was longer than what is kept of one
}

// shape has plan begin where the sub-job was offered a place, and leave what its
// other copies use for last.
func (s *subjob) shape(plan *walk.Plan) {
	if s == nil {
		return
	}
	measure := plan.Hooks.Measure
	plan.Hooks.Measure = func(m walk.Measurement) {
		measure(m)
		s.spent(m)
	}
	// Whoever waits for a part can do without it: its budget is meant. What has begun
	// to reach the caller goes on.
	plan.Strict = s.copy.Task.Deliver == nil
	offer := s.copy.Offer
	rank := func(o *chain.Option) int {
		switch {
		case offer != nil && o.ID == offer.Option:
			return 0
		case slices.Contains(s.copy.Avoid, o.ID):
			return 2
		}
		return 1
	}
	plan.Options = slices.Clone(plan.Options)
	slices.SortStableFunc(plan.Options, func(a, b chain.Option) int { return rank(&a) - rank(&b) })
	bind := plan.Hooks.Bind
	if bind == nil || offer == nil || offer.Peer == "" {
		return
	}
	plan.Hooks.Bind = func(o *chain.Option, except func(chain.PeerID) bool) (chain.PeerID, bool) {
		if o.ID == offer.Option {
			if p, ok := bind(o, func(p chain.PeerID) bool { return p != offer.Peer || except(p) }); ok {
				return p, true
			}
		}
		return bind(o, except)
	}
}

// tried notes who runs an attempt.
func (s *subjob) tried(a *walk.Attempt) {
	if s == nil {
		return
	}
	s.mu.Lock()
	if s.tries == nil {
		s.tries = map[chain.OptionID]chain.Option{}
	}
	s.tries[a.Option.ID] = a.Option
	if s.began.IsZero() {
		s.began = time.Now()
	}
	s.option, s.peer = a.Option.ID, a.Peer
	s.mu.Unlock()
	s.accepted(a.Option.ID, a.Peer)
}

// spent adds what an attempt cost. A price that a peer pays is not known here.
func (s *subjob) spent(m walk.Measurement) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.tries[m.Option]
	if !ok {
		return
	}
	s.input, s.output = s.input+m.Input, s.output+m.Output
	maybe := m.Class == chain.OK || m.Class == chain.Cut || m.Class == chain.Timeout || m.Class == chain.Canceled
	if o.Kind == chain.Peer {
		s.atLeast = s.atLeast || maybe && (m.Input+m.Output == 0 || slices.Contains(o.Via, chain.Provider))
		return
	}
	if reached(m.Class) {
		s.cost += spent(m, &o.Cost, 0)
	}
	s.atLeast = s.atLeast || maybe && m.Input+m.Output == 0
}

// maxText bounds what is kept of one answer, in bytes.
const maxText = 4 << 20

// take is the walk's Deliver of a sub-job: it gathers the text.
func (s *subjob) take(stream bool) walk.Deliver {
	return func(_ walk.Attempt, data [][]byte) error {
		for _, b := range data {
			piece, short := wordsOf(b, stream)
			s.short = s.short || short
			if piece == "" {
				continue
			}
			if s.text.Len()+len(piece) > maxText {
				s.long = true
				return edge.Refuse(edge.UpstreamError, "the answer of a sub-job is over %d bytes", maxText)
			}
			s.text.WriteString(piece)
			if s.deliver != nil {
				if err := s.deliver(piece); err != nil {
					return err
				}
			}
		}
		return nil
	}
}

// outcome says how the walk went.
func (s *subjob) outcome(ctx context.Context, r *walk.Result, err error) wave.Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := wave.Outcome{Class: ended(r), Text: s.text.String(), Short: s.short, Option: s.option, Peer: s.peer, Input: s.input, Output: s.output, Cost: chain.MicroUSD(s.cost), AtLeast: s.atLeast, Attempts: r.Attempts}
	switch {
	case err != nil:
		o.Class = chain.Absent // no chain, or nothing in it that the application may use
	case ctx.Err() != nil && o.Class != chain.OK:
		o.Class = chain.Canceled
	case s.long:
		o.Class = chain.BadAnswer // nobody cancelled it
	case o.Class == chain.OK && strings.TrimSpace(o.Text) == "":
		o.Class = chain.BadAnswer // it wins no race, and promises the caller nothing
	}
	if r.Option != "" {
		o.Option = r.Option
	}
	if n := len(r.Peers); n > 0 && s.peer != "" {
		o.Peer = r.Peers[n-1]
	}
	if by, ok := s.tries[o.Option]; ok {
		o.Provider, o.Model = providerOf(&by, o.Peer, s.self), by.Model
	}
	if !s.began.IsZero() {
		o.Took = time.Since(s.began)
	}
	return o
}

// note brings what an ended sub-job spent into its record.
func note(o *wave.Outcome) func(*jobs.Record) {
	return func(r *jobs.Record) {
		r.Attempts, r.Input, r.Output, r.Cost, r.AtLeast = o.Attempts, o.Input, o.Output, o.Cost, o.AtLeast
		r.Option, r.Peer = o.Option, o.Peer
	}
}

// withModel completes the body of a sub-job: the chain chooses the model.
func withModel(body []byte, stream bool) []byte {
	rest := bytes.TrimLeft(body, " \t\r\n")
	if len(rest) == 0 || rest[0] != '{' {
		return body // refused by whoever runs it
	}
	head := `{"model":"auto",`
	if stream {
		head += `"stream":true,`
	}
	rest = bytes.TrimLeft(rest[1:], " \t\r\n")
	if len(rest) > 0 && rest[0] == '}' {
		head = head[:len(head)-1]
	}
	return append([]byte(head), rest...)
}
