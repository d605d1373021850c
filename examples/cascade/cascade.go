package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Cascade is the configuration to move: three levels, each more specific than
// the one before.
type Cascade struct {
	Providers map[string]Provider   `json:"providers"`
	Prices    map[string][2]float64 `json:"prices"`    // by model: dollars for a million tokens in, and out
	Defaults  []string              `json:"defaults"`  // models, "provider/model", best first
	Stages    map[string]Level      `json:"stages"`    // level 0
	Consumers map[string]Level      `json:"consumers"` // level 1
	Instances map[string]Level      `json:"instances"` // level 2
}

// Provider is a service.
type Provider struct {
	BaseURL string `json:"base_url"`
	Key     string `json:"key"` // name of its key, "" if it needs none
}

// Level is what one stage, consumer or instance has otherwise.
type Level struct {
	Models   []string `json:"models"`   // tried first
	Disabled []string `json:"disabled"` // never tried, whatever another level says
}

// Parse reads a cascade. Unknown fields are errors: a behaviour that is not
// understood cannot be kept.
func Parse(b []byte) (Cascade, error) {
	var c Cascade
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&c); err != nil {
		return c, fmt.Errorf("read the cascade: %w", err)
	}
	var wrong []error
	if len(c.Defaults) == 0 {
		wrong = append(wrong, errors.New("defaults: at least one model is needed"))
	}
	for _, m := range c.models() {
		provider, model, _ := strings.Cut(m, "/")
		if _, ok := c.Providers[provider]; !ok || model == "" {
			wrong = append(wrong, fmt.Errorf("model %q: want PROVIDER/MODEL with a provider that is listed", m))
		}
	}
	for _, levels := range []map[string]Level{c.Stages, c.Consumers, c.Instances} {
		for name := range levels {
			if name == "" || len(name) > 64 || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == ';' || r == '=' }) {
				wrong = append(wrong, fmt.Errorf("name %q: cannot be that of an override: want 1 to 64 ASCII characters without spaces, semicolons and equals signs", name))
			}
		}
	}
	return c, errors.Join(wrong...)
}

// Choices is what the cascade always did: the models of the instance, then those
// of the consumer, of the stage, and the defaults, each once, without what any of
// these levels disables. A name that no level knows says nothing.
func (c Cascade) Choices(stage, consumer, instance string) []string {
	levels := []Level{c.Instances[instance], c.Consumers[consumer], c.Stages[stage], {Models: c.Defaults}}
	var out []string
	for _, l := range levels {
		for _, m := range l.Models {
			off := slices.ContainsFunc(levels, func(l Level) bool { return slices.Contains(l.Disabled, m) })
			if !off && !slices.Contains(out, m) {
				out = append(out, m)
			}
		}
	}
	return out
}

// models gives every model that is named anywhere, sorted.
func (c Cascade) models() []string {
	all := slices.Clone(c.Defaults)
	for _, levels := range []map[string]Level{c.Stages, c.Consumers, c.Instances} {
		for _, l := range levels {
			all = slices.Concat(all, l.Models, l.Disabled)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Catalogue writes the cascade as a catalogue: one primitive with a fixed order,
// and a workspace whose overrides are the levels. What devices run themselves is
// kept out, because the cascade knew nothing of it; delete that line to let it in.
func (c Cascade) Catalogue(workspace string) string {
	var b strings.Builder
	models := c.models()
	b.WriteString("providers:\n")
	for _, name := range slices.Sorted(maps.Keys(c.Providers)) {
		p := c.Providers[name]
		var own []string
		for _, m := range models {
			if provider, model, _ := strings.Cut(m, "/"); provider == name {
				price := ""
				if usd, ok := c.Prices[m]; ok {
					price = fmt.Sprintf(", price: {input_per_mtok: %g, output_per_mtok: %g}", usd[0], usd[1])
				}
				own = append(own, fmt.Sprintf("      - {name: %s, primitives: [llm.chat]%s}\n", strconv.Quote(model), price))
			}
		}
		if len(own) == 0 {
			continue
		}
		fmt.Fprintf(&b, "  - name: %s\n    adapter: openai\n    endpoint: %s\n", name, strconv.Quote(p.BaseURL))
		if p.Key != "" {
			fmt.Fprintf(&b, "    keys: [%s]\n", p.Key)
		}
		b.WriteString("    models:\n" + strings.Join(own, ""))
	}
	fmt.Fprintf(&b, "primitives:\n  - name: llm.chat\n    order: fixed\n    default: %s\n", list(c.Defaults))
	fmt.Fprintf(&b, "workspaces:\n  - id: %s\n    deny: [\"local/*\"]\n", workspace)
	for _, section := range []struct {
		name   string
		levels map[string]Level
	}{{"stages", c.Stages}, {"consumers", c.Consumers}, {"instances", c.Instances}} {
		if len(section.levels) == 0 {
			continue
		}
		fmt.Fprintf(&b, "    %s:\n", section.name)
		for _, name := range slices.Sorted(maps.Keys(section.levels)) {
			l := section.levels[name]
			fmt.Fprintf(&b, "      - name: %s\n", strconv.Quote(name))
			if len(l.Models) > 0 {
				fmt.Fprintf(&b, "        default: [{primitive: llm.chat, options: %s}]\n", list(l.Models))
			}
			if len(l.Disabled) > 0 {
				fmt.Fprintf(&b, "        deny: [{primitive: llm.chat, options: %s}]\n", list(l.Disabled))
			}
		}
	}
	return b.String()
}

func list(models []string) string {
	quoted := make([]string, len(models))
	for i, m := range models {
		quoted[i] = strconv.Quote(m)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}
