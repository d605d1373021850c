package keyring

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"reflect"
	"testing"

	"github.com/chordwheel/chordwheel/store/datadir"
)

// What is taken for keys.json can be written and read again.
func FuzzDecode(f *testing.F) {
	for _, c := range []contents{
		{Format: fileFormat},
		{Format: fileFormat, Serial: 7, Keys: map[string]entry{"groq": {Changed: 7, Secret: "s"}, "acme": {Changed: 3, System: true}}},
	} {
		b, err := encode(c)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
		f.Add(b[headBytes:])
	}
	f.Add(Encode(2, `"x":1`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := decode(b); err != nil { // once more with a sum that fits, to come further
			sum := sha256.Sum256(b)
			b = append([]byte(sumPrefix+hex.EncodeToString(sum[:])+sumSuffix), b...)
		}
		c, err := decode(b)
		if err != nil {
			if !errors.Is(err, datadir.ErrDamaged) && !errors.Is(err, datadir.ErrFormat) {
				t.Fatalf("err = %v", err)
			}
			return
		}
		again, err := encode(c)
		if err != nil {
			t.Fatal(err)
		}
		if twice, err := decode(again); err != nil || !reflect.DeepEqual(c, twice) {
			t.Fatalf("%+v, then %+v, %v", c, twice, err)
		}
	})
}

// A name that is taken is never a way out of anything.
func FuzzName(f *testing.F) {
	for _, s := range []string{"groq", "../x", "a.b-c_d", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if CheckName(name) != nil {
			return
		}
		for _, r := range envName(name) {
			if !(r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '_') {
				t.Fatalf("%q gives the variable %q", name, envName(name))
			}
		}
		if len(name) > MaxNameBytes || name[0] == '.' {
			t.Fatalf("%q was taken", name)
		}
	})
}
