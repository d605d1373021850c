package mesh

import (
	"context"
	"log/slog"

	"github.com/libp2p/go-libp2p/gologshim"
)

// RouteLibraryLogs sends what libp2p logs to handler. It acts on the whole
// process and must be called before the first node is made; only cmd does.
func RouteLibraryLogs(handler slog.Handler) { gologshim.SetDefaultHandler(unalarmed{handler}) }

// unidentified is what libp2p warns of whenever a connection is closed before the two
// ends told each other what they speak: each netcheck and each visit that is over at once
// does so, and nothing comes of it.
const unidentified = "failed to identify peer"

// unalarmed keeps that to itself.
type unalarmed struct{ slog.Handler }

func (h unalarmed) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == unidentified {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

func (h unalarmed) WithAttrs(attrs []slog.Attr) slog.Handler {
	return unalarmed{h.Handler.WithAttrs(attrs)}
}

func (h unalarmed) WithGroup(name string) slog.Handler { return unalarmed{h.Handler.WithGroup(name)} }

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
