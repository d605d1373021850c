package chain_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
)

func allRules() []rule {
	return slices.Concat(goodHeads(), signatureRules(), placeRules(), timeRules(), sequenceRules(), bodyRules(), encodingRules(), extensionRules())
}

func goodHeads() []rule {
	return []rule{
		{"good_first", "a first chain", func(testing.TB, *offer) {}},
		{"good_newer", "a higher sequence number with another body", func(t testing.TB, o *offer) {
			o.mark = chain.Mark{Seq: o.head.Seq - 1, Body: chain.CIDOf([]byte("another")), Issued: o.head.Issued - 1}
		}},
		{"good_newer_seq_issued_earlier", "a higher sequence number counts, whatever the clocks say", func(t testing.TB, o *offer) {
			o.mark = chain.Mark{Seq: o.head.Seq - 1, Body: o.head.Body, Issued: o.head.Issued + 1000}
		}},
		{"good_again", "the same head once more", func(t testing.TB, o *offer) {
			o.mark = chain.Mark{Seq: o.head.Seq, Body: o.head.Body, Issued: o.head.Issued}
		}},
		{"good_renewal", "the same sequence number and body, issued later", func(t testing.TB, o *offer) {
			o.mark = chain.Mark{Seq: o.head.Seq, Body: o.head.Body, Issued: o.head.Issued - 1}
		}},
		{"good_unknown_head_field", "a field of a newer version in the head is ignored", func(t testing.TB, o *offer) {
			o.payload = pairs(append(fields(o.head), entry("zzzzzzzzzzzzzzzzz", item(0, 1)))...)
		}},
		{"good_unknown_body_field", "fields of a newer version in the body, the options and the rules are ignored", func(t testing.TB, o *offer) {
			option := pairs(entry("id", text("a")), entry("kind", text("local")), entry("later", pairs(entry("x", item(4, 0)))))
			o.setBody(pairs(entry("later", item(0, 7)), entry("rules", pairs(entry("later", text("x")))), entry("options", append(item(4, 1), option...)),
				entry("primitive", text("llm.chat"))))
		}},
		{"good_unknown_kind", "an option of an unknown kind is kept", func(t testing.TB, o *offer) {
			o.setBody(o.hub.Body(t, "a kind=quantum | local"))
		}},
	}
}

func signatureRules() []rule {
	return []rule{
		{"fail_signer_stranger", "signed by a key that is not pinned", func(t testing.TB, o *offer) { o.hub = chaintest.Stranger() }},
		{"fail_signer_key_type", "signed by a key that is not Ed25519", func(t testing.TB, o *offer) {
			o.envelope = func([]byte) []byte { return secp256k1(t, o.domain, chaintest.Encode(t, o.head)) }
		}},
		{"fail_signature_payload", "the signed bytes were changed", func(t testing.TB, o *offer) {
			o.envelope = func(e []byte) []byte { return bytes.Replace(e, []byte("workspace:home"), []byte("workspace:hose"), 1) }
		}},
		{"fail_signature_type_only", "the payload type says chain, but the signature was made for extensions", func(t testing.TB, o *offer) {
			o.envelope = func([]byte) []byte {
				return sealRaw(t, o.hub.Key.Private(), string(chain.DomainExtension), "/"+string(chain.DomainChain), chaintest.Encode(t, o.head))
			}
		}},
		{"fail_domain_extension", "signed as an extension", func(t testing.TB, o *offer) { o.domain = chain.DomainExtension }},
		{"fail_domain_membership", "signed as a membership", func(t testing.TB, o *offer) { o.domain = chain.DomainMembership }},
		{"fail_domain_type", "signed in the right domain with another payload type", func(t testing.TB, o *offer) {
			o.envelope = func([]byte) []byte {
				return sealRaw(t, o.hub.Key.Private(), string(chain.DomainChain), "/other", chaintest.Encode(t, o.head))
			}
		}},
		{"fail_encoding_envelope_field", "an unknown protobuf field stands behind the envelope", func(t testing.TB, o *offer) {
			o.envelope = func(e []byte) []byte { return append(e, 0x7a, 1, 'x') }
		}},
		{"fail_encoding_envelope_cut", "the last byte of the envelope is missing", func(t testing.TB, o *offer) {
			o.envelope = func(e []byte) []byte { return e[:len(e)-1] }
		}},
		{"fail_encoding_envelope_empty", "no envelope at all", func(t testing.TB, o *offer) { o.envelope = func([]byte) []byte { return []byte{} } }},
	}
}

