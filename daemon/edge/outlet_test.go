package edge

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

// However an outlet is written, its values are those that a reader of any JSON finds: the last
// one of a name that stands twice, bytes that are no UTF-8 replaced, any depth.
func FuzzReadMembers(f *testing.F) {
	for _, s := range []string{
		`{"token_id":"t","request_hash":"h","agent_model_id":"m","transaction_id":"x","status":"ok","response":"hello"}`,
		` { "status" : "ok" , "response" : {"content":"a\n\u00e9"} , "more" : [1,{"status":2}] } `,
		`{"status":"a","status":"b"}`, `{"\u0073tatus":"a"}`, "{\"status\":\"\xff\"}", `{"status":"\ud800"}`, `{"status":1e999}`,
		`{"response":` + strings.Repeat("[", 100) + strings.Repeat("]", 100) + `}`,
		`{"status":null}`, `{}`, `null`, `[]`, `"status"`, `{"status":"ok"`, `{"status":"ok"}}`, ``, "{\"status\":\"a\x01\"}",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, ok := readMembers(bytes.Clone(body))
		var want map[string]json.RawMessage
		if is := json.Unmarshal(body, &want) == nil && want != nil; is != ok {
			t.Fatalf("%q: an object: %t, want %t", body, ok, is)
		}
		for name, raw := range map[string][]byte{"token_id": got.tokenID, "request_hash": got.requestHash, "agent_model_id": got.model,
			"transaction_id": got.transaction, "status": got.status, "response": got.response} {
			if !bytes.Equal(raw, want[name]) {
				t.Errorf("%q: %s is %q, want %q", body, name, raw, want[name])
			}
			var text, wanted string
			if len(raw) > 0 && ((readText(raw, &text) == nil) != (json.Unmarshal(raw, &wanted) == nil) || text != wanted) {
				t.Errorf("%q is %q as a text, want %q", raw, text, wanted)
			}
		}
	})
}
