package edge

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain/walk"
)

// A chat that carries the transaction of its inlet is that inlet's, once; the member goes no
// further than this edge, and every other byte does.
func TestAChatCarriesTheTransactionOfItsInlet(t *testing.T) {
	var got *Work
	c := newCounter()
	e := newEdge(t, &fake{do: func(_ context.Context, w *Work, _ walk.Deliver) (walk.Result, error) {
		got = w
		return walk.Result{}, Refuse(NoModels, "none")
	}}, func(cfg *Config) { cfg.Desk = c.desk() })
	const rest = `"model":"auto", "messages":[{"role":"user","content":"hi"}]`
	stranger := newTransaction([]byte("another device's"), time.Now(), "h", "t", "m")
	for name, tt := range map[string]struct {
		body string // @ stands for the inlet's
		want string // of Work.Body
		linked,
		again bool
	}{
		"last":                   {`{` + rest + `,"transaction_id":"@"}`, `{` + rest + `}`, true, false},
		"first":                  {`{"transaction_id":"@",` + rest + `}`, `{` + rest + `}`, true, false},
		"with blanks":            {"{ \"transaction_id\" :\n\"@\" , " + rest + ` }`, `{  ` + rest + ` }`, true, false},
		"last, with blanks":      {`{` + rest + " ,\t\"transaction_id\": \"@\" }", `{` + rest + ` }`, true, false},
		"between":                {`{"seed":1,"transaction_id":"@",` + rest + `}`, `{"seed":1,` + rest + `}`, true, false},
		"a second chat":          {`{` + rest + `,"transaction_id":"@"}`, `{` + rest + `}`, false, true},
		"another device's":       {`{` + rest + `,"transaction_id":"` + stranger + `"}`, `{` + rest + `}`, false, false},
		"a name of the caller's": {`{` + rest + `,"transaction_id":"order-17"}`, `{` + rest + `,"transaction_id":"order-17"}`, false, false},
		"no text":                {`{` + rest + `,"transaction_id":[1]}`, `{` + rest + `,"transaction_id":[1]}`, false, false},
		"a name with escapes":    {`{` + rest + `,"transaction\u005fid":"@"}`, `{` + rest + `,"transaction\u005fid":"@"}`, false, false},
		"inside":                 {`{"metadata":{"transaction_id":"@"},` + rest + `}`, `{"metadata":{"transaction_id":"@"},` + rest + `}`, false, false},
	} {
		id := letIn(t, e, inletReq).TransactionID
		body, want := strings.ReplaceAll(tt.body, "@", id), strings.ReplaceAll(tt.want, "@", id)
		if tt.again {
			do(e, ask("POST", "/v1/chat/completions", body))
		}
		do(e, ask("POST", "/v1/chat/completions", body))
		switch {
		case string(got.Body) != want:
			t.Errorf("%s: goes on as %s\nwant       %s", name, got.Body, want)
		case (got.Transaction == id) != tt.linked || !tt.linked && got.Transaction != "":
			t.Errorf("%s: transaction %q", name, got.Transaction)
		case got.Received != nil && string(got.Received) != body || got.Received == nil && want != body:
			t.Errorf("%s: the receipt would be of %q", name, got.Received)
		}
	}
	// The chat has its receipt: an outlet that never comes is not missed.
	if _, lost := e.Inlets(time.Now().Add(2 * outletWait)); lost == 0 {
		t.Error("no inlet is missed")
	} else if open, _ := e.Inlets(time.Now()); lost != 5 || open != 0 {
		t.Errorf("%d of 11 inlets are missed, %d open", lost, open)
	}
}