func placeRules() []rule {
	rules := []rule{
		{"fail_slot_case", "scopes differ by case", func(t testing.TB, o *offer) { o.head.Scope = "workspace:Home" }},
		{"fail_mesh", "the hub's key, but another mesh", func(t testing.TB, o *offer) { o.head.Mesh = "other" }},
		{"fail_slot_body", "the head names the right primitive, the body another", func(t testing.TB, o *offer) {
			o.setBody(o.hub.For(o.slot.Scope, "llm.t1").Body(t, anOrder))
		}},
	}
	for _, scope := range []chain.ScopeID{"workspace:home", "workspace:work", "session:home", "workspace:hom"} {
		for _, primitive := range []chain.Primitive{"llm.chat", "llm.t1", "llm.chat.x"} {
			slot := chain.Slot{Scope: scope, Primitive: primitive}
			if slot == chaintest.Slot {
				continue
			}
			name := strings.NewReplacer(":", "-", ".", "-").Replace("fail_slot_" + string(scope) + "_" + string(primitive))
			rules = append(rules, rule{name, "signed for " + slot.String(), func(t testing.TB, o *offer) { o.head.Scope, o.head.Primitive = scope, primitive }})
		}
	}
	return rules
}

func timeRules() []rule {
	expires := func(o *offer) time.Time { return o.head.Expires.Time() }
	return []rule{
		{"good_expiry_minus_1ms", "one millisecond before it expires", func(t testing.TB, o *offer) { o.now = expires(o).Add(-time.Millisecond) }},
		{"fail_expired_now", "at the moment it expires", func(t testing.TB, o *offer) { o.now = expires(o) }},
		{"fail_expired_year", "a year after it expired", func(t testing.TB, o *offer) { o.now = expires(o).AddDate(1, 0, 0) }},
		{"good_stale", "past refresh_after it is stale, and still good", func(t testing.TB, o *offer) { o.now = o.head.RefreshAfter.Time().Add(time.Hour) }},
		{"good_future_leeway", "issued a minute ahead of the device's clock", func(t testing.TB, o *offer) { o.now = o.now.Add(-time.Minute) }},
		{"fail_future_leeway", "issued a minute and a millisecond ahead", func(t testing.TB, o *offer) { o.now = o.now.Add(-time.Minute - time.Millisecond) }},
		{"fail_content_expires_first", "it expires before it was issued", func(t testing.TB, o *offer) { o.head.Expires = o.head.Issued - 1 }},
		{"fail_content_refresh_late", "it expires before it is to be refreshed", func(t testing.TB, o *offer) { o.head.RefreshAfter = o.head.Expires + 1 }},
		{"fail_content_refresh_early", "it is to be refreshed before it was issued", func(t testing.TB, o *offer) { o.head.RefreshAfter = o.head.Issued - 1 }},
		{"fail_content_issued_zero", "it was never issued", func(t testing.TB, o *offer) { o.head.Issued = 0 }},
	}
}

func sequenceRules() []rule {
	mark := func(seq int64, body string, issued int64) func(testing.TB, *offer) {
		return func(t testing.TB, o *offer) {
			o.mark = chain.Mark{Seq: uint64(int64(o.head.Seq) + seq), Body: o.head.Body, Issued: o.head.Issued + chain.Instant(issued)}
			if body != "" {
				o.mark.Body = chain.CIDOf([]byte(body))
			}
		}
	}
	return []rule{
		{"fail_rollback_one", "a sequence number one lower than the highest seen", mark(1, "", 0)},
		{"fail_rollback_body", "the same with the body that a newer head names", mark(1000, "another", -1000)},
		{"fail_rollback_renewal", "a renewal that was issued before the one accepted last", mark(0, "", 1)},
		{"fail_equivocation", "another body under the same sequence number", mark(0, "another", 0)},
		{"fail_equivocation_later", "the same, issued later: the first stays", mark(0, "another", -1000)},
		{"fail_content_seq_zero", "a sequence number of zero", func(t testing.TB, o *offer) { o.head.Seq = 0 }},
		{"fail_content_seq_huge", "a sequence number that leaves no room above it", func(t testing.TB, o *offer) { o.head.Seq = 1<<62 + 1 }},
	}
}

