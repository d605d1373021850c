package main

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/daemon/job"
)

var drawn = flag.String("drawn", "", "write the drawn timeline here, to be looked at")

// workedOn is a request with everything that can be in one: two waves, a hedge that
// won, a loser of unknown cost, a failed part, a rewrite.
func workedOn() []job.Record {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	at := func(s float64) time.Time { return start.Add(time.Duration(s * float64(time.Second))) }
	score := func(x float64) *float64 { return &x }
	part := func(id string, role job.Role, began, accepted, ended float64, change func(*job.Record)) job.Record {
		r := job.Record{ID: id, Root: "ROOT", RequestID: "req-1", Role: role, State: job.Done, Created: at(began), Accepted: at(accepted), Ended: at(ended), Attempts: 1,
			Input: 900, Output: 200, Cost: 170, Option: "gamma/large"}
		change(&r)
		return r
	}
	return []job.Record{
		{ID: "ROOT", Root: "ROOT", RequestID: "req-1", Transaction: "TX", Role: job.Root, State: job.Done, Created: at(0), Accepted: at(0), Ended: at(14.2), Option: "pipeline",
			Class: "complex", Reasons: []string{"length", "steps:4"}, Notes: []string{"subtask_failed"}, First: score(0.55), Score: score(0.82), Iteration: 1, Issues: 1, Attempts: 10, Input: 7200, Output: 1700, Cost: 1234, AtLeast: true},
		part("A", job.Decompose, 0, 0, 1.8, func(*job.Record) {}),
		part("B", job.Subtask, 1.8, 1.9, 4.6, func(r *job.Record) { r.Task, r.Wave, r.Option = "s1", 1, "alpha/small" }),
		part("C", job.Subtask, 1.8, 2, 8.1, func(r *job.Record) {
			r.Task, r.Wave, r.Option, r.Device, r.State, r.Hedge, r.Input, r.Output, r.Cost, r.AtLeast = "s2", 1, "peer", "attic", job.Superseded, job.Loser, 0, 0, 0, true
		}),
		part("D", job.Subtask, 1.8, 1.8, 3.1, func(r *job.Record) {
			r.Task, r.Wave, r.State, r.Reason, r.Attempts = "s3", 1, job.Failed, "timeout", 2
		}),
		part("E", job.Subtask, 5.5, 5.6, 8.0, func(r *job.Record) {
			r.Task, r.Wave, r.CopyOf, r.Rung, r.Hedge, r.Option = "s2", 1, "C", 1, job.Winner, "beta/small"
		}),
		part("F", job.Synthesise, 8.1, 8.1, 10, func(*job.Record) {}),
		part("G", job.Score, 10, 10, 11, func(r *job.Record) { r.Iteration, r.Score, r.Issues = 1, score(0.55), 3 }),
		part("H", job.Rewrite, 11, 11, 13.1, func(r *job.Record) { r.Iteration = 1 }),
		part("I", job.Score, 13.1, 13.1, 14.2, func(r *job.Record) { r.Iteration, r.Score, r.Issues, r.Fixed = 2, score(0.82), 1, 2 }),
	}
}

func TestTheTreeOfJobs(t *testing.T) {
	var out bytes.Buffer
	a := &app{out: &out}
	a.writeTree(&out, workedOn(), time.Now())
	golden := filepath.Join("testdata", "jobs.txt")
	if os.Getenv("GOLDEN") != "" {
		if err := os.WriteFile(golden, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || string(want) != out.String() {
		t.Errorf("%v, got (GOLDEN=1 writes it):\n%s", err, out.String())
	}
}

// Work of a provider is a request of one job, which says who did it.
func TestWorkOfAProviderIsShown(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	tree := []job.Record{{ID: "P", Root: "P", RequestID: "req-2", Role: job.Provided, Primitive: "text.keywords", State: job.Done, Option: "peer", Provider: "tab7", Created: start, Accepted: start, Ended: start.Add(time.Second)}}
	var list, shown, drawing bytes.Buffer
	a := &app{}
	a.writeJobs(&list, tree, time.Now())
	a.writeTree(&shown, tree, time.Now())
	drawTimeline(&drawing, tree, time.Now())
	if !strings.Contains(list.String(), "provided") || !strings.Contains(shown.String(), "peer by tab7") || !strings.Contains(drawing.String(), "provided request") {
		t.Errorf("%s\n%s", &list, &shown)
	}
}

// The drawing is XML, whatever peers and catalogues call themselves.
func TestTheTimelineIsADrawing(t *testing.T) {
	tree := workedOn()
	tree[3].Device = `<script>&"'`
	var out bytes.Buffer
	drawTimeline(&out, tree, time.Now())
	if *drawn != "" {
		if err := os.WriteFile(*drawn, out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	d := xml.NewDecoder(&out)
	var bars int
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		e, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		if strings.EqualFold(e.Name.Local, "script") {
			t.Error("a script")
		}
		for _, attr := range e.Attr {
			if attr.Name.Local == "class" && (attr.Value == "winner" || attr.Value == "superseded") {
				bars++
			}
		}
	}
	if bars != 2+2 { // and the legend's
		t.Errorf("%d bars of winner and loser", bars)
	}
}
