package main

import (
	"context"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/adapter/openai"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

// Model servers and the ports they use unless told otherwise.
var usualServers = []struct{ name, endpoint string }{
	{"ollama", "http://127.0.0.1:11434/v1"},
	{"lmstudio", "http://127.0.0.1:1234/v1"},
	{"llamacpp", "http://127.0.0.1:8080/v1"},
	{"vllm", "http://127.0.0.1:8000/v1"},
}

const (
	discoverWait   = 400 * time.Millisecond // a server on this machine answers at once, or is not there
	modelsOfServer = 32
)

// tiers are the primitives of the pipeline. A model server that was found serves all
// of them: its owner has none for each. The small model inside serves none, for it
// cannot plan, judge or rewrite.
var tiers = []chain.Primitive{chain.T1, chain.T2, chain.T3}

// discover asks the usual ports of this machine for model lists. What answers is
// offered as local options. No completion is ever asked for.
func discover(ctx context.Context) []wire.LocalOption {
	ctx, cancel := context.WithTimeout(ctx, discoverWait)
	defer cancel()
	client := openai.New(openai.Config{ConnectTimeout: discoverWait})
	defer client.Close()
	found := make([][]wire.LocalOption, len(usualServers))
	var group sync.WaitGroup
	for i, s := range usualServers {
		group.Go(func() {
			models, err := client.Models(ctx, s.endpoint, "")
			if err != nil {
				return // nobody there, or something else
			}
			for _, m := range models[:min(len(models), modelsOfServer)] {
				found[i] = append(found[i], wire.LocalOption{Primitives: append([]chain.Primitive{chain.LLMChat}, tiers...), Option: chain.Option{
					ID: chain.OptionID("local/" + s.name + "/" + m), Kind: chain.Local, Adapter: "openai", Model: m, Endpoint: s.endpoint, Domain: s.name,
					Cost: chain.Cost{Latency: 5000, Reliability: chain.PPMOf(0.95), Quality: chain.PPMOf(0.4)},
				}})
			}
		})
	}
	group.Wait()
	var all []wire.LocalOption
	for _, f := range found {
		for _, l := range f {
			if l.Option.Validate() == nil {
				all = append(all, l)
			}
		}
	}
	return all
}
