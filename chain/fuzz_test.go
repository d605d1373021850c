package chain_test

import (
	"bytes"
	"errors"
	"slices"
	"testing"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
)

func FuzzOpen(f *testing.F) {
	var signed [][]byte // all that was ever signed with the pinned key
	for _, r := range allRules() {
		v := r.vector(f)
		for _, e := range [][]byte{v.bytes.Head, v.bytes.Extension} {
			f.Add(e)
			signed = append(signed, e)
		}
	}
	pinned := chaintest.PeerID(0)
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, d := range []chain.Domain{chain.DomainChain, chain.DomainExtension} {
			signer, payload, err := chain.Open(d, b)
			if err != nil {
				continue
			}
			if signer == pinned && !slices.ContainsFunc(signed, func(e []byte) bool { return bytes.Equal(e, b) }) {
				t.Errorf("%x: a signature nobody made", b)
			}
			if len(payload) > len(b) {
				t.Errorf("%x: a payload of %d bytes", b, len(payload))
			}
		}
	})
}

func FuzzDecodeBody(f *testing.F) {
	for _, r := range allRules() {
		f.Add(r.vector(f).bytes.Body)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		body, err := chain.DecodeBody(b)
		if err != nil {
			if !errors.Is(err, chain.ErrEncoding) && !errors.Is(err, chain.ErrContent) {
				t.Errorf("%x: %v", b, err)
			}
			return
		}
		// What was accepted is valid, and stays so when written again.
		if again, err := chain.DecodeBody(chaintest.Encode(t, body)); err != nil || len(again.Options) != len(body.Options) {
			t.Errorf("%x: %v", b, err)
		}
		for _, o := range body.Options {
			if o.Limits.Total.Duration() < 0 || o.Cost.Latency.Duration() < 0 {
				t.Errorf("%x: a duration became negative", b)
			}
		}
	})
}

func FuzzVerify(f *testing.F) {
	heads := map[string]bool{}
	for _, r := range allRules() {
		v := r.vector(f)
		f.Add(v.bytes.Head, v.bytes.Body)
		heads[string(v.bytes.Head)] = true
	}
	trust, now := chaintest.NewHub().Trust, chaintest.Start
	f.Fuzz(func(t *testing.T, head, body []byte) {
		c, err := trust.Verify(chaintest.Slot, head, body, chain.Mark{}, now)
		if err != nil {
			return
		}
		if !heads[string(head)] {
			t.Errorf("%x: a head nobody signed", head)
		}
		if c.Head().Body != chain.CIDOf(body) || c.Slot() != chaintest.Slot || c.Expired(now) {
			t.Errorf("accepted %+v", c.Head())
		}
	})
}

func FuzzVerifyExtension(f *testing.F) {
	hub, now, device := chaintest.NewHub(), chaintest.Start, chaintest.PeerID(1)
	of := hub.Chain(f, anOrder, now)
	signed := map[string]bool{}
	for _, r := range extensionRules() {
		v := r.vector(f)
		f.Add(v.bytes.Extension, v.Nonce)
		signed[string(v.bytes.Extension)] = true
	}
	f.Fuzz(func(t *testing.T, envelope []byte, nonce string) {
		options, err := hub.Trust.VerifyExtension(of, nonce, device, envelope, now)
		if err == nil && (!signed[string(envelope)] || nonce != "nonce-1" || len(options) == 0) {
			t.Errorf("%x for %q: an extension nobody signed", envelope, nonce)
		}
	})
}

func FuzzParseCID(f *testing.F) {
	f.Add(chain.CIDOf(nil).String())
	f.Add("QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N")
	f.Add("")
	f.Fuzz(func(t *testing.T, s string) {
		c, err := chain.ParseCID(s)
		if err != nil {
			return
		}
		if again, err := chain.ParseCID(c.String()); err != nil || again != c || len(c) != 36 {
			t.Errorf("%q is %s, then %s: %v", s, c, again, err)
		}
		var decoded chain.CID
		if err := chain.Unmarshal(chaintest.Encode(t, c), &decoded); err != nil || decoded != c {
			t.Errorf("%q: %v", s, err)
		}
	})
}

func FuzzParseScope(f *testing.F) {
	for _, s := range []string{"workspace:home", "session:x", "device:", ":", "workspace:a\u202eb", "workspace:\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		scope, err := chain.ParseScope(s)
		if err == nil && (string(scope) != s || len(s) > chain.MaxScopeID || bytes.ContainsAny([]byte(s), " \t\r\n\x00\x7f")) {
			t.Errorf("%q was accepted", s)
		}
		if primitive, err := chain.ParsePrimitive(s); err == nil && string(primitive) != s {
			t.Errorf("primitive %q became %q", s, primitive)
		}
		if id, err := chain.ParsePeerID(s); err == nil {
			if again, err := chain.ParsePeerID(string(id)); err != nil || again != id {
				t.Errorf("peer ID %q became %q", s, id)
			}
		}
	})
}
