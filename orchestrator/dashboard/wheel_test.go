package dashboard

import (
	"math"
	"testing"
)

func TestAChordGoesAroundTheHub(t *testing.T) {
	at := func(x, y float64) *rimmed { return &rimmed{X: wheelX + x, Y: wheelY + y} }
	for name, c := range map[string]struct {
		a, b *rimmed
		bent bool
	}{
		"opposite each other": {at(0, -150), at(0, 150), true},
		"beside each other":   {at(0, -150), at(150, 0), false},
	} {
		l := chord(c.a, c.b, "")
		x, y := (l.X1+l.X2)/2, (l.Y1+l.Y2)/2
		if bent := l.QX != x || l.QY != y; bent != c.bent {
			t.Errorf("%s: bent: %t", name, bent)
		}
		// The middle of a quadratic curve lies half way to what it bends towards.
		if off := math.Hypot((x+l.QX)/2-wheelX, (y+l.QY)/2-wheelY); off <= hubRadius {
			t.Errorf("%s: it passes %.0f from the middle, behind the hub", name, off)
		}
	}
}
