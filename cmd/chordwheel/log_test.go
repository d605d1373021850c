package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// A line names its request right behind the message, whatever else the logger
// was given before.
func TestOrderOfALogLine(t *testing.T) {
	var b bytes.Buffer
	drop := func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}
	log := slog.New(inOrder{Handler: slog.NewJSONHandler(&b, &slog.HandlerOptions{ReplaceAttr: drop})}).With("node", "a")
	log.Info("said", "status", 200, "request_id", "r")
	log.Info("said", "request_id", "r", "status", 200)
	log.With("request_id", "r").Info("said", "status", 200)
	log.Info("said", "status", 200)
	log.With("request_id", "r").WithGroup("g").Info("said", "x", 1)
	want := `{"level":"INFO","msg":"said","request_id":"r","status":200,"node":"a"}
{"level":"INFO","msg":"said","request_id":"r","status":200,"node":"a"}
{"level":"INFO","msg":"said","request_id":"r","status":200,"node":"a"}
{"level":"INFO","msg":"said","status":200,"node":"a"}
{"level":"INFO","msg":"said","node":"a","request_id":"r","g":{"x":1}}
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), strings.TrimSpace(want))
	}
}
