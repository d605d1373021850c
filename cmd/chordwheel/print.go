package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"strconv"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"charm.land/lipgloss/v2/table"
	"golang.org/x/term"
)

// print writes v as one JSON object with --json, else calls text. Both come from
// the same value, so that they cannot tell different stories.
func (a *app) print(v any, text func(w io.Writer)) error {
	if !a.json {
		text(a.out)
		return nil
	}
	e := json.NewEncoder(a.out)
	e.SetEscapeHTML(false)
	if a.terminal() {
		e.SetIndent("", "  ")
	}
	return e.Encode(v)
}

// terminal reports whether the output is a person's.
func (a *app) terminal() bool {
	f, ok := a.out.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// colours reports whether the output may be coloured (https://no-color.org).
func (a *app) colours() bool {
	return a.terminal() && a.getenv("NO_COLOR") == "" && a.getenv("TERM") != "dumb"
}

// paint colours s on a terminal.
func (a *app) paint(colour, s string) string {
	if !a.colours() {
		return s
	}
	return lipgloss.NewStyle().Foreground(lipgloss.Color(colour)).Render(s)
}

// ANSI colours that every terminal maps to something readable.
const (
	green  = "2"
	yellow = "3"
	grey   = "8"
)

// rows writes a table without borders: a header and lines, in columns.
func (a *app) rows(w io.Writer, header []string, lines [][]string) {
	if len(lines) == 0 {
		return
	}
	cell := lipgloss.NewStyle().PaddingRight(2)
	head := cell
	if a.colours() {
		head = head.Foreground(lipgloss.Color(grey))
	}
	t := table.New().Headers(header...).Rows(lines...).
		BorderTop(false).BorderBottom(false).BorderLeft(false).BorderRight(false).BorderColumn(false).BorderRow(false).BorderHeader(false).
		StyleFunc(func(row, _ int) lipgloss.Style {
			if row == table.HeaderRow {
				return head
			}
			return cell
		})
	for line := range strings.Lines(t.Render() + "\n") {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
}

// figures writes x with n figures, and every one that a larger number has before
// the point: 0.0123, 4.57, 1234, where %g would write 1.23e+03.
func figures(x float64, n int) string {
	if math.Abs(x) >= math.Pow10(n)-0.5 {
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	return strconv.FormatFloat(x, 'g', n, 64)
}

// millis writes a time of ms milliseconds, in seconds where it has some; none is a dash.
func millis(ms float64) string {
	switch {
	case ms == 0:
		return "—"
	case ms >= 999.5:
		return figures(ms/1000, 3) + " s"
	}
	return figures(ms, 3) + " ms"
}

// ago tells how long ago t was, or how far ahead, in one unit.
func ago(t, now time.Time) string {
	d := now.Sub(t)
	if d < 0 {
		return "in " + span(-d)
	}
	return span(d) + " ago"
}

func span(d time.Duration) string {
	switch {
	case d < time.Second:
		return "under 1 s"
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", int(d.Seconds()))
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", int(d.Hours()))
	}
	return fmt.Sprintf("%d days", int(d.Hours()/24))
}
