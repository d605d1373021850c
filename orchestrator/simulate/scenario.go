package simulate

import "time"

// Scenario is a world and what is done in it, as its file declares it. [Parse] makes
// one and fills in what is left open.
type Scenario struct {
	About     string        `yaml:"about" json:"about,omitempty"` // one line for people
	Seed      uint64        `yaml:"seed" json:"seed"`             // of everything that is drawn
	Days      float64       `yaml:"days" json:"days"`
	Fleet     Fleet         `yaml:"fleet" json:"fleet"`
	Weights   Weights       `yaml:"weights" json:"weights"`
	Profile   Profile       `yaml:"profile" json:"profile"`
	Rules     Rules         `yaml:"rules" json:"rules"`
	Limit     time.Duration `yaml:"limit" json:"limit"` // of one attempt, as the catalogue would declare it
	Options   []Option      `yaml:"options" json:"options"`
	Outages   []Outage      `yaml:"outages" json:"outages,omitempty"`
	Storm     Storm         `yaml:"storm" json:"storm"` // outages that are drawn
	Changes   []Change      `yaml:"changes" json:"changes,omitempty"`
	Ceilings  []Ceiling     `yaml:"ceilings" json:"ceilings,omitempty"`
	Liars     Liars         `yaml:"liars" json:"liars"`
	Baselines []string      `yaml:"baselines" json:"baselines,omitempty"` // to run beside the product; empty: all
}

// Fleet is the devices and what they ask for.
type Fleet struct {
	Devices  int     `yaml:"devices" json:"devices"`
	Least    float64 `yaml:"least" json:"least"`       // requests an hour of the least busy device, over the day
	Most     float64 `yaml:"most" json:"most"`         // and of the busiest; rates between are spread evenly by factors
	Night    float64 `yaml:"night" json:"night"`       // rate at night over that at noon, 0 to 1
	Spread   float64 `yaml:"spread" json:"spread"`     // of the devices' own slowness, standard deviation in log units
	Distance float64 `yaml:"distance" json:"distance"` // of the way from a device to a failure domain, in log units
	Sleepy   float64 `yaml:"sleepy" json:"sleepy"`     // share of devices that sleep two thirds of the day, hold no link and hear of new chains when they visit
	Far      []Far   `yaml:"far" json:"far,omitempty"`
}

// Far is a part of the fleet that is farther from a failure domain than the rest.
type Far struct {
	Domain string  `yaml:"domain" json:"domain"`
	Share  float64 `yaml:"share" json:"share"`   // of the devices, the first ones
	Factor float64 `yaml:"factor" json:"factor"` // on their latency
}

// Weights turn what happens into micro-dollars, as a workspace's do.
type Weights struct {
	Second    float64 `yaml:"second" json:"second"`
	Failure   float64 `yaml:"failure" json:"failure"`
	Quality   float64 `yaml:"quality" json:"quality"`
	Exhausted float64 `yaml:"exhausted" json:"exhausted"`
}

// Profile is the size of every request, in tokens.
type Profile struct {
	Input  int64 `yaml:"input" json:"input"`
	Output int64 `yaml:"output" json:"output"`
}

// Rules are those of the chain that a scenario may change.
type Rules struct {
	Sampling      float64 `yaml:"sampling" json:"sampling"`       // share of successes reported in detail
	Exploration   float64 `yaml:"exploration" json:"exploration"` // probes an hour and device
	NoExploration bool    `yaml:"no_exploration" json:"no_exploration,omitempty"`
	NoTrends      bool    `yaml:"no_trends" json:"no_trends,omitempty"` // the hub looks for none
	Reorder       float64 `yaml:"reorder" json:"reorder"`               // gain below which a device keeps the order, as a share
}

// Option is one way to do the work: what the catalogue declares of it, and the truth.
type Option struct {
	Name        string        `yaml:"name" json:"name"`
	Domain      string        `yaml:"domain" json:"domain"`           // failure domain; default: the name
	Input       float64       `yaml:"input" json:"input"`             // dollars a million tokens in
	Output      float64       `yaml:"output" json:"output"`           // and out
	Quality     float64       `yaml:"quality" json:"quality"`         // declared, and true
	Latency     time.Duration `yaml:"latency" json:"latency"`         // true median to the end of an answer
	Spread      float64       `yaml:"spread" json:"spread"`           // of the latency, in log units
	Reliability float64       `yaml:"reliability" json:"reliability"` // true share of successes, outages aside
	Failure     time.Duration `yaml:"failure" json:"failure"`         // true median to a failure
	Prior       Prior         `yaml:"prior" json:"prior"`             // what the catalogue believes of it
	Withheld    bool          `yaml:"withheld" json:"withheld,omitempty"`
	From        time.Duration `yaml:"from" json:"from,omitempty"` // it enters the catalogue then
}

// Prior is what is declared and may be wrong; a zero means the truth, but for outages.
type Prior struct {
	Latency     time.Duration `yaml:"latency" json:"latency"`
	Reliability float64       `yaml:"reliability" json:"reliability"`
}

// Outage is a time in which an option, or all of a failure domain, answers nobody.
type Outage struct {
	Option string        `yaml:"option" json:"option,omitempty"`
	Domain string        `yaml:"domain" json:"domain,omitempty"`
	From   time.Duration `yaml:"from" json:"from"`
	For    time.Duration `yaml:"for" json:"for"`
	Hang   bool          `yaml:"hang" json:"hang,omitempty"` // it accepts and says nothing, instead of refusing
}

// Storm draws outages, each option and domain by itself, with lengths spread
// log-normally (0.8 in log units) around their median.
type Storm struct {
	Options float64       `yaml:"options" json:"options"` // outages a week and option
	Domains float64       `yaml:"domains" json:"domains"` // outages a week and domain
	Option  time.Duration `yaml:"option" json:"option"`   // median length of an option's
	Domain  time.Duration `yaml:"domain" json:"domain"`   // median length of a domain's
	Hang    float64       `yaml:"hang" json:"hang"`       // share of them that hang
}

// Change is what becomes of an option, for all devices, at a moment. A zero leaves
// a value as it is.
type Change struct {
	At          time.Duration `yaml:"at" json:"at"`
	Option      string        `yaml:"option" json:"option"`
	Slower      float64       `yaml:"slower" json:"slower,omitempty"`           // factor on the first latency; 1 puts it back
	Reliability float64       `yaml:"reliability" json:"reliability,omitempty"` // from now on
	Dearer      float64       `yaml:"dearer" json:"dearer,omitempty"`           // factor on the first price, declared at once
	Over        time.Duration `yaml:"over" json:"over,omitempty"`               // the change of latency comes little by little
}

// Ceiling is a limit on use, as in a catalogue.
type Ceiling struct {
	Options     string  `yaml:"options" json:"options"` // pattern
	USDPerMonth float64 `yaml:"usd_per_month" json:"usd_per_month,omitempty"`
	CallsPerDay int64   `yaml:"calls_per_day" json:"calls_per_day,omitempty"`
}

// Kinds of liars.
const (
	Slow      = "slow"      // all latencies times ten
	Random    = "random"    // anything
	Favourite = "favourite" // one option is praised, all others are slandered
)

// Liars are devices whose reports are made up. Their requests are honest, and are not
// counted in the results.
type Liars struct {
	Share     float64       `yaml:"share" json:"share"`
	Kind      string        `yaml:"kind" json:"kind,omitempty"`
	Favourite string        `yaml:"favourite" json:"favourite,omitempty"`
	From      time.Duration `yaml:"from" json:"from,omitempty"`
}
