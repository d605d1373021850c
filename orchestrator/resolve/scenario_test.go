package resolve_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/orchestrator/resolve"
)

var update = flag.Bool("update", false, "write the outcomes of the scenarios again")

const separator = "\n---\n"

// TestScenarios runs testdata/*.txt: policy in a few lines, and below the
// separator the order that follows and why.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			raw, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			policy, want, _ := strings.Cut(string(raw), separator)
			got := outcome(resolve.Explain(scenario(t, policy)))
			if *update {
				if err := os.WriteFile(file, []byte(policy+separator+got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// scenario reads policy: "name: words" lines, and one candidate a line in the
// language of chaintest, where p, s and f are priors; what follows a ";" is
// known to the hub alone:
//
//	geo=IN withheld unreachable=no-key ceiling=gamma breached=gamma calls=gamma:2 money=gamma:1.5
//	learned-p=.9:30 learned-s=2.5:12 learned-f=9:12 learned-q=.8:5 bill=.002
func scenario(t testing.TB, policy string) resolve.Input {
	in := resolve.Input{Slot: chaintest.Slot, Weights: resolve.DefaultWeights(), Profile: resolve.DefaultProfile()}
	for line := range strings.Lines(policy) {
		line, _, _ = strings.Cut(strings.TrimSpace(line), "#")
		name, words, setting := strings.Cut(line, ": ")
		switch {
		case line == "":
		case setting:
			set(t, &in, name, strings.Fields(words))
		default:
			option, hub, _ := strings.Cut(line, ";")
			in.Candidates = append(in.Candidates, candidate(t, option, strings.Fields(hub)))
		}
	}
	return in
}

func set(t testing.TB, in *resolve.Input, name string, words []string) {
	ids := func() (list []chain.OptionID) {
		for _, w := range words {
			list = append(list, chain.OptionID(w))
		}
		return list
	}
	switch name {
	case "order":
		in.Mode = resolve.Mode(words[0])
	case "default":
		in.Default = ids()
	case "prefer":
		in.Seeds = append(in.Seeds, resolve.Seed{Tier: 1, Name: "workspace", Source: "home", Options: ids()})
	case "stage", "consumer", "instance", "stage-default", "consumer-default", "instance-default": // NAME OPTIONS…
		tier, _, whole := strings.Cut(name, "-")
		source := tier + " " + words[0]
		words = words[1:]
		level := slices.Index([]string{"global", "workspace", "stage", "consumer", "instance"}, tier)
		in.Seeds = append(in.Seeds, resolve.Seed{Tier: level, Name: tier, Source: source, Options: ids(), Default: whole})
	case "cap":
		in.Cap = int(number(t, words[0]))
	case "rho":
		in.Rho = number(t, words[0])
	case "measured":
		in.Measured = resolve.Measured{InputTokens: resolve.Estimate{Value: number(t, words[0]), Weight: 9}, OutputTokens: resolve.Estimate{Value: number(t, words[1]), Weight: 9}}
	case "pin":
		in.Pin = rulings(words)
	case "deny":
		in.Deny = rulings(words)
	case "geo":
		in.Geo = words
	case "profile":
		in.Profile = resolve.Profile{InputTokens: number(t, words[0]), OutputTokens: number(t, words[1])}
	case "weights":
		for _, w := range words {
			key, value, _ := strings.Cut(w, "=")
			field := map[string]*float64{"second": &in.Weights.Second, "failure": &in.Weights.Failure, "quality": &in.Weights.Quality, "geo": &in.Weights.Geo,
				"preference": &in.Weights.Preference, "quota": &in.Weights.Quota, "exhausted": &in.Weights.Exhausted}[key]
			if field == nil {
				t.Fatalf("no weight %q", key)
			}
			*field = number(t, value)
		}
	default:
		t.Fatalf("no setting %q", name)
	}
}

func rulings(words []string) (list []resolve.Ruling) {
	for _, w := range words {
		pattern, by, _ := strings.Cut(w, "@")
		list = append(list, resolve.Ruling{Pattern: pattern, By: strings.ReplaceAll(by, "=", " ")})
	}
	return list
}

func candidate(t testing.TB, option string, hub []string) resolve.Candidate {
	o := chaintest.Options(t, option)[0]
	c := resolve.Candidate{Prior: resolve.Prior{Latency: float64(o.Cost.Latency) / 1000, FailureLatency: float64(o.Cost.FailureLatency) / 1000,
		Reliability: o.Cost.Reliability.Share()}}
	o.Cost.Latency, o.Cost.FailureLatency, o.Cost.Reliability = 0, 0, 0
	c.Option = o
	for _, w := range hub {
		key, value, _ := strings.Cut(w, "=")
		name, amount, _ := strings.Cut(value, ":")
		switch key {
		case "geo":
			c.Geo = value
		case "withheld":
			c.Withheld = true
		case "unreachable":
			c.Unreachable = strings.ReplaceAll(value, "-", " ")
		case "breached":
			c.Ceilings = append(c.Ceilings, resolve.Ceiling{Name: value, Breached: true})
		case "calls", "money":
			c.Ceilings = append(c.Ceilings, resolve.Ceiling{Name: name, Calls: key == "calls", Multiplier: number(t, amount)})
		case "bill":
			c.FailureBill = chain.MicroUSD(number(t, value) * 1e6)
		case "learned-p":
			c.Estimates.Reliability = resolve.Estimate{Value: number(t, name), Weight: number(t, amount)}
		case "learned-s":
			c.Estimates.Latency = resolve.Estimate{Value: number(t, name), Weight: number(t, amount)}
		case "learned-f":
			c.Estimates.FailureLatency = resolve.Estimate{Value: number(t, name), Weight: number(t, amount)}
		case "learned-q":
			c.Estimates.Quality = resolve.Estimate{Value: number(t, name), Weight: number(t, amount)}
		case "low-n":
			c.Estimates.LowN = true
		default:
			t.Fatalf("no setting %q", key)
		}
	}
	return c
}

func number(t testing.TB, s string) float64 {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// outcome writes a resolution down, rounded to what people compare.
func outcome(r resolve.Resolution) string {
	var b strings.Builder
	fmt.Fprintf(&b, "chain: %s\nwithheld: %s\nexpected: %.0f%s\n", ids(r.Options), ids(r.Withheld), r.Expected, method(r))
	for _, g := range r.Gradient {
		fmt.Fprintf(&b, "by %s:", g.Axis)
		for _, id := range g.Options {
			fmt.Fprintf(&b, " %s", id)
		}
		b.WriteString("\n")
	}
	for _, v := range r.Why {
		fmt.Fprintf(&b, "%s %s: %s\n", v.Status, v.Option, strings.Join(v.Reasons, "; "))
		if v.Status == resolve.Out {
			continue
		}
		fmt.Fprintf(&b, "    p %.3f s %.0f f %.0f index %.0f |%s /%s\n    ", v.P, v.S, v.F, v.Index, terms(v.Success), terms(v.Failure))
		if v.Status == resolve.In && (v.Reach == 0 || v.Posterior-v.P < -1e-9) {
			fmt.Fprintf(&b, "reach %.4f posterior %.3f\n    ", v.Reach, v.Posterior)
		}
		for i, a := range v.Axes {
			if i > 0 {
				b.WriteString(" ")
			}
			fmt.Fprintf(&b, "%s %d", a.Name, a.Rank)
		}
		for _, mark := range []struct {
			name string
			set  bool
		}{{"pareto", v.Pareto}, {"outside", v.Outside}, {"learned", v.Learned}, {"low-n", v.LowN}} {
			if mark.set {
				b.WriteString(" [" + mark.name + "]")
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

func method(r resolve.Resolution) string {
	if r.Method == "" {
		return ""
	}
	return " by " + string(r.Method)
}

func terms(list []resolve.Term) string {
	var b strings.Builder
	for _, t := range list {
		fmt.Fprintf(&b, " %s %.0f", t.Name, t.Value)
	}
	return b.String()
}

func ids(options []chain.Option) string {
	list := make([]string, len(options))
	for i, o := range options {
		list[i] = string(o.ID)
	}
	return strings.Join(list, " ")
}

func verdict(t chaintest.T, r resolve.Resolution, id chain.OptionID) resolve.Verdict {
	i := slices.IndexFunc(r.Why, func(v resolve.Verdict) bool { return v.Option == id })
	if i < 0 {
		t.Fatalf("no verdict about %s", id)
	}
	return r.Why[i]
}
