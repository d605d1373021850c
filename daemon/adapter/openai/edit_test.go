package openai

import (
	"encoding/json"
	"io"
	"reflect"
	"testing"
)

func edited(t testing.TB, body, model string, stream, usage bool) (string, error) {
	t.Helper()
	e, _, err := prepare([]byte(body), quote(model), stream, usage)
	if err != nil {
		return "", err
	}
	read, err := io.ReadAll(newSpliced([]byte(body), &e))
	if err != nil {
		t.Fatal(err)
	}
	if applied := e.apply(nil, []byte(body)); string(applied) != string(read) || e.size(len(body)) != len(read) {
		t.Fatalf("read %q, applied %q, size %d", read, applied, e.size(len(body)))
	}
	return string(read), nil
}

func TestRequestsAreEditedAndNothingElse(t *testing.T) {
	for _, tt := range []struct {
		name, body    string
		stream, usage bool
		want          string
	}{
		{"model alone", `{"model":"auto","messages":[]}`, false, true, `{"model":"up","messages":[]}`},
		{"spaces, order, numbers and escapes stay", "{ \"a\":1.0e0,\n\t\"model\" : \"x\" , \"b\":\"\\u00e9\\/\" }", false, true, "{ \"a\":1.0e0,\n\t\"model\" : \"up\" , \"b\":\"\\u00e9\\/\" }"},
		{"no model", `{"messages":[]}`, false, true, `{"model":"up","messages":[]}`},
		{"empty object", `{}`, false, true, `{"model":"up"}`},
		{"escaped name", `{"m\u006fdel":"x"}`, false, true, `{"m\u006fdel":"up"}`},
		{"named twice", `{"model":"x","model":{"y":[1]}}`, false, true, `{"model":"up","model":"up"}`},
		{"only at the top", `{"metadata":{"model":"x"},"model":null}`, false, true, `{"metadata":{"model":"x"},"model":"up"}`},
		{"stream with usage asked", `{"model":"x","stream":true}`, true, true, `{"stream_options":{"include_usage":true},"model":"up","stream":true}`},
		{"stream without", `{"model":"x","stream":true}`, true, false, `{"model":"up","stream":true}`},
		{"options kept", `{"model":"x","stream":true,"stream_options":{"include_obfuscation":false}}`, true, true, `{"model":"up","stream":true,"stream_options":{"include_usage":true,"include_obfuscation":false}}`},
		{"options off", `{"model":"x","stream":true,"stream_options":{"a":1,"include_usage":false}}`, true, true, `{"model":"up","stream":true,"stream_options":{"a":1,"include_usage":true}}`},
		{"options empty", `{"model":"x","stream":true,"stream_options":{}}`, true, true, `{"model":"up","stream":true,"stream_options":{"include_usage":true}}`},
		{"options null", `{"model":"x","stream":true,"stream_options":null}`, true, true, `{"model":"up","stream":true,"stream_options":{"include_usage":true}}`},
		{"options nonsense", `{"model":"x","stream":true,"stream_options":7}`, true, true, `{"model":"up","stream":true,"stream_options":7}`},
		{"plain keeps its options", `{"model":"x","stream_options":{"a":1}}`, false, true, `{"model":"up","stream_options":{"a":1}}`},
		{"plain never streams", `{"model":"x","stream":true}`, false, true, `{"model":"up","stream":false}`},
		{"plain keeps false", `{"model":"x","stream": false}`, false, true, `{"model":"up","stream": false}`},
		{"stream always streams", `{"model":"x"}`, true, false, `{"stream":true,"model":"up"}`},
		{"stream over null", `{"model":"x","stream":null}`, true, false, `{"model":"up","stream":true}`},
	} {
		if got, err := edited(t, tt.body, "up", tt.stream, tt.usage); err != nil || got != tt.want {
			t.Errorf("%s:\n got %s (%v)\nwant %s", tt.name, got, err, tt.want)
		}
	}
}

func TestRequestsThatAreNoObject(t *testing.T) {
	for _, body := range []string{``, `null`, `[]`, `"x"`, `{`, `{"model":"x"}}`, `{"model":}`, `{"model":"x"} 1`, "{\"a\":\"\n\"}",
		`{"model":1,"model":2,"model":3,"model":4,"model":5,"model":6,"model":7,"model":8,"model":9}`} {
		if got, err := edited(t, body, "up", true, true); err == nil {
			t.Errorf("%s became %s", body, got)
		}
	}
}

func FuzzPrepare(f *testing.F) {
	for _, s := range []string{`{"model":"x","stream":true,"stream_options":{"include_usage":false,"a":[{}]},"n":2}`, `{}`, `{"m\u006fdel":1}`, `{"stream_options":{},"stream_options":null}`, `[]`} {
		f.Add(s, true, true)
		f.Add(s, false, false)
	}
	f.Fuzz(func(t *testing.T, body string, stream, usage bool) {
		got, err := edited(t, body, "up\"\n", stream, usage)
		if err != nil {
			return
		}
		var before, after map[string]json.RawMessage
		if json.Unmarshal([]byte(body), &before) != nil {
			t.Fatalf("%q was accepted", body)
		}
		if err := json.Unmarshal([]byte(got), &after); err != nil {
			t.Fatalf("%q became %q: %v", body, got, err)
		}
		var model string
		if json.Unmarshal(after["model"], &model) != nil || model != "up\"\n" || stream && string(after["stream"]) != "true" || !stream && string(after["stream"]) == "true" {
			t.Fatalf("%q became %q", body, got)
		}
		for _, name := range []string{"model", "stream", "stream_options"} {
			delete(before, name)
			delete(after, name)
		}
		if len(before)+len(after) > 0 && !reflect.DeepEqual(before, after) {
			t.Fatalf("%q became %q", body, got)
		}
	})
}
