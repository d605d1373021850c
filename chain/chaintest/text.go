package chaintest

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Options reads options from text: "|" or a new line stands between two, "#"
// begins a comment. An option is its id and any of these settings:
//
//	p=.99 s=2 f=30 q=.7      reliability, seconds to an answer, seconds to a failure, quality
//	in=.1 out=.4 call=.001   US dollars per million tokens and per call
//	adapter=openai model=m endpoint=http://… agent=did:… domain=d keys=a,b requires=execute:x,geo:IN
//	tries=2 via=local,provider           for peer slots
//	first=2s idle=5s total=60s context=8192 concurrency=2 payload=4096 features=tools,images thinking
//	local-only outside low-n kind=other
//
// An id that is or begins with "local" or "peer" is of that kind, unless kind
// says otherwise; any other is a provider of adapter "openai", whose model is
// what follows the first slash. So "groq p=.99 s=2 | peer/big | local" is a chain of three.
func Options(t T, text string) []chain.Option {
	t.Helper()
	options, err := Parse(text)
	if err != nil {
		t.Fatalf("chaintest: %v", err)
	}
	return options
}

// Parse is Options without a test.
func Parse(text string) ([]chain.Option, error) {
	var options []chain.Option
	for line := range strings.SplitSeq(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		for item := range strings.SplitSeq(line, "|") {
			words := strings.Fields(item)
			if len(words) == 0 {
				continue
			}
			o := begin(words[0])
			for _, w := range words[1:] {
				if err := set(&o, w); err != nil {
					return nil, fmt.Errorf("option %s: %q: %w", o.ID, w, err)
				}
			}
			options = append(options, o)
		}
	}
	return options, nil
}

func begin(id string) chain.Option {
	first, rest, slash := strings.Cut(id, "/")
	o := chain.Option{ID: chain.OptionID(id), Kind: chain.Kind(first), Model: rest}
	switch o.Kind {
	case chain.Peer:
		o.Model = ""
	case chain.Local:
		o.Adapter = "builtin"
		if adapter, model, ok := strings.Cut(rest, "/"); ok {
			o.Adapter, o.Model = adapter, model
		}
	default:
		o.Kind, o.Adapter = chain.Provider, "openai"
		if !slash {
			o.Model = first
		}
	}
	return o
}

func set(o *chain.Option, word string) (err error) {
	name, value, _ := strings.Cut(word, "=")
	switch name {
	case "p":
		o.Cost.Reliability, err = share(value)
	case "q":
		o.Cost.Quality, err = share(value)
	case "s":
		o.Cost.Latency, err = seconds(value)
	case "f":
		o.Cost.FailureLatency, err = seconds(value)
	case "in":
		o.Cost.InputPerMtok, err = dollars(value)
	case "out":
		o.Cost.OutputPerMtok, err = dollars(value)
	case "call":
		o.Cost.PerCall, err = dollars(value)
	case "first":
		o.Limits.FirstOutput, err = duration(value)
	case "idle":
		o.Limits.Idle, err = duration(value)
	case "total":
		o.Limits.Total, err = duration(value)
	case "context":
		o.Limits.Context, err = strconv.Atoi(value)
	case "concurrency":
		o.Limits.Concurrency, err = strconv.Atoi(value)
	case "payload":
		o.Limits.Payload, err = strconv.ParseInt(value, 10, 64)
	case "tries":
		o.Tries, err = strconv.Atoi(value)
	default:
		err = setWord(o, name, value)
	}
	return err
}

func setWord(o *chain.Option, name, value string) error {
	switch name {
	case "kind":
		o.Kind = chain.Kind(value)
	case "adapter":
		o.Adapter = value
	case "model":
		o.Model = value
	case "endpoint":
		o.Endpoint = value
	case "agent":
		o.Agent = value
	case "domain":
		o.Domain = value
	case "keys", "key":
		o.Keys = list[string](value)
	case "requires":
		o.Requires = list[chain.Capability](value)
	case "via":
		o.Via = list[chain.Kind](value)
	case "features":
		o.Limits.Features = list[string](value)
	case "thinking":
		o.Limits.Thinking = true
	case "local-only":
		o.Data = chain.LocalOnly
	case "outside":
		o.Cost.Outside = true
	case "low-n":
		o.Cost.LowN = true
	default:
		return fmt.Errorf("no such setting")
	}
	return nil
}

func list[T ~string](value string) []T {
	var all []T
	for v := range strings.SplitSeq(value, ",") {
		all = append(all, T(v))
	}
	return all
}

func share(value string) (chain.PPM, error) {
	f, err := strconv.ParseFloat(value, 64)
	return chain.PPMOf(f), err
}

func seconds(value string) (chain.Millis, error) {
	f, err := strconv.ParseFloat(value, 64)
	return chain.Millis(math.Round(f * 1000)), err
}

func dollars(value string) (chain.MicroUSD, error) {
	f, err := strconv.ParseFloat(value, 64)
	return chain.MicroUSD(math.Round(f * 1e6)), err
}

func duration(value string) (chain.Millis, error) {
	d, err := time.ParseDuration(value)
	return chain.MillisOf(d), err
}
