package chain_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
)

func TestAVerifiedChainSaysWhatWasSigned(t *testing.T) {
	o := newOffer(t)
	p := o.seal(t)
	c, err := o.hub.Trust.Verify(o.slot, p.Head, p.Body, chain.Mark{}, o.now)
	if err != nil {
		t.Fatal(err)
	}
	if c.Head() != o.head || c.Slot() != o.slot || c.Mark() != (chain.Mark{Seq: o.head.Seq, Body: o.head.Body, Issued: o.head.Issued}) {
		t.Errorf("head %+v, slot %v, mark %+v", c.Head(), c.Slot(), c.Mark())
	}
	if want := chaintest.Options(t, anOrder); !reflect.DeepEqual(c.Options(), want) || !reflect.DeepEqual(c.Body().Options, want) {
		t.Errorf("options %+v", c.Options())
	}
	if !reflect.DeepEqual(c.Rules(), chain.DefaultRules()) {
		t.Errorf("rules %+v", c.Rules())
	}
	for _, m := range []struct {
		at             time.Time
		stale, expired bool
	}{
		{o.now, false, false}, {o.now.Add(time.Hour - 1), false, false}, {o.now.Add(time.Hour), true, false},
		{o.now.Add(7*24*time.Hour - time.Millisecond), true, false}, {o.now.Add(7 * 24 * time.Hour), true, true},
	} {
		if c.Stale(m.at) != m.stale || c.Expired(m.at) != m.expired {
			t.Errorf("at %s: stale %v, expired %v", m.at, c.Stale(m.at), c.Expired(m.at))
		}
	}
}

func TestAChainKeepsItsOwnCopyOfTheBytes(t *testing.T) {
	o := newOffer(t)
	p := o.seal(t)
	head, body := slices.Clone(p.Head), slices.Clone(p.Body)
	c, err := o.hub.Trust.Verify(o.slot, head, body, chain.Mark{}, o.now)
	if err != nil {
		t.Fatal(err)
	}
	clear(head)
	clear(body)
	if h, b := c.Bytes(); !bytes.Equal(h, p.Head) || !bytes.Equal(b, p.Body) {
		t.Error("the caller's buffers were kept")
	}
}

// Each single-bit change, and the inversion, of every byte of a signed head, a
// body and an extension is refused.
func TestEveryFlipIsRefused(t *testing.T) {
	o := newOffer(t)
	p := o.seal(t)
	trust := o.hub.Trust
	c := o.hub.Chain(t, anOrder, o.now)
	extension := o.hub.Extension(t, c, o.nonce, o.device, "gamma", o.now)
	flips := func(name string, b []byte, refused func([]byte) error) {
		t.Run(name, func(t *testing.T) {
			changed := slices.Clone(b)
			for i := range b {
				for _, mask := range []byte{1, 2, 4, 8, 16, 32, 64, 128, 255} {
					changed[i] = b[i] ^ mask
					if refused(changed) == nil {
						t.Errorf("byte %d with %08b flipped was accepted", i, mask)
					}
				}
				changed[i] = b[i]
			}
			if err := refused(changed); err != nil {
				t.Errorf("unchanged: %v", err)
			}
		})
	}
	flips("head", p.Head, func(b []byte) error {
		_, err := trust.Verify(o.slot, b, p.Body, chain.Mark{}, o.now)
		return err
	})
	flips("body", p.Body, func(b []byte) error {
		_, err := trust.Verify(o.slot, p.Head, b, chain.Mark{}, o.now)
		if err != nil && !errors.Is(err, chain.ErrBody) {
			t.Errorf("refused as %v", err)
		}
		return err
	})
	flips("extension", extension, func(b []byte) error {
		_, err := trust.VerifyExtension(c, o.nonce, o.device, b, o.now)
		return err
	})
}

func TestSizesAreBounded(t *testing.T) {
	o := newOffer(t)
	trust, large := o.hub.Trust, bytes.Repeat([]byte{0}, chain.MaxBodyBytes+1)
	o.setBody(large)
	p := o.seal(t)
	if _, err := trust.Verify(o.slot, p.Head, large, chain.Mark{}, o.now); !errors.Is(err, chain.ErrContent) {
		t.Errorf("a body one byte too long: %v", err)
	}
	if _, err := chain.DecodeBody(large); !errors.Is(err, chain.ErrContent) {
		t.Errorf("a body one byte too long: %v", err)
	}
	sealed := o.hub.Sign(t, chain.DomainChain, make([]byte, chain.MaxEnvelopeBytes))
	if _, _, err := chain.Open(chain.DomainChain, sealed); !errors.Is(err, chain.ErrEncoding) {
		t.Errorf("an envelope too long: %v", err)
	}
	var many strings.Builder
	for i := range chain.MaxOptions + 1 {
		fmt.Fprintf(&many, "o%d |", i)
	}
	options := chaintest.Options(t, many.String())
	for n, good := range map[int]bool{1: true, chain.MaxOptions: true, chain.MaxOptions + 1: false, 0: false} {
		b := chain.Body{Primitive: chain.LLMChat, Options: options[:n]}
		if err := b.Validate(); (err == nil) != good {
			t.Errorf("%d options: %v", n, err)
		}
	}
}

func TestASignatureMeansNothingInAnotherDomain(t *testing.T) {
	domains := []chain.Domain{chain.DomainChain, chain.DomainMembership, chain.DomainRevocation, chain.DomainExtension,
		chain.DomainExecRequest, chain.DomainExecResult}
	key := chaintest.Key(3)
	for _, made := range domains {
		e, err := key.Seal(made, []byte("payload"))
		if err != nil {
			t.Fatal(err)
		}
		for _, asked := range domains {
			signer, payload, err := chain.Open(asked, e)
			switch {
			case made == asked && (err != nil || signer != key.PeerID() || string(payload) != "payload"):
				t.Errorf("%s: %v %s %q", made, err, signer, payload)
			case made != asked && !errors.Is(err, chain.ErrDomain):
				t.Errorf("made for %s, opened as %s: %v", made, asked, err)
			}
		}
	}
}

