package delta_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/delta"
)

func exp(x float64) float64 { return math.Exp(x) }

// TestASteadyWorldIsLeftInPeace: a week of 20 devices at different distances from
// twelve close options, nothing breaking down. Orders settle.
func TestASteadyWorldIsLeftInPeace(t *testing.T) {
	const devices, days = 20, 7
	random := rand.New(rand.NewPCG(7, 7))
	text := ""
	for i := range 12 {
		text += fmt.Sprintf("o%d p=%.3f s=%.2f domain=d%d |", i, 1-.002-.008*random.Float64(), 3+.3*float64(i), i%6)
	}
	moves := 0
	for range devices {
		w := newWorld(t, text)
		far := map[int]float64{}
		for d := range 6 {
			far[d] = exp(.6 * random.NormFloat64())
		}
		for w.now.Before(epoch.Add(days * 24 * time.Hour)) {
			w.now = w.now.Add(time.Duration(random.ExpFloat64() * float64(6*time.Minute)))
			for _, at := range w.book.Order(&w.view, delta.Conversation{}, w.now) {
				o := &w.view.Options[at]
				ok := random.Float64() < o.Cost.Reliability.Share()
				took := time.Duration(float64(o.Cost.Latency.Duration()) * far[at%6] * noise(random))
				w.book.Observe(delta.Key{Primitive: chain.LLMChat, Option: o.ID}, delta.Sample{OK: ok, Took: took, At: w.now})
				if ok {
					break
				}
			}
			moves += w.book.Evaluate(&w.view, w.now)
		}
	}
	each := float64(moves) / devices / days
	t.Logf("%.2f reorders a device and day", each)
	if each > 2 {
		t.Errorf("%.2f reorders a device and day, want at most 2", each)
	}
}
