package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write catalogue.yaml and choices.json again")

// choice is what the cascade does for one combination.
type choice struct {
	Stage    string   `json:"stage,omitempty"`
	Consumer string   `json:"consumer,omitempty"`
	Instance string   `json:"instance,omitempty"`
	Models   []string `json:"models"`
}

// choices goes over the whole cross product: every name, one that nobody knows,
// and none.
func choices(c Cascade) (all []choice) {
	names := func(levels map[string]Level) []string {
		return append(slices.Sorted(maps.Keys(levels)), "nobody-knows", "")
	}
	for _, s := range names(c.Stages) {
		for _, u := range names(c.Consumers) {
			for _, i := range names(c.Instances) {
				all = append(all, choice{s, u, i, c.Choices(s, u, i)})
			}
		}
	}
	return all
}

// The catalogue and the table of choices are kept beside the cascade. That the
// catalogue gives just these choices, for all of the cross product, is held by
// TestACascadeKeepsItsBehaviour of package orchestrator, with the real hub.
func TestTheFilesAreCurrent(t *testing.T) {
	b, err := os.ReadFile("cascade.json")
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	table, err := json.MarshalIndent(choices(c), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := run([]string{"cascade.json"}, &out); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string][]byte{"catalogue.yaml": out.Bytes(), "choices.json": append(table, '\n')} {
		if *update {
			if err := os.WriteFile(file, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(file); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what the cascade gives: run the test with -update (%v)", file, err)
		}
	}
}

func TestWhatIsNotUnderstoodIsRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{"defaults": ["a/m"]}`: "a provider that is listed",
		`{}`:                    "at least one model",
		`{"providers": {"a": {}}, "defaults": ["a/m"], "weights": 1}`:                   "weights",
		`{"providers": {"a": {}}, "defaults": ["a"]}`:                                   "PROVIDER/MODEL",
		`{"providers": {"a": {}}, "defaults": ["a/m"], "stages": {"x y": {}}}`:          "cannot be that of an override",
		`{"providers": {"a": {}}, "defaults": ["a/m"], "stages": {"x": {"model": []}}}`: "model",
	} {
		if _, err := Parse([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
