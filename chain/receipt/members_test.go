package receipt

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

// The members and elements of whatever is valid JSON are those that the library finds.
func FuzzMembers(f *testing.F) {
	for _, s := range []string{`{"a":1,"b":{"c":[1,"]"]},"d":"\"}"}`, ` { "a" : -1.5e3 , "b" : null } `, `{}`, `[]`, `[1, "a,b",{"x":[]} ,[[]]]`, `{"\u0061":"\\"}`, `[true]`, `7`, `""`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if !json.Valid(b) {
			return
		}
		var object map[string]json.RawMessage
		var list []json.RawMessage
		isObject, isList := json.Unmarshal(b, &object) == nil, json.Unmarshal(b, &list) == nil
		seen := map[string][]byte{}
		for name, value := range members(b) {
			text, ok := textOf(append(append([]byte{'"'}, name...), '"'))
			if !ok {
				t.Fatalf("name %q", name)
			}
			seen[text] = value
		}
		if len(seen) != len(object) || len(seen) > 0 && !isObject {
			t.Fatalf("%q: %d members, want %d", b, len(seen), len(object))
		}
		for name, value := range seen {
			same(t, object[name], value)
		}
		n := 0
		for value := range elements(b) {
			if n >= len(list) || !isList {
				t.Fatalf("%q: more elements than %d", b, len(list))
			}
			same(t, list[n], value)
			n++
		}
		if n != len(list) {
			t.Fatalf("%q: %d elements, want %d", b, n, len(list))
		}
	})
}

func same(t *testing.T, want, got []byte) {
	t.Helper()
	if !bytes.Equal(want, got) {
		t.Fatalf("%q, want %q", got, want)
	}
	var text string
	if err := json.Unmarshal(want, &text); err == nil && string(want) != "null" {
		if s, ok := textOf(got); !ok || s != text {
			t.Fatalf("text %q, want %q", s, text)
		}
	}
}

// What Sign gives is what a reader of its line gets.
func TestASignedReceiptIsItsLine(t *testing.T) {
	key, r := example(t)
	r.TokenID, r.Capability = `a"b\c`, "llm.<t>&1"
	for _, e := range []*Executor{r.Executor, nil} {
		r.Executor = e
		s, err := r.Sign(key)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(s.Line)
		if err != nil || !reflect.DeepEqual(again, s) {
			t.Errorf("%v: %+v, want %+v", err, again, s)
		}
	}
	for name, change := range map[string]func(*Receipt){
		"transaction_id": func(r *Receipt) { r.TransactionID = "a b" }, "request_at": func(r *Receipt) { r.RequestAt = r.RequestAt.AddDate(9000, 0, 0) },
		"status": func(r *Receipt) { r.Status = "fine" }, "executor": func(r *Receipt) { r.Executor = &Executor{} }, "agent_did": func(r *Receipt) { r.AgentDID = "grüße" },
	} {
		_, bad := example(t)
		change(&bad)
		if _, err := bad.Sign(key); !errors.Is(err, ErrReceipt) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
