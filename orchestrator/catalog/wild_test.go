package catalog

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// numbers holds every number and time that a catalogue can hold.
const numbers = `providers:
  - name: a
    adapter: openai
    endpoint: https://a.example/v1
    keys: [k]
    models:
      - name: m
        primitives: [llm.chat]
        tier: 1
        price: {input_per_mtok: 0.1, output_per_mtok: 0.2, per_call: 0.3}
        prior: {latency_ms: 900, reliability: 0.9, quality: 0.5}
        limits: {first_output: 1s, idle: 2s, total: 3s, payload: 1000, concurrency: 2}
primitives:
  - name: llm.chat
    default: [a/m, peer]
    peer: {tries: 2}
    share: 2
    source: {calls_per_minute: 3}
    profile: {input_tokens: 100, output_tokens: 10}
    escalation: {depth: 2, nodes: 8, cut_off: 0.01}
    rules:
      sampling: 0.1
      report_interval: 15m
      reorder: 0.1
      exploration: 0.3
      idle: 1m
      attempts: 8
      cool_down: {base: 1m, max: 1h, peer_base: 1m, peer_max: 1h, key_base: 10m, key_max: 6h, retry_after: 1h}
      budgets: {interactive: 1m, batch: 10m, max: 1h}
      escalation_target: 0.01
ceilings:
  - {key: k, usd_per_month: 10, calls_per_day: 100}
workspaces:
  - id: home
    weights: {second: 1, failure: 2, quality: 3, geo: 4, preference: 5, quota: 6, exhausted: 7}
    ceilings: [{options: "a/*", usd_per_month: 9, calls_per_day: 99}]
`

// TestWildNumbers: not a number, an infinity, what is negative and what is too large is
// refused wherever a number or a time may stand, by its line and its field.
func TestWildNumbers(t *testing.T) {
	if _, err := Parse("c.yaml", []byte(numbers)); err != nil {
		t.Fatal(err)
	}
	places := regexp.MustCompile(`(\w+): ([0-9][0-9.]*)([smh]?)`).FindAllStringSubmatchIndex(numbers, -1)
	if len(places) < 45 {
		t.Fatalf("%d places", len(places))
	}
	for _, p := range places {
		name, line := numbers[p[2]:p[3]], 1+strings.Count(numbers[:p[2]], "\n")
		wild := []string{".nan", ".inf", "-.inf", "-1", "1e400", "-1e400", "123456789012345678901234567890", `"NaN"`}
		if p[6] < p[7] {
			wild = append(wild, "-1s", "99999999h", "1e300h", "9999999999999999999s")
		}
		for _, bad := range wild {
			c, err := Parse("c.yaml", []byte(numbers[:p[4]]+bad+numbers[p[7]:]))
			var invalid *Invalid
			at := fmt.Sprintf("c.yaml:%d:", line)
			if !errors.As(err, &invalid) || !reflect.DeepEqual(c, Catalog{}) {
				t.Errorf("%s: %s was accepted: %v", name, bad, err)
			} else if text := err.Error(); !strings.HasPrefix(text, at) || !strings.Contains(text, name) {
				t.Errorf("%s: %s on line %d: %v", name, bad, line, err)
			}
		}
	}
}
