package main

import (
	"context"
	"log/slog"
	"os"
	"slices"
	"time"

	"github.com/lmittmann/tint"
	"golang.org/x/term"

	"github.com/chordwheel/chordwheel/mesh"
)

// logger makes the log of a node: for people on a terminal, JSON elsewhere. What
// libraries say goes there too, from warnings up. A level that is none is info: the
// node's settings say so, with all else that is wrong.
func (a *app) logger(level string) *slog.Logger {
	var l slog.Level
	if l.UnmarshalText([]byte(level)) != nil {
		l = slog.LevelInfo
	}
	var handler slog.Handler = slog.NewJSONHandler(a.err, &slog.HandlerOptions{Level: l})
	if f, ok := a.err.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		handler = tint.NewTextHandler(a.err, &tint.Options{Level: l, TimeFormat: time.TimeOnly, NoColor: !a.colours()})
	}
	libraries := atLeast{handler, slog.LevelWarn}
	mesh.RouteLibraryLogs(libraries)
	slog.SetDefault(slog.New(libraries)) // drops what is printed with package log: net/http quotes foreign bytes there
	return slog.New(inOrder{Handler: handler})
}

// inOrder writes a line in the order in which people read it: time, level,
// message, the request it is about, and then the rest, what a logger was given
// before it last.
type inOrder struct {
	slog.Handler
	given []slog.Attr
}

func (h inOrder) Handle(ctx context.Context, r slog.Record) error {
	if h.ordered(&r) {
		if len(h.given) > 0 {
			r = r.Clone()
			r.AddAttrs(h.given...)
		}
		return h.Handler.Handle(ctx, r)
	}
	line := slog.NewRecord(r.Time, r.Level, r.Message, r.PC)
	rest := make([]slog.Attr, 0, r.NumAttrs()+len(h.given))
	sort := func(a slog.Attr) bool {
		if a.Key == "request_id" {
			line.AddAttrs(a)
		} else {
			rest = append(rest, a)
		}
		return true
	}
	r.Attrs(sort)
	for _, a := range h.given {
		sort(a)
	}
	line.AddAttrs(rest...)
	return h.Handler.Handle(ctx, line)
}

// ordered reports whether r has its request in front, if any: the line of a finished
// request has, and is not put together a second time.
func (h inOrder) ordered(r *slog.Record) bool {
	at, found := 0, -1
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "request_id" {
			found = at
		}
		at++
		return true
	})
	if found >= 0 {
		return found == 0
	}
	return !slices.ContainsFunc(h.given, func(a slog.Attr) bool { return a.Key == "request_id" })
}

func (h inOrder) WithAttrs(attrs []slog.Attr) slog.Handler {
	return inOrder{h.Handler, append(slices.Clip(h.given), attrs...)}
}

func (h inOrder) WithGroup(name string) slog.Handler {
	return inOrder{h.Handler.WithAttrs(h.given).WithGroup(name), nil}
}

// atLeast lets pass what is as important as min.
type atLeast struct {
	slog.Handler
	min slog.Level
}

func (h atLeast) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= h.min && h.Handler.Enabled(ctx, l)
}

func (h atLeast) WithAttrs(attrs []slog.Attr) slog.Handler {
	return atLeast{h.Handler.WithAttrs(attrs), h.min}
}
func (h atLeast) WithGroup(name string) slog.Handler {
	return atLeast{h.Handler.WithGroup(name), h.min}
}
