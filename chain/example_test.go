package chain_test

import (
	"fmt"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
)

// A hub signs a head for a body; a device that pinned the hub accepts it, and
// keeps the mark, so that nothing older is ever accepted again.
func ExampleTrust_Verify() {
	key, now := chaintest.Key(0), chaintest.Start // a real hub has its identity key
	slot := chain.Slot{Scope: chain.DefaultScope, Primitive: chain.LLMChat}

	body, err := chain.Marshal(chain.Body{Primitive: slot.Primitive, Options: []chain.Option{
		{ID: "groq/llama", Kind: chain.Provider, Adapter: "openai", Model: "llama", Keys: []string{"groq"}},
		{ID: "peer", Kind: chain.Peer, Requires: []chain.Capability{chain.ExecuteCapability(slot.Primitive)}},
	}})
	if err != nil {
		panic(err)
	}
	head, err := chain.Marshal(chain.Head{
		Mesh: "m1", Scope: slot.Scope, Primitive: slot.Primitive, Seq: uint64(now.UnixMilli()), Body: chain.CIDOf(body),
		Issued: chain.InstantOf(now), RefreshAfter: chain.InstantOf(now.Add(time.Hour)), Expires: chain.InstantOf(now.Add(7 * 24 * time.Hour)),
	})
	if err != nil {
		panic(err)
	}
	envelope, err := key.Seal(chain.DomainChain, head)
	if err != nil {
		panic(err)
	}

	trust := chain.Trust{Mesh: "m1", Orchestrator: key.PeerID()}
	c, err := trust.Verify(slot, envelope, body, chain.Mark{}, now.Add(time.Minute))
	if err != nil {
		panic(err)
	}
	for _, o := range c.Options() {
		fmt.Println(o.ID, o.Kind)
	}
	_, err = trust.Verify(slot, envelope, body, chain.Mark{Seq: c.Mark().Seq + 1}, now.Add(time.Minute))
	fmt.Println(err)
	// Output:
	// groq/llama provider
	// peer peer
	// chain of workspace:home/llm.chat refused: a newer one was accepted before: sequence 1772366400000 after 1772366400001
}
