package control

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Gatekeeper is the part of a [Device] that knows who may be asked for work.
type Gatekeeper interface {
	Refresh(ctx context.Context) error // asks the registry now; Asked where there is none
	// CheckToken judges a token as the gate would, and uses nothing up. Asked where
	// there is no gate.
	CheckToken(ctx context.Context, q TokenQuestion) (TokenVerdict, error)
}

// TokenQuestion is a token and what it is to be good for.
type TokenQuestion struct {
	Token      chain.Secret `json:"token"`
	Agent      string       `json:"agent,omitempty"`      // "": whom it is for
	Capability string       `json:"capability,omitempty"` // "": what it is for
	From       chain.PeerID `json:"from,omitempty"`       // the peer that would hand work on with it; "": nobody
}

// TokenVerdict is what a gate says of a token, and what the token says itself, which
// is believed only once its signature holds.
type TokenVerdict struct {
	Verdict string `json:"verdict"` // allow or deny
	Code    string `json:"code,omitempty"`
	Reason  string `json:"reason,omitempty"`
	Mode    string `json:"mode"` // of the gate: where it observes, work goes on all the same
	Signed  bool   `json:"signed"`

	ID           string     `json:"jti,omitempty"`
	Issuer       string     `json:"iss,omitempty"`
	Subject      string     `json:"sub,omitempty"`
	Audience     string     `json:"aud,omitempty"`
	Capability   string     `json:"capability,omitempty"`
	Issued       *time.Time `json:"iat,omitempty"`
	NotBefore    *time.Time `json:"nbf,omitempty"`
	Expires      *time.Time `json:"exp,omitempty"`
	Confirmation string     `json:"cnf,omitempty"`      // did:key that it is bound to
	Standing     string     `json:"standing,omitempty"` // of the agent, in the snapshot
}

// Service serves the routes below /admin/ for the owner's tools, who show the
// service token: openapi.yaml describes them. An empty token lets nobody in.
func Service(d Device, token chain.Secret) http.Handler {
	want := sha256.Sum256([]byte(token.Reveal()))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		scheme, shown, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		got := sha256.Sum256([]byte(shown))
		if token == "" || len(r.Header["Authorization"]) != 1 || !strings.EqualFold(scheme, "Bearer") || subtle.ConstantTimeCompare(got[:], want[:]) != 1 {
			w.Header().Set("WWW-Authenticate", "Bearer")
			fail(w, http.StatusUnauthorized, "want \"Bearer \" and the service token: ORCH_ADMIN_TOKEN, or admin.token in the data directory")
			return
		}
		var allow string
		var serve func(http.ResponseWriter, *http.Request, Device)
		switch r.URL.EscapedPath() {
		case "/admin/snapshot/refresh":
			allow, serve = http.MethodPost, refreshSnapshot
		case "/admin/spool":
			allow, serve = http.MethodGet, showSpool
		default:
			fail(w, http.StatusNotFound, "there is nothing at this path")
			return
		}
		if r.Method != allow {
			w.Header().Set("Allow", allow)
			fail(w, http.StatusMethodNotAllowed, "want "+allow)
			return
		}
		serve(w, r, d)
	})
}

// refreshSnapshot asks the registry now and tells what is known then.
func refreshSnapshot(w http.ResponseWriter, r *http.Request, d Device) {
	if err := d.Refresh(r.Context()); err != nil {
		fail(w, http.StatusBadGateway, chain.ClipTo(err.Error(), 512))
		return
	}
	var s *Snapshot
	if g := d.Status().Gating; g != nil {
		s = g.Snapshot
	}
	answer(w, s)
}

func showSpool(w http.ResponseWriter, _ *http.Request, d Device) {
	s := d.Status().Receipts
	if s == nil {
		fail(w, http.StatusNotFound, "this device keeps no receipts")
		return
	}
	answer(w, s)
}

// serveGate is the socket's part: whoever can open it may ask what a token is good for.
func serveGate(mux *http.ServeMux, d Device) {
	mux.HandleFunc("POST /api/v1/gate/check", func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			TokenQuestion
			Token string `json:"token"`
		}
		if err := json.NewDecoder(io.LimitReader(r.Body, maxRequest)).Decode(&q); err != nil {
			fail(w, http.StatusBadRequest, "the body is not the JSON of a token")
			return
		}
		q.TokenQuestion.Token = chain.Secret(q.Token)
		v, err := d.CheckToken(r.Context(), q.TokenQuestion)
		if err != nil {
			fail(w, statusOf(err), err.Error())
			return
		}
		answer(w, v)
	})
}
