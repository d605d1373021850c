package simulate_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/chordwheel/chordwheel/orchestrator/simulate"
)

const good = `about: a test
seed: 3
options:
  - {name: a/one, domain: a, input: 0.1, latency: 1s}
  - {name: b/one, latency: 2s, prior: {latency: 6s}}
`

func TestParse(t *testing.T) {
	s, err := simulate.Parse("s.yaml", []byte(good))
	if err != nil {
		t.Fatal(err)
	}
	if s.Options[1].Domain != "b/one" || s.Options[0].Prior.Latency != s.Options[0].Latency || s.Fleet.Devices != 200 || s.Days != 7 {
		t.Errorf("%+v", s)
	}
}

// TestFaults: every mistake is named with its line and field.
func TestFaults(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"empty", "", "s.yaml:1: the file is empty"},
		{"no YAML", "a: [", "s.yaml:1: "},
		{"a second document", good + "---\nseed: 2\n", "a second document"},
		{"an unknown field", good + "optins: []\n", `s.yaml:6: optins: unknown field "optins"`},
		{"a wrong type", strings.Replace(good, "seed: 3", "seed: three", 1), "s.yaml:2: seed: "},
		{"a field twice", "seed: 1\n" + good, `mapping key "seed" already defined`},
		{"a wrong duration", good + "limit: fast\n", "s.yaml:6: limit: "},
		{"no options", "seed: 1\n", "s.yaml:1: options: "},
		{"a number outside its bounds", "days: 900\n" + good, "s.yaml:1: days: 900 is outside 0.01 to 62"},
		{"in a list", strings.Replace(good, "input: 0.1", "input: -1", 1), "s.yaml:4: options[0].input: -1 is outside"},
		{"nothing where something must be", strings.Replace(good, ", latency: 1s", "", 1), "s.yaml:4: options[0].latency: 0s is outside"},
		{"deep inside", strings.Replace(good, "latency: 6s", "latency: 99h", 1), "s.yaml:5: options[1].prior.latency: "},
		{"a name twice", strings.Replace(good, "b/one", "a/one", 1), `s.yaml:5: options[1].name: "a/one" stands twice`},
		{"an outage of nothing", good + "outages:\n  - {from: 1h, for: 1h}\n", "s.yaml:7: outages[0].option: want either an option or a domain"},
		{"an outage of something else", good + "outages:\n  - {option: c, from: 1h, for: 1h}\n", `s.yaml:7: outages[0].option: there is no option "c"`},
		{"a change of something else", good + "changes:\n  - {option: c, at: 1h}\n", "s.yaml:7: changes[0].option: "},
		{"far from nowhere", good + "fleet:\n  far:\n    - {domain: z, share: 0.1, factor: 2}\n", "s.yaml:8: fleet.far[0].domain: "},
		{"a liar of no kind", good + "liars: {share: 0.2, kind: rude}\n", "s.yaml:6: liars.kind: "},
		{"a favourite that is none", good + "liars: {share: 0.2, kind: favourite, favourite: z}\n", "s.yaml:6: liars.favourite: "},
		{"a ceiling on nothing", good + "ceilings:\n  - {options: a}\n", "s.yaml:7: ceilings[0].options: "},
		{"a baseline that is none", good + "baselines: [best]\n", "s.yaml:6: baselines[0]: "},
		{"not a number", good + "weights: {second: .nan}\n", "s.yaml:6: weights.second: NaN is outside"},
		{"too deep", "a: " + strings.Repeat("[", 5000), "s.yaml:1: nested too deep"},
		{"too large", strings.Repeat("#\n", 40000), "at most 65536"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s, err := simulate.Parse("s.yaml", []byte(c.text))
			var invalid *simulate.Invalid
			if s != nil || !errors.As(err, &invalid) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v\nwant %s", err, c.want)
			}
		})
	}
}

// All mistakes are named at once, in the order of the file.
func TestAllFaultsAtOnce(t *testing.T) {
	_, err := simulate.Parse("s.yaml", []byte("days: -1\nlimit: 1h\n"+strings.Replace(good, "latency: 2s", "latency: 2s, quality: 7", 1)))
	want := "s.yaml:1: days: -1 is outside 0.01 to 62\ns.yaml:2: limit: 1h0m0s is outside 1s to 1m0s\ns.yaml:7: options[1].quality: 7 is outside 0 to 1"
	if err == nil || err.Error() != want {
		t.Errorf("%v\nwant %s", err, want)
	}
}

// worlds gives the shipped scenarios.
func worlds(t testing.TB) map[string]*simulate.Scenario {
	t.Helper()
	files, err := filepath.Glob("../../examples/simulate/*/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	all := map[string]*simulate.Scenario{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		s, err := simulate.Parse(file, b)
		if err != nil {
			t.Fatal(err)
		}
		dir, name := filepath.Split(file)
		all[filepath.Base(dir)+"/"+strings.TrimSuffix(name, ".yaml")] = s
	}
	return all
}

func TestShippedScenariosAreValid(t *testing.T) { worlds(t) }

func FuzzParse(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("options: [{name: a, latency: 1s}]\nliars: {share: 1, kind: slow}\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := simulate.Parse("s.yaml", b)
		var invalid *simulate.Invalid
		if (s == nil) != (err != nil) || err != nil && (!errors.As(err, &invalid) || len(invalid.Faults) == 0) {
			t.Fatalf("%v, %v", s, err)
		}
	})
}
