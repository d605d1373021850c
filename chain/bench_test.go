package chain_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
)

// twelve is a chain of the size that the figures in docs/chain.md are for.
func twelve(b *testing.B) (hub chaintest.Hub, body chain.Body, encoded []byte) {
	var text strings.Builder
	for i := range 12 {
		fmt.Fprintf(&text, "provider%d/model-%d p=.99 s=1.5 f=.3 q=.7 in=.59 out=.79 keys=key%d domain=d%d endpoint=https://api%d.example.com/v1 "+
			"agent=did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK first=5s total=60s context=131072 features=tools,images requires=execute:llm.chat |", i, i, i, i, i)
	}
	hub = chaintest.NewHub()
	encoded = hub.Body(b, text.String())
	body, err := chain.DecodeBody(encoded)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetBytes(int64(len(encoded)))
	return hub, body, encoded
}

func BenchmarkEncodeBody(b *testing.B) {
	_, body, _ := twelve(b)
	for b.Loop() {
		if _, err := chain.Marshal(body); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkDecodeBody(b *testing.B) {
	_, _, encoded := twelve(b)
	for b.Loop() {
		if _, err := chain.DecodeBody(encoded); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCanonical(b *testing.B) {
	_, _, encoded := twelve(b)
	for b.Loop() {
		if err := chain.Canonical(encoded); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkCID(b *testing.B) {
	_, _, encoded := twelve(b)
	for b.Loop() {
		chain.CIDOf(encoded)
	}
}

func BenchmarkSealHead(b *testing.B) {
	hub, _, encoded := twelve(b)
	head := hub.HeadOf(encoded, chaintest.Start)
	for b.Loop() {
		hub.Sign(b, chain.DomainChain, head)
	}
}

func BenchmarkVerify(b *testing.B) {
	hub, _, encoded := twelve(b)
	head := hub.Head(b, encoded, chaintest.Start)
	for b.Loop() {
		if _, err := hub.Trust.Verify(hub.Slot, head, encoded, chain.Mark{}, chaintest.Start); err != nil {
			b.Fatal(err)
		}
	}
}
