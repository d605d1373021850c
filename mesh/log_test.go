package mesh

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
)

// A connection that was closed early is no event of an operator's log; whatever
// else the library says is.
func TestLibraryLogs(t *testing.T) {
	var b bytes.Buffer
	log := slog.New(unalarmed{slog.NewTextHandler(&b, nil)}).With("logger", "net/identify").WithGroup("g")
	log.Warn("failed to identify peer", "peer", "p")
	log.Warn("something else", "peer", "p")
	if got := b.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, `msg="something else" logger=net/identify g.peer=p`) {
		t.Errorf("got %q", got)
	}
}
