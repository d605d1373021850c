package did

import (
	"bytes"
	"encoding/json"
	"runtime"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"
	"pgregory.net/rapid"
)

// What is put together from the parts of an object is the RFC 8785 form of the whole,
// whatever its names are.
func TestCanonicalIsThatOfTheWhole(t *testing.T) {
	check := func(t interface{ Fatalf(string, ...any) }, b []byte) {
		want, err := jcs.Transform(b)
		if err != nil {
			t.Fatalf("%v", err)
		}
		o, err := parseObject(b)
		if err != nil || !bytes.Equal(o.canonical(), want) {
			t.Fatalf("%s\nwant %s, %v", o.canonical(), want, err)
		}
	}
	// By bytes the second of these would come first, and by code points.
	check(t, []byte(`{"\ue000":1,"😀":2,"é":{"b":[1.50,"\/"],"a":1e2},"e":null,"\n":"\u20ac","":{}, "A":true}`))
	rapid.Check(t, func(t *rapid.T) {
		m := rapid.MapOf(rapid.String(), rapid.OneOf(rapid.Map(rapid.String(), func(s string) any { return s }), rapid.Map(rapid.Int32(), func(n int32) any { return n }))).Draw(t, "object")
		b, err := json.Marshal(map[string]any{"in": m, "a": 1})
		if err != nil {
			t.Fatalf("%v", err)
		}
		check(t, b)
		if b, err = json.Marshal(m); err != nil {
			t.Fatalf("%v", err)
		}
		check(t, b)
	})
}

// A large document is hashed once, however many proofs an entry has: else a log of a few
// megabytes keeps whoever reads it busy for long.
func TestManyProofsOfALargeDocument(t *testing.T) {
	cost := func(proofs int) uint64 {
		w := (&writer{t: t}).add(1, first("", 1), wrong{
			before: inState("more", `["`+strings.Repeat("x", 300_000)+`"]`),
			after: func(o object) {
				var list []json.RawMessage
				must(t, json.Unmarshal(o["proof"], &list))
				for len(list) < proofs {
					list = append(list, list[0])
				}
				var err error
				o["proof"], err = json.Marshal(list)
				must(t, err)
			},
		})
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := Verify(w.log(), nil, w.did(), Want{}, at(100))
		runtime.ReadMemStats(&after)
		must(t, err)
		return after.TotalAlloc - before.TotalAlloc
	}
	if one, many := cost(1), cost(maxProofs); many > one+one/2 {
		t.Errorf("%d bytes for one proof, %d for %d", one, many, maxProofs)
	}
}
