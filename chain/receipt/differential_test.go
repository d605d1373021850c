package receipt

import (
	"encoding/json"
	"fmt"
	"math"
	"math/big"
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

// digitsOf gives the shortest digits of f > 0 that name it, of several the nearest, of two
// that are equally near the even ones: the value is 0.DIGITS times ten to the power of point. It knows exact fractions and nothing
// of how anybody else prints a number.
func digitsOf(f float64) (digits string, point int) {
	exact := new(big.Rat).SetFloat64(f)
	ten := big.NewInt(10)
	for point = int(math.Log10(f)) - 2; ; point++ { // so that 0.1 <= exact/10^point < 1
		if exact.Cmp(power(ten, point)) < 0 {
			break
		}
	}
	for n := 1; ; n++ {
		scaled := new(big.Rat).Mul(exact, power(ten, n-point))
		below := new(big.Int).Quo(scaled.Num(), scaled.Denom())
		var best *big.Int
		var distance *big.Rat
		for _, d := range []*big.Int{below, new(big.Int).Add(below, big.NewInt(1))} {
			value := new(big.Rat).Mul(new(big.Rat).SetInt(d), power(ten, point-n))
			if named, _ := value.Float64(); named != f {
				continue
			}
			if far := new(big.Rat).Abs(value.Sub(value, exact)); best == nil || far.Cmp(distance) < 0 || far.Cmp(distance) == 0 && d.Bit(0) == 0 {
				best, distance = d, far
			}
		}
		if best != nil {
			digits = best.String()
			return strings.TrimRight(digits, "0"), point + len(digits) - n
		}
	}
}

func power(ten *big.Int, n int) *big.Rat {
	p := new(big.Int).Exp(ten, big.NewInt(int64(max(n, -n))), nil)
	if n < 0 {
		return new(big.Rat).SetFrac(big.NewInt(1), p)
	}
	return new(big.Rat).SetInt(p)
}

// numberOf is Number::toString of ECMAScript, step by step.
func numberOf(f float64) string {
	switch {
	case f == 0:
		return "0"
	case f < 0:
		return "-" + numberOf(-f)
	}
	digits, n := digitsOf(f)
	k := len(digits)
	switch {
	case k <= n && n <= 21:
		return digits + strings.Repeat("0", n-k)
	case 0 < n && n <= 21:
		return digits[:n] + "." + digits[n:]
	case -6 < n && n <= 0:
		return "0." + strings.Repeat("0", -n) + digits
	}
	exponent := "e" + strconv.Itoa(n-1)
	if n > 0 {
		exponent = "e+" + strconv.Itoa(n-1)
	}
	if k == 1 {
		return digits + exponent
	}
	return digits[:1] + "." + digits[1:] + exponent
}

// The library that the bodies are compared with writes our numbers as well: here they are
// written by somebody else, and read as exact fractions.
func TestNumbersAgreeWithExactArithmetic(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	d := drawing{rand.New(rand.NewPCG(seed, 9))}
	texts := []string{"5e-324", "1.7976931348623157e308", "9007199254740993", "0.000001", "0.0000009999999999999999", "1e21", "999999999999999900000", "5.684341886080801e-14", "9.5367431640625e-7", "2.2250738585072011e-308"}
	numbers := 3000
	if underRace {
		numbers = 300
	}
	for range numbers {
		switch d.IntN(4) {
		case 0:
			texts = append(texts, strconv.FormatFloat(math.Ldexp(1, d.IntN(2000)-1020), 'e', 25, 64)) // the neighbours are not equally far
		case 1:
			texts = append(texts, fmt.Sprintf("%d.%de%d", d.IntN(1e9), d.Uint64(), d.IntN(60)-30))
		case 2:
			texts = append(texts, strconv.FormatInt(int64(d.Uint64())>>d.IntN(40), 10))
		default:
			if f := math.Float64frombits(d.Uint64()); !math.IsNaN(f) && !math.IsInf(f, 0) {
				texts = append(texts, strconv.FormatFloat(f, 'g', 17, 64))
			}
		}
	}
	for _, text := range texts {
		exact, ok := new(big.Rat).SetString(text)
		if !ok {
			t.Fatal(text)
		}
		f, _ := exact.Float64()
		if got, err := Canonical([]byte(text)); err != nil || string(got) != numberOf(f) {
			t.Errorf("%s: %s, %v, want %s", text, got, err, numberOf(f))
		}
	}
}
