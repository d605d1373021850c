package edge

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/receipt"
)

// report is what an outlet says, as far as it can be read.
type report struct {
	receipt.Receipt
	model    string
	linked   bool     // its inlet was ours
	problems []string // names of members that were not as they should be
}

// postOutlet serves POST /v1/outlet: a chat was answered, and has its receipt. What
// is wrong with the report does not undo the chat: the best receipt is made of it
// that can be. Only a receipt that is not on disk is an error.
func (x *exchange) postOutlet(string) *Refusal {
	desk := x.edge.desk
	if desk == nil {
		return Refuse(SpoolFull, "this device keeps no receipts: see docs/edge.md for what inlet and outlet need")
	}
	w := x.wishes
	w.Primitive, x.blank = chain.LLMChat, true
	return x.inside(w, x.edge.limits.Outlet, func() *Refusal {
		r := x.edge.readReport(w.Body, time.Now())
		x.agent, x.tokenID = r.AgentDID, r.TokenID
		if len(r.problems) > 0 {
			x.edge.log.Warn("an outlet is not as it should be; its receipt is the best that can be made", "request_id", x.id, "members", strings.Join(r.problems, " "))
		}
		if err := desk.Receipts.Keep(x.r.Context(), r.Receipt); err != nil {
			return refusalOf(err)
		}
		if r.linked {
			x.edge.inlets.end(r.TransactionID)
		}
		return x.reply(http.StatusOK, OutletResponse{Ack: true, TransactionID: r.TransactionID})
	})
}

// reported are the values in an outlet's body as they came, nil where there is none.
type reported struct{ tokenID, requestHash, model, transaction, status, response []byte }

// readMembers finds them. What the edge would not take of a chat, such as a name that stands
// twice, of which the last counts, or bytes that are no UTF-8, is no reason to be without a
// receipt. It is false of what is no JSON object.
func readMembers(body []byte) (reported, bool) {
	s := scan(body, jsonDepth)
	defer s.done()
	s.lenient = true
	if s.space(); s.peek() != '{' {
		return reported{}, false
	}
	var m reported
	err := s.object(func(name []byte) error {
		from := s.i
		err := s.value()
		switch value := body[from:s.i]; string(name) {
		case "token_id":
			m.tokenID = value
		case "request_hash":
			m.requestHash = value
		case "agent_model_id":
			m.model = value
		case "transaction_id":
			m.transaction = value
		case "status":
			m.status = value
		case "response":
			m.response = value
		}
		return err
	})
	if err != nil || s.end() != nil {
		return reported{}, false
	}
	return m, true
}

// readText reads a JSON string.
func readText(raw []byte, to *string) error {
	if n := len(raw) - 2; n >= 0 && raw[0] == '"' && plainRun(raw[1:]) == n { // most are as they stand
		*to = string(raw[1 : n+1])
		return nil
	}
	return json.Unmarshal(raw, to)
}

// readReport makes a receipt of an outlet's body.
func (e *Edge) readReport(body []byte, now time.Time) report {
	r := report{Receipt: receipt.Receipt{Status: receipt.OK, RequestAt: now, ResponseAt: now, Capability: string(chain.LLMChat)}}
	bad := func(name string) {
		if !slices.Contains(r.problems, name) {
			r.problems = append(r.problems, name)
		}
	}
	m, ok := readMembers(body)
	if !ok {
		bad("body")
	}
	var transaction, status string
	for _, f := range []struct {
		name     string
		raw      []byte
		to       *string
		most     int
		required bool
	}{
		{"token_id", m.tokenID, &r.TokenID, 256, false}, {"request_hash", m.requestHash, &r.RequestHash, 71, true}, {"agent_model_id", m.model, &r.model, maxModel, true},
		{"transaction_id", m.transaction, &transaction, 128, false}, {"status", m.status, &status, 32, false},
	} {
		if len(f.raw) == 0 || string(f.raw) == "null" {
			if f.required {
				bad(f.name)
			}
			continue
		}
		if readText(f.raw, f.to) != nil || len(*f.to) > f.most {
			*f.to = ""
			bad(f.name)
		}
	}
	if !isPrintable(r.TokenID) {
		r.TokenID = ""
		bad("token_id")
	}
	r.readStatus(status, bad)
	r.readResponse(m.response, bad)
	e.link(&r, transaction, bad)
	if receipt.ParseHash(r.RequestHash) != nil {
		r.RequestHash = receipt.OutputHash(nil)
		bad("request_hash")
	}
	r.MessageID = receipt.MessageID(r.TransactionID, receipt.RoleRoot)
	return r
}

func isPrintable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

func (r *report) readStatus(status string, bad func(string)) {
	switch s := receipt.Status(status); s {
	case "":
	case receipt.OK, receipt.UpstreamError, receipt.ClientAborted, receipt.Rejected:
		r.Status = s
	default:
		bad("status")
	}
}

// readResponse hashes the answer: a text, or an assistant's message. A hash that the
// caller computed is not looked at.
func (r *report) readResponse(raw []byte, bad func(string)) {
	var text string
	if len(raw) > 0 && raw[0] == '"' && readText(raw, &text) == nil {
		r.ResponseHash = receipt.ResponseHash(text, nil)
		return
	}
	var m struct {
		Content   json.RawMessage `json:"content"`
		ToolCalls json.RawMessage `json:"tool_calls"`
	}
	if raw = bytes.TrimSpace(raw); len(raw) > 0 && raw[0] == '{' && json.Unmarshal(raw, &m) == nil && json.Unmarshal(m.Content, &text) == nil || len(m.ToolCalls) > 0 {
		r.ResponseHash = receipt.ResponseHash(text, m.ToolCalls)
		return
	}
	r.ResponseHash = receipt.OutputHash(raw)
	if r.Status == receipt.OK || len(raw) > 0 && string(raw) != "null" {
		bad("response")
	}
}

// link finds the inlet of a report. Without one the receipt has a transaction of its
// own, which says so.
func (e *Edge) link(r *report, transaction string, bad func(string)) {
	at, ok := openTransaction(e.desk.Secret, transaction, r.RequestHash, r.TokenID, r.model)
	r.linked = ok
	if !ok {
		if transaction != "" {
			bad("transaction_id")
		}
		r.TransactionID = unlinked + rand.Text()
	} else {
		r.TransactionID, r.RequestAt = transaction, at
	}
	chosen, known := e.inlets.known(r.TransactionID)
	if !known {
		chosen.Agent, chosen.Capability = e.desk.Select.Agent(r.model)
	}
	r.AgentDID = chosen.Agent
	if chosen.Capability != "" {
		r.Capability = chosen.Capability
	}
}
