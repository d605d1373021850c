package simulate_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"testing"

	"github.com/chordwheel/chordwheel/orchestrator/simulate"
)

// run simulates some policies of a scenario, in a world that is small enough for a test.
func run(t *testing.T, s *simulate.Scenario, baselines ...string) simulate.Result {
	t.Helper()
	var list []simulate.Outcome
	for _, p := range append([]string{simulate.Product, simulate.C1, simulate.C2}, baselines...) {
		far := 0.0
		o, err := s.Run(t.Context(), p, func(share float64) {
			if share < far || share > 1 {
				t.Errorf("%s is at %g after %g", p, share, far)
			}
			far = share
		})
		if err != nil {
			t.Fatal(err)
		}
		if far != 1 {
			t.Errorf("%s ended at %g", p, far)
		}
		list = append(list, o)
	}
	return s.Compare("test", list)
}

// small gives a shipped scenario with fewer devices and days.
func small(t *testing.T, name string, devices int, days float64) *simulate.Scenario {
	t.Helper()
	s := worlds(t)[name]
	if s == nil {
		t.Fatalf("no scenario %s", name)
	}
	s.Fleet.Devices, s.Days = devices, days
	return s
}

// The same scenario gives the same bytes, picture included.
func TestTheSameSeedGivesTheSameBytes(t *testing.T) {
	bytesOf := func(seed uint64) []byte {
		s := small(t, "close/storm", 10, 0.3)
		s.Seed = seed
		r := run(t, s, simulate.AtRandom, simulate.Greedy, simulate.LeastBusy)
		b, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return append(b, simulate.Draw(&r)...)
	}
	one := bytesOf(1)
	if !bytes.Equal(one, bytesOf(1)) {
		t.Error("two runs differ")
	}
	if bytes.Equal(one, bytesOf(2)) {
		t.Error("another seed makes no difference")
	}
}

// The picture is well-formed XML.
func TestThePictureIsWellFormed(t *testing.T) {
	s := small(t, "close/steady", 5, 0.3)
	s.About = `<&"`
	r := run(t, s)
	d := xml.NewDecoder(bytes.NewReader(simulate.Draw(&r)))
	for {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
	}
}