func bodyRules() []rule {
	with := func(change func(*chain.Body)) func(testing.TB, *offer) {
		return func(t testing.TB, o *offer) {
			b := chain.Body{Primitive: o.slot.Primitive, Options: chaintest.Options(t, anOrder)}
			change(&b)
			o.setBody(chaintest.Encode(t, b))
		}
	}
	return []rule{
		{"fail_body_other", "a body of another chain", func(t testing.TB, o *offer) { o.body = o.hub.Body(t, "evil") }},
		{"fail_body_changed", "one byte of the body was changed", func(t testing.TB, o *offer) {
			o.body = bytes.Replace(o.body, []byte("groq"), []byte("grok"), 1)
		}},
		{"fail_body_cut", "the last byte of the body is missing", func(t testing.TB, o *offer) { o.body = o.body[:len(o.body)-1] }},
		{"fail_body_longer", "a byte stands behind the body", func(t testing.TB, o *offer) { o.body = append(o.body, 0) }},
		{"fail_body_empty", "no body", func(t testing.TB, o *offer) { o.body = []byte{} }},
		{"fail_content_no_options", "a signed body without options", with(func(b *chain.Body) { b.Options = nil })},
		{"fail_content_same_id", "two options of one id", with(func(b *chain.Body) { b.Options[1].ID = b.Options[0].ID })},
		{"fail_content_id_space", "an id with a space in it", with(func(b *chain.Body) { b.Options[0].ID = "a b" })},
		{"fail_content_id_bidi", "an id that turns the line around", with(func(b *chain.Body) { b.Options[0].ID = "a\u202eb" })},
		{"fail_content_no_kind", "an option without a kind", with(func(b *chain.Body) { b.Options[0].Kind = "" })},
		{"fail_content_data_class", "an unknown data class: what it forbids is unknown", with(func(b *chain.Body) { b.Options[0].Data = "eu-only" })},
		{"fail_content_local_only_peer", "a peer slot for data that must stay", with(func(b *chain.Body) { b.Options[1].Data = chain.LocalOnly })},
		{"fail_content_reliability", "a reliability above one", with(func(b *chain.Body) { b.Options[0].Cost.Reliability = 1_000_001 })},
		{"fail_content_negative_price", "a negative price", with(func(b *chain.Body) { b.Options[0].Cost.PerCall = -1 })},
		{"fail_content_long_limit", "a limit over a year", with(func(b *chain.Body) { b.Options[0].Limits.Total = 1 << 50 })},
		{"fail_content_rules", "65 attempts", with(func(b *chain.Body) { b.Rules.Attempts = 65 })},
		{"fail_content_primitive", "a primitive that is no name", func(t testing.TB, o *offer) {
			o.slot.Primitive, o.head.Primitive = "LLM chat", "LLM chat"
			o.setBody(chaintest.Encode(t, chain.Body{Primitive: "LLM chat", Options: chaintest.Options(t, anOrder)}))
		}},
	}
}

func encodingRules() []rule {
	head := func(change func(o *offer, f [][]byte) []byte) func(testing.TB, *offer) {
		return func(t testing.TB, o *offer) { o.payload = change(o, fields(o.head)) }
	}
	replace := func(key string, value []byte) func(testing.TB, *offer) {
		return head(func(o *offer, f [][]byte) []byte {
			i := slices.IndexFunc(f, func(e []byte) bool { return bytes.HasPrefix(e, text(key)) })
			f[i] = entry(key, value)
			return pairs(f...)
		})
	}
	return []rule{
		{"fail_encoding_long_integer", "the sequence number in a longer form than it needs", replace("seq", long(0, 5))},
		{"fail_encoding_order", "two fields in the wrong order", head(func(o *offer, f [][]byte) []byte {
			f[0], f[1] = f[1], f[0]
			return pairs(f...)
		})},
		{"fail_encoding_duplicate", "a field stands twice", head(func(o *offer, f [][]byte) []byte { return pairs(slices.Insert(f, 1, f[0])...) })},
		{"fail_encoding_trailing", "a byte stands behind the head", head(func(o *offer, f [][]byte) []byte { return append(pairs(f...), 0) })},
		{"fail_encoding_cut", "the head ends early", head(func(o *offer, f [][]byte) []byte { b := pairs(f...); return b[:len(b)-1] })},
		{"fail_encoding_indefinite", "a map of indefinite length", head(func(o *offer, f [][]byte) []byte {
			return slices.Concat([]byte{0xbf}, bytes.Join(f, nil), []byte{0xff})
		})},
		{"fail_encoding_tag", "a tagged time", replace("issued", append([]byte{0xc1}, item(0, 1)...))},
		{"fail_encoding_float", "a floating-point time", replace("issued", []byte{0xf9, 0x3c, 0x00})},
		{"fail_encoding_utf8", "text that is not UTF-8", replace("scope", append(item(3, 1), 0xff))},
		{"fail_encoding_type", "a text where a number belongs", replace("seq", text("5"))},
		{"fail_encoding_negative_seq", "a negative sequence number", replace("seq", item(1, 4))},
		{"fail_encoding_address", "a body address of another hash", replace("body", blob(append([]byte{1, 0x71, 0x1e, 32}, make([]byte, 32)...)))},
		{"fail_encoding_array", "an array in place of the map", func(t testing.TB, o *offer) { o.payload = append(item(4, 1), item(0, 1)...) }},
		{"fail_encoding_integer_key", "a map with an integer for a key", func(t testing.TB, o *offer) { o.payload = []byte{0xa1, 1, 1} }},
		{"fail_content_field_case", "field names match by case: SEQ is not seq", head(func(o *offer, f [][]byte) []byte {
			f[0] = entry("SEQ", item(0, o.head.Seq)) // sorts before "seq": still the first of its length
			return pairs(f...)
		})},
		{"fail_content_null", "null is no sequence number", replace("seq", []byte{0xf6})},
		{"fail_encoding_body_order", "a signed body whose fields are in the wrong order", func(t testing.TB, o *offer) {
			option := pairs(entry("kind", text("local")), entry("id", text("a")))
			o.setBody(pairs(entry("options", append(item(4, 1), option...)), entry("primitive", text("llm.chat"))))
		}},
		{"fail_encoding_body_deep", "a signed body nested too deep", func(t testing.TB, o *offer) {
			o.setBody(pairs(entry("x", append(bytes.Repeat([]byte{0x81}, 40), 0))))
		}},
		{"fail_encoding_body_claim", "a signed body that claims 4,294,967,295 options", func(t testing.TB, o *offer) {
			o.setBody(pairs(entry("options", item(4, 1<<32-1))))
		}},
	}
}

