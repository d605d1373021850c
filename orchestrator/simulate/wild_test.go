package simulate_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/chordwheel/chordwheel/orchestrator/simulate"
)

// numbers holds every number and time that a scenario can hold.
const numbers = `about: all of them
seed: 1
days: 2
fleet: {devices: 5, least: 1, most: 60, night: 0.2, spread: 0.25, distance: 0.35, sleepy: 0.5, far: [{domain: a, share: 0.5, factor: 3}]}
weights: {second: 200, failure: 5000, quality: 2000, exhausted: 20000}
profile: {input: 1000, output: 300}
rules: {sampling: 0.1, exploration: 0.3, reorder: 0.1}
limit: 20s
options:
  - {name: a/m, domain: a, input: 0.1, output: 0.4, quality: 0.5, latency: 1s, spread: 0.4, reliability: 0.99, failure: 300ms, prior: {latency: 2s, reliability: 0.9}}
  - {name: b/m, domain: b, latency: 2s, from: 1h}
outages:
  - {option: a/m, from: 3h, for: 2h}
storm: {options: 1, domains: 0.5, option: 10m, domain: 20m, hang: 0.5}
changes:
  - {option: a/m, at: 5h, slower: 3, dearer: 2, reliability: 0.9, over: 6h}
ceilings:
  - {options: "a/*", usd_per_month: 10}
  - {options: "b/*", calls_per_day: 100}
liars: {share: 0.3, kind: random, from: 2h}
`

// TestWildNumbers: not a number, an infinity, what is negative and what is too large is
// refused wherever a number or a time may stand, by its line and its field.
func TestWildNumbers(t *testing.T) {
	if _, err := simulate.Parse("s.yaml", []byte(numbers)); err != nil {
		t.Fatal(err)
	}
	places := regexp.MustCompile(`(\w+): ([0-9][0-9.]*)(ms|[smh])?`).FindAllStringSubmatchIndex(numbers, -1)
	if len(places) < 45 {
		t.Fatalf("%d places", len(places))
	}
	for _, p := range places {
		name, line, end := numbers[p[2]:p[3]], 1+strings.Count(numbers[:p[2]], "\n"), p[5]
		wild := []string{".nan", ".inf", "-.inf", "-1", "1e400", "-1e400", "123456789012345678901234567890", `"NaN"`}
		if p[6] >= 0 {
			end, wild = p[7], append(wild, "-1s", "99999999h", "1e300h", "9999999999999999999s")
		}
		for _, bad := range wild {
			s, err := simulate.Parse("s.yaml", []byte(numbers[:p[4]]+bad+numbers[end:]))
			var invalid *simulate.Invalid
			at := fmt.Sprintf("s.yaml:%d: ", line)
			if !errors.As(err, &invalid) || s != nil {
				t.Errorf("%s: %s was accepted: %v", name, bad, err)
			} else if text := err.Error(); !strings.Contains(text, at) || !strings.Contains(text, name) {
				t.Errorf("%s: %s on line %d: %v", name, bad, line, err)
			}
		}
	}
}