// Whoever may sign, they do it with Ed25519: a peer ID of another type would be
// another identity with other rules.
func TestOnlyEd25519Signs(t *testing.T) {
	for _, d := range []chain.Domain{chain.DomainChain, chain.DomainMembership, chain.DomainExecRequest} {
		if _, _, err := chain.Open(d, secp256k1(t, d, []byte("payload"))); !errors.Is(err, chain.ErrSigner) {
			t.Errorf("%s: %v", d, err)
		}
	}
}

func TestOnlyOneFormOfABodyHasItsAddress(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := body().Draw(t, "body")
		encoded, err := chain.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := chain.DecodeBody(encoded)
		if err != nil {
			t.Fatal(err)
		}
		again, err := chain.Marshal(decoded)
		if err != nil || !bytes.Equal(again, encoded) {
			t.Fatalf("%v\n%x\n%x", err, encoded, again)
		}
		address := chain.CIDOf(encoded)
		sum := sha256.Sum256(encoded)
		if want := append([]byte{1, 0x71, 0x12, 0x20}, sum[:]...); string(address) != string(want) {
			t.Fatalf("address %x, want %x", string(address), want)
		}
		if parsed, err := chain.ParseCID(address.String()); err != nil || parsed != address {
			t.Fatalf("%v: %s is %s", err, address, parsed)
		}
	})
}

// body draws valid bodies.
func body() *rapid.Generator[chain.Body] {
	name := rapid.StringMatching(`[a-z0-9./:_-]{1,40}`)
	names := func(most int) *rapid.Generator[[]string] { return rapid.SliceOfN(name, 0, most) }
	number := rapid.Int64Range(0, 1<<53)
	ms := rapid.Custom(func(t *rapid.T) chain.Millis {
		return chain.Millis(rapid.Int64Range(0, 366*24*3600*1000).Draw(t, "ms"))
	})
	ppm := rapid.Custom(func(t *rapid.T) chain.PPM { return chain.PPM(rapid.Int64Range(0, 1e6).Draw(t, "ppm")) })
	option := rapid.Custom(func(t *rapid.T) chain.Option {
		return chain.Option{
			ID: chain.OptionID(name.Draw(t, "id")), Kind: rapid.SampledFrom([]chain.Kind{chain.Local, chain.Provider, chain.Peer, "other"}).Draw(t, "kind"),
			Agent: rapid.SampledFrom([]string{"", knownDID, "did:web:a.example%3A8443:b"}).Draw(t, "agent"), Adapter: name.Draw(t, "adapter"), Model: rapid.StringN(0, 40, 80).Draw(t, "model"), Keys: names(3).Draw(t, "keys"),
			Tries: rapid.IntRange(0, 64).Draw(t, "tries"),
			Cost: chain.Cost{InputPerMtok: chain.MicroUSD(number.Draw(t, "in")), Latency: ms.Draw(t, "latency"), Reliability: ppm.Draw(t, "p"),
				Outside: rapid.Bool().Draw(t, "outside"), Weight: number.Draw(t, "weight")},
			Limits: chain.Limits{Total: ms.Draw(t, "total"), Features: names(3).Draw(t, "features"), Thinking: rapid.Bool().Draw(t, "thinking")},
		}
	})
	return rapid.Custom(func(t *rapid.T) chain.Body {
		return chain.Body{
			Primitive: "llm.chat",
			Options:   rapid.SliceOfNDistinct(option, 1, 8, func(o chain.Option) chain.OptionID { return o.ID }).Draw(t, "options"),
			Rules:     chain.Rules{Attempts: rapid.IntRange(0, 64).Draw(t, "attempts"), Sampling: ppm.Draw(t, "sampling"), ReportInterval: ms.Draw(t, "interval")},
		}
	})
}

// Whatever heads arrive in whatever order, the mark never falls, and under one
// sequence number only one body is ever accepted.
func TestTheMarkNeverFalls(t *testing.T) {
	hub, now := chaintest.NewHub(), chaintest.Start
	bodies := [][]byte{hub.Body(t, "a"), hub.Body(t, "b")}
	rapid.Check(t, func(t *rapid.T) {
		var mark chain.Mark
		held := map[uint64]chain.CID{}
		for range rapid.IntRange(1, 12).Draw(t, "n") {
			b := rapid.SampledFrom(bodies).Draw(t, "body")
			h := hub.HeadOf(b, now)
			h.Seq = rapid.Uint64Range(1, 5).Draw(t, "seq")
			h.Issued -= chain.Instant(rapid.IntRange(0, 3).Draw(t, "age"))
			payload, err := chain.Marshal(h)
			if err != nil {
				t.Fatal(err)
			}
			envelope, err := hub.Key.Seal(chain.DomainChain, payload)
			if err != nil {
				t.Fatal(err)
			}
			c, err := hub.Trust.Verify(hub.Slot, envelope, b, mark, now)
			higher := h.Seq > mark.Seq || h.Seq == mark.Seq && h.Body == mark.Body && h.Issued >= mark.Issued
			if (err == nil) != higher {
				t.Fatalf("mark %+v, head %+v: %v", mark, h, err)
			}
			if err != nil {
				continue
			}
			if first, ok := held[h.Seq]; ok && first != h.Body {
				t.Fatalf("two bodies under sequence number %d", h.Seq)
			}
			held[h.Seq] = h.Body
			mark = c.Mark()
		}
	})
}