func extensionRules() []rule {
	with := func(change func(t testing.TB, o *offer)) func(testing.TB, *offer) {
		return func(t testing.TB, o *offer) {
			of := o.hub.Chain(t, anOrder, o.now)
			e := o.hub.ExtensionOf(t, of, o.nonce, o.device, "gamma/large p=.99 s=3 | delta", o.now)
			o.extension = &e
			if change != nil {
				change(t, o)
			}
		}
	}
	return []rule{
		{"good_extension", "an extension that answers the protest", with(nil)},
		{"good_extension_unknown_kind", "an option of an unknown kind is kept", with(func(t testing.TB, o *offer) { o.extension.Options[1].Kind = "quantum" })},
		{"good_extension_minus_1ms", "one millisecond before it expires", with(func(t testing.TB, o *offer) {
			o.now = o.extension.Expires.Time().Add(-time.Millisecond)
		})},
		{"fail_expired_extension", "at the moment it expires", with(func(t testing.TB, o *offer) { o.now = o.extension.Expires.Time() })},
		{"fail_future_extension", "issued more than a minute ahead", with(func(t testing.TB, o *offer) {
			o.extension.Issued, o.extension.Expires = o.extension.Issued+60_001, o.extension.Expires+60_001
		})},
		{"fail_signer_extension", "forged: signed by a stranger", with(func(t testing.TB, o *offer) { o.extHub = chaintest.Stranger() })},
		{"fail_signature_extension", "altered after it was signed", with(func(t testing.TB, o *offer) {
			o.extSealed = func(e []byte) []byte { return bytes.Replace(e, []byte("gamma"), []byte("gomma"), 1) }
		})},
		{"fail_domain_extension_as_chain", "signed as a chain", with(func(t testing.TB, o *offer) { o.extDomain = chain.DomainChain })},
		{"fail_mesh_extension", "of another mesh", with(func(t testing.TB, o *offer) { o.extension.Mesh = "other" })},
		{"fail_slot_extension_scope", "for another scope", with(func(t testing.TB, o *offer) { o.extension.Scope = "workspace:work" })},
		{"fail_slot_extension_primitive", "for another primitive", with(func(t testing.TB, o *offer) { o.extension.Primitive = "llm.t1" })},
		{"fail_device", "made out to another device", with(func(t testing.TB, o *offer) { o.device = chaintest.PeerID(2) })},
		{"fail_extends", "of another body", with(func(t testing.TB, o *offer) { o.extension.Body = chain.CIDOf([]byte("another")) })},
		{"fail_protest_replay", "replayed: it answered an earlier protest", with(func(t testing.TB, o *offer) { o.nonce = "nonce-2" })},
		{"fail_protest_empty", "a protest without a nonce can have no answer", with(func(t testing.TB, o *offer) { o.nonce, o.extension.Nonce = "", "" })},
		{"fail_content_extension_repeats", "it repeats an option of the chain", with(func(t testing.TB, o *offer) { o.extension.Options[1].ID = "local" })},
		{"fail_content_extension_empty", "it reveals nothing", with(func(t testing.TB, o *offer) { o.extension.Options = nil })},
		{"fail_content_extension_times", "it expires before it was issued", with(func(t testing.TB, o *offer) { o.extension.Expires = o.extension.Issued - 1 })},
		{"fail_encoding_extension", "a byte is missing", with(func(t testing.TB, o *offer) {
			o.extSealed = func(e []byte) []byte { return e[:len(e)-1] }
		})},
	}
}
