package edge

import (
	"context"
	"net/http"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/receipt"
)

// Modes of an inlet.
const (
	modeAuto   = "auto"
	modeDirect = "direct"
)

// postInlet serves POST /v1/inlet: who may serve this chat, under which token. The
// steps are in the order in which a refusal says the least.
func (x *exchange) postInlet(string) *Refusal {
	desk := x.edge.desk
	if desk == nil {
		return Refuse(NoSnapshot, "this device keeps no receipts: see docs/edge.md for what inlet and outlet need")
	}
	w := x.wishes
	w.Primitive = chain.LLMChat
	return x.inside(w, x.edge.limits.Body, func() *Refusal {
		if err := readInlet(w, x.edge.limits); err != nil {
			return asRefusal(err)
		}
		hash, err := receipt.RequestHash(w.Body)
		if err != nil {
			return invalid("body: it has no canonical form that could be hashed")
		}
		now := time.Now()
		if desk.Snapshot != nil {
			if err := desk.Snapshot.Fresh(now); err != nil {
				return refusalOf(err)
			}
		}
		chosen, err := desk.Select.Select(w)
		if err != nil {
			return refusalOf(err)
		}
		w.Method, x.agent = chosen.Method, chosen.Agent
		passed := x.pass(x.r.Context(), chosen)
		if passed.Err != nil {
			return refusalOf(passed.Err)
		}
		answer := InletResponse{AgentModelID: chosen.Model, TokenID: passed.TokenID, RequestHash: hash, Status: "ok", SelectionMethod: chosen.Method,
			TransactionID: newTransaction(desk.Secret, now, hash, passed.TokenID, chosen.Model)}
		x.edge.inlets.begin(answer.TransactionID, chosen, now)
		return x.reply(http.StatusOK, answer)
	})
}

// pass has the gate judge who was chosen. Where that is nobody yet, each attempt at
// somebody is judged by itself when the chat comes.
func (x *exchange) pass(ctx context.Context, chosen Selected) Decision {
	gate := x.edge.desk.Gate
	if gate == nil || chosen.Agent == "" {
		return Decision{}
	}
	d := gate.Pass(ctx, chosen.Agent, chosen.Capability)
	x.gateWord, x.tokenID = d.Word, d.TokenID
	return d
}

// refusalOf gives an error as what the caller is told.
func refusalOf(err error) *Refusal {
	f := failureOf(err)
	return &Refusal{Code: f.code, Message: f.detail.Message, RetryAfter: f.retry}
}

// readInlet checks the body of an inlet: a chat completion request whose model may
// be left out, and how to choose.
func readInlet(w *Work, l Limits) error {
	s := scan(w.Body, l.Depth)
	defer s.done()
	s.space()
	if s.peek() != '{' {
		return s.want("an object")
	}
	var c chat
	mode := ""
	err := s.object(func(name []byte) (err error) {
		s.field, s.index = name, -1
		if string(name) == "mode" {
			mode, err = s.mode()
		} else {
			err = s.chatField(&c, name, l)
		}
		s.field, s.index = nil, -1
		return err
	})
	if err == nil {
		err = s.end()
	}
	switch {
	case err != nil:
		return err
	case !c.messages:
		return invalid("messages: missing: want a list of at least one message")
	case mode == "" && (c.model == "" || c.model == Auto):
		mode = modeAuto
	case mode == modeDirect && (c.model == "" || c.model == Auto):
		return invalid("model: missing: mode direct wants the name of one")
	}
	w.Model, w.Ask = c.model, c.asked()
	if mode == modeAuto {
		w.Model = Auto
	}
	return nil
}

func (s *scanner) mode() (string, error) {
	if s.peek() == '"' {
		raw, _, err := s.text()
		if err != nil {
			return "", err
		}
		if m := string(raw); m == modeAuto || m == modeDirect {
			return m, nil
		}
	} else if err := s.value(); err != nil {
		return "", err
	}
	return "", invalid("%s: want auto or direct", s.where())
}
