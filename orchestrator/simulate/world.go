package simulate

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// epoch is when every simulated world begins: with a month, so that a ceiling's
// period does too.
var epoch = time.Date(2030, 4, 1, 0, 0, 0, 0, time.UTC)

// moment is nanoseconds since epoch.
type moment int64

func (m moment) time() time.Time { return epoch.Add(time.Duration(m)) }

func at(d time.Duration) moment { return moment(d) }

// world is the truth. It is the same for every policy that is run in it, and none
// changes it: what happens to a request on an option is settled by the seed.
type world struct {
	s       *Scenario
	options []truth
	devices []*place
	turns   []turn // in the order of time
	end     moment
}

// truth is an option as it is now.
type truth struct {
	id          chain.OptionID
	domain      string
	latency     float64 // seconds, median, nearby
	spread      float64
	reliability float64
	failure     float64 // seconds, median
	money       float64 // micro-dollars a request
	quality     float64
	down        int // outages under way
	hangs       int // of these, those that accept and say nothing
	there       bool
	withheld    bool
}

// place is where a device stands in the world.
type place struct {
	number   int
	rate     float64 // requests an hour, over the day
	noon     float64 // hour of the day at which it asks most
	slowness []float64
	sleepy   bool
	bedtime  float64 // hour of the day at which a sleepy one falls asleep
	liar     bool
}

// turn is a moment at which the truth changes.
type turn struct {
	at     moment
	apply  func(w *world)
	params bool // something that lasts; else an outage began or ended
}

// stream gives random numbers of its own to each thing that draws, so that one more
// draw here changes nothing there.
func stream(seed uint64, what string, number int) *rand.Rand {
	h := seed
	for i := range len(what) {
		h = mix(h ^ uint64(what[i]))
	}
	return rand.New(rand.NewPCG(h, mix(uint64(number)+1)))
}

// mix is the finaliser of splitmix64.
func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

func newWorld(s *Scenario) *world {
	w := &world{s: s, end: moment(s.Days * 24 * float64(time.Hour))}
	for i := range s.Options {
		o := &s.Options[i]
		t := truth{id: chain.OptionID(o.Name), domain: o.Domain, latency: o.Latency.Seconds(), spread: o.Spread, reliability: o.Reliability,
			failure: o.Failure.Seconds(), money: money(o, 1, &s.Profile), quality: o.Quality, there: o.From == 0, withheld: o.Withheld}
		w.options = append(w.options, t)
		if o.From > 0 {
			w.turns = append(w.turns, turn{at(o.From), func(w *world) { w.options[i].there = true }, true})
		}
	}
	for i := range s.Fleet.Devices {
		w.devices = append(w.devices, w.place(i))
	}
	w.changes()
	for _, o := range w.outages() {
		w.outage(o)
	}
	slices.SortStableFunc(w.turns, func(a, b turn) int { return cmp.Compare(a.at, b.at) })
	return w
}

func money(o *Option, dearer float64, p *Profile) float64 {
	return (o.Input*float64(p.Input) + o.Output*float64(p.Output)) * dearer // dollars a million tokens are micro-dollars a token
}

func (w *world) place(number int) *place {
	f, r := &w.s.Fleet, stream(w.s.Seed, "device", number)
	p := &place{number: number, rate: f.Least * math.Pow(f.Most/f.Least, r.Float64()), noon: 10 + 8*r.Float64()}
	own := math.Exp(f.Spread * r.NormFloat64())
	ways := map[string]float64{}
	for i := range w.options {
		d := w.options[i].domain
		if _, known := ways[d]; !known {
			ways[d] = math.Exp(f.Distance * r.NormFloat64())
		}
	}
	share := (float64(number) + 0.5) / float64(f.Devices)
	for i := range w.options {
		slow := own * ways[w.options[i].domain]
		for _, far := range f.Far {
			if far.Domain == w.options[i].domain && share < far.Share {
				slow *= far.Factor
			}
		}
		p.slowness = append(p.slowness, slow)
	}
	p.sleepy, p.bedtime = r.Float64() < f.Sleepy, 24*r.Float64()
	// Liars are spread over the fleet: the share of any run of devices is the whole's.
	p.liar = math.Floor(float64(number+1)*w.s.Liars.Share) > math.Floor(float64(number)*w.s.Liars.Share)
	return p
}

// awake reports whether a device is up at m; sleepy ones sleep for two thirds of the day,
// in stretches of two hours out of three.
func (p *place) awake(m moment) bool {
	if !p.sleepy {
		return true
	}
	hour := math.Mod(time.Duration(m).Hours()+p.bedtime, 3)
	return hour >= 2
}

