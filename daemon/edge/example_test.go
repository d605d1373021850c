package edge_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/apps"
	"github.com/chordwheel/chordwheel/daemon/edge"
)

// echo is a Worker that runs nothing: it answers with the model's name.
type echo struct{}

func (echo) Do(_ context.Context, w *edge.Work, deliver walk.Deliver) (walk.Result, error) {
	if w.Model != edge.Auto {
		return walk.Result{}, edge.Refuse(edge.ModelNotFound, "no model %q", w.Model)
	}
	by := walk.Attempt{Number: 1, Option: chain.Option{ID: "local/echo"}}
	if err := deliver(by, [][]byte{[]byte(`{"choices":[]}`)}); err != nil {
		return walk.Result{End: walk.Left}, nil
	}
	return walk.Result{End: walk.Answered, Option: by.Option.ID, Attempts: 1}, nil
}

func (echo) PeerName(chain.PeerID) string { return "" }
func (echo) Ready() error                 { return nil }
func (echo) Models(*apps.App) edge.Models { return edge.Models{Issued: time.Unix(1700000000, 0)} }

func Example() {
	e, err := edge.New(edge.Config{Worker: echo{}, Key: "sk-local"})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, model := range []string{"auto", "nobody"} {
		body := fmt.Sprintf(`{"model":%q,"stream":true,"messages":[{"role":"user","content":"hi"}]}`, model)
		r := httptest.NewRequest(http.MethodPost, "http://localhost/v1/chat/completions", strings.NewReader(body))
		r.Header.Set("Authorization", "Bearer sk-local")
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("X-Chordwheel-Request-Id", "r1")
		w := httptest.NewRecorder()
		e.ServeHTTP(w, r)
		fmt.Printf("%d by %q\n", w.Code, w.Header().Get("X-Chordwheel-Option"))
		fmt.Println(strings.ReplaceAll(w.Body.String(), "\n\n", "\n"))
	}
	// Output:
	// 200 by "local/echo"
	// data: {"choices":[]}
	// data: [DONE]
	//
	// 404 by ""
	// {"error":{"code":"model_not_found","message":"no model \"nobody\"","request_id":"r1","type":"invalid_request_error"}}
}
