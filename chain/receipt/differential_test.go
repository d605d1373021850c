package receipt

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// body draws a JSON document: its numbers are any double, its texts have whatever needs
// an escape, its names come in any order.
type drawing struct{ *rand.Rand }

var hard = []rune("aZ09 \"\\/<>&'\u0000\u001f\u007f\u0080é\u2028\u2029\ufb33\ufeff\uffff😀𝄞\U0010ffff\n\r\t\b\f")

func (d drawing) text() string {
	var b strings.Builder
	for range d.IntN(8) {
		b.WriteRune(hard[d.IntN(len(hard))])
	}
	return b.String()
}

func (d drawing) value(depth int) any {
	kind := d.IntN(7)
	if depth == 0 {
		kind %= 5
	}
	switch kind {
	case 0:
		return d.text()
	case 1:
		for {
			if f := math.Float64frombits(d.Uint64()); !math.IsNaN(f) && !math.IsInf(f, 0) {
				return f
			}
		}
	case 2:
		return json.Number(strconv.FormatInt(int64(d.Uint64())>>d.IntN(64), 10))
	case 3:
		return json.Number(strconv.FormatFloat(float64(d.IntN(1e6))/1e3, 'e', d.IntN(20), 64))
	case 4:
		return []any{nil, true, false}[d.IntN(3)]
	case 5:
		list := make([]any, d.IntN(5))
		for i := range list {
			list[i] = d.value(depth - 1)
		}
		return list
	}
	object := map[string]any{}
	for range d.IntN(6) {
		object[d.text()] = d.value(depth - 1)
	}
	return object
}

// A hundred thousand drawn bodies have one form, whoever makes it.
func TestCanonicalAgreesOnManyBodies(t *testing.T) {
	bodies := 100_000
	if s := os.Getenv("CHORDWHEEL_BODIES"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		bodies = n
	} else if underRace {
		bodies /= 20
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	var group sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	for w := range workers {
		group.Go(func() {
			d := drawing{rand.New(rand.NewPCG(seed, uint64(w)))}
			for range bodies / workers {
				in, err := json.Marshal(d.value(4))
				if err != nil {
					t.Error(err)
					return
				}
				if d.IntN(2) == 0 { // blanks change nothing
					in = append(append([]byte(" \r\n"), in...), '\t')
				}
				compare(fails{t}, in)
			}
		})
	}
	group.Wait()
}

// fails lets a helper give up in a goroutine that is not the test's.
type fails struct{ *testing.T }

func (f fails) Fatalf(format string, args ...any) { f.Errorf(format, args...) }