// next draws the moment of a device's next request after m.
func (w *world) next(p *place, r *rand.Rand, m moment) moment {
	night := w.s.Fleet.Night
	peak := 2 / (1 + night) // of a day whose mean is 1
	for {
		m += moment(r.ExpFloat64() / (p.rate * peak) * float64(time.Hour))
		if m > w.end {
			return m
		}
		hour := time.Duration(m).Hours() - p.noon
		day := (night + (1-night)*(1+math.Cos(2*math.Pi*hour/24))/2)
		if r.Float64() < day && p.awake(m) {
			return m
		}
	}
}

func (w *world) index(name string) int {
	return slices.IndexFunc(w.s.Options, func(o Option) bool { return o.Name == name })
}

// changes turns what the scenario declares into turns.
func (w *world) changes() {
	for _, c := range w.s.Changes {
		i := w.index(c.Option)
		first := w.options[i]
		steps := 1
		if c.Over > 0 {
			steps = 24
		}
		for k := 1; k <= steps; k++ {
			when := at(c.At) + moment(float64(c.Over)*float64(k)/float64(steps))
			part := float64(k) / float64(steps)
			w.turns = append(w.turns, turn{when, func(w *world) {
				o := &w.options[i]
				if c.Slower > 0 {
					if steps > 1 {
						o.latency = first.latency * math.Pow(c.Slower, part)
					} else {
						o.latency = first.latency * c.Slower
					}
				}
				if c.Reliability > 0 {
					o.reliability = c.Reliability
				}
				if c.Dearer > 0 {
					o.money = first.money * c.Dearer
				}
			}, true})
		}
	}
}

// outages gives those that are declared and those that are drawn.
func (w *world) outages() []Outage {
	list := slices.Clone(w.s.Outages)
	draw := func(r *rand.Rand, week float64, median time.Duration, o Outage) {
		for when := 0.0; week > 0; {
			when += r.ExpFloat64() / week * 7 * 24
			if when > w.s.Days*24 {
				return
			}
			o.From = time.Duration(when * float64(time.Hour))
			o.For = time.Duration(float64(median) * math.Exp(0.8*r.NormFloat64()))
			o.Hang = r.Float64() < w.s.Storm.Hang
			list = append(list, o)
		}
	}
	var domains []string
	for i := range w.options {
		o := &w.options[i]
		draw(stream(w.s.Seed, "outage "+string(o.id), 0), w.s.Storm.Options, w.s.Storm.Option, Outage{Option: string(o.id)})
		if !slices.Contains(domains, o.domain) {
			domains = append(domains, o.domain)
			draw(stream(w.s.Seed, "domain "+o.domain, 0), w.s.Storm.Domains, w.s.Storm.Domain, Outage{Domain: o.domain})
		}
	}
	return list
}

// outage makes the turns of one outage.
func (w *world) outage(o Outage) {
	hang := 0
	if o.Hang {
		hang = 1
	}
	for i := range w.options {
		if string(w.options[i].id) != o.Option && (o.Domain == "" || w.options[i].domain != o.Domain) {
			continue
		}
		w.turns = append(w.turns,
			turn{at(o.From), func(w *world) { w.options[i].down++; w.options[i].hangs += hang }, false},
			turn{at(o.From + o.For), func(w *world) { w.options[i].down--; w.options[i].hangs -= hang }, false})
	}
}

// fate is what becomes of an attempt.
type fate struct {
	class chain.Class
	took  float64 // seconds; infinite for one that hangs
}

// Seconds to a refusal while an option is down.
const refusal = 0.15

// fate settles an attempt of a device's nth request on an option. It depends on the
// seed, the request and the option, not on who asks in which order: all policies meet
// the same luck.
func (w *world) fate(p *place, nth uint64, option int) fate {
	o := &w.options[option]
	h := mix(mix(mix(w.s.Seed^0x5eed)^uint64(p.number)<<32^nth) ^ uint64(option)<<48)
	luck, size, angle := unit(h), unit(mix(h+1)), unit(mix(h+2))
	noise := math.Sqrt(-2*math.Log(1-size)) * math.Cos(2*math.Pi*angle)
	slow := p.slowness[option]
	switch {
	case o.hangs > 0:
		return fate{chain.Timeout, math.Inf(1)}
	case o.down > 0:
		return fate{chain.Unreachable, refusal * math.Exp(0.3*noise)}
	case luck >= o.reliability:
		return fate{chain.Status, o.failure * slow * math.Exp(0.5*noise)}
	}
	return fate{chain.OK, o.latency * slow * math.Exp(o.spread*noise)}
}

// unit makes a number from 0 up to 1 of random bits.
func unit(x uint64) float64 { return float64(x>>11) / (1 << 53) }

func (p *place) id() chain.PeerID { return chain.PeerID(fmt.Sprintf("device-%04d", p.number)) }
