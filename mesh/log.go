package mesh

import (
	"context"
	"log/slog"

	"github.com/libp2p/go-libp2p/gologshim"
)

// RouteLibraryLogs sends what libp2p logs to handler. It acts on the whole
// process and must be called before the first node is made; only cmd does.
func RouteLibraryLogs(handler slog.Handler) { gologshim.SetDefaultHandler(handler) }

// warnings is the part of a node's log that a library may write to: what it
// tells of its daily life is not the operator's.
type warnings struct{ slog.Handler }

func (w warnings) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelWarn && w.Handler.Enabled(ctx, l)
}

func (w warnings) WithAttrs(attrs []slog.Attr) slog.Handler {
	return warnings{w.Handler.WithAttrs(attrs)}
}

func (w warnings) WithGroup(name string) slog.Handler { return warnings{w.Handler.WithGroup(name)} }
