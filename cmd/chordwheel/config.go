package main

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/caarlos0/env/v11"
	"github.com/goccy/go-yaml/ast"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/edge"
	"github.com/chordwheel/chordwheel/daemon/gate"
	"github.com/chordwheel/chordwheel/did"
	"github.com/chordwheel/chordwheel/mesh"
	"github.com/chordwheel/chordwheel/mesh/member"
	"github.com/chordwheel/chordwheel/orchestrator/catalog"
)

// Ports of the product. In `up` device i from 0 has the device ports plus 10·i.
const (
	edgePort      = 7420
	adminPort     = 7421
	hubMeshPort   = 7411
	devMeshPort   = 7412
	dashboardPort = 7400
	authorityPort = 7443

	authorityPortText = "7443"
)

// maxConfig bounds a config.yaml; real ones are below a kilobyte.
const maxConfig = 1 << 20

// deviceConfig is a device's config.yaml, with what the environment and flags
// put over it. docs/configuration.md describes each field.
type deviceConfig struct {
	Name       string        `yaml:"name" env:"CHORDWHEEL_NAME"`
	Edge       string        `yaml:"edge" env:"CHORDWHEEL_EDGE"`
	Admin      string        `yaml:"admin" env:"CHORDWHEEL_ADMIN"`
	Listen     []string      `yaml:"listen" env:"CHORDWHEEL_LISTEN"`
	Peers      []string      `yaml:"peers" env:"CHORDWHEEL_PEERS"`
	MDNS       bool          `yaml:"mdns" env:"CHORDWHEEL_MDNS"`
	Hosts      []string      `yaml:"hosts" env:"CHORDWHEEL_HOSTS"`
	Origins    []string      `yaml:"origins" env:"CHORDWHEEL_ORIGINS"`
	Log        string        `yaml:"log" env:"CHORDWHEEL_LOG"`
	Builtin    bool          `yaml:"builtin" env:"CHORDWHEEL_BUILTIN"`
	KeyRing    string        `yaml:"keyring" env:"CHORDWHEEL_KEYRING"`
	Metered    bool          `yaml:"metered" env:"CHORDWHEEL_METERED"`
	Explore    bool          `yaml:"explore" env:"CHORDWHEEL_EXPLORE"`
	Adapters   ast.Node      `yaml:"adapters"`
	Sharing    sharingConfig `yaml:"sharing"`
	DeviceID   string        `yaml:"device_id_file" env:"CHORDWHEEL_DEVICE_ID_FILE"`
	ListAgents bool          `yaml:"list_agents" env:"EDGE_LIST_AGENTS"`
	Seed       string        `yaml:"seed" env:"SEED_PATH"`

	Pipeline pipelineConfig `yaml:"pipeline"`

	DefaultModel string        `yaml:"default_model_did" env:"DEFAULT_MODEL_DID"`
	SelectWait   time.Duration `yaml:"select_timeout" env:"SELECT_TIMEOUT"`

	SpoolDir      string        `yaml:"spool_dir" env:"SPOOL_DIR"` // default: the data directory
	SpoolAlert    int64         `yaml:"spool_alert" env:"SPOOL_ALERT"`
	SpoolAlertAge time.Duration `yaml:"spool_alert_age" env:"SPOOL_ALERT_AGE"`
	SpoolMax      int64         `yaml:"spool_max" env:"SPOOL_MAX"`
	Backpressure  string        `yaml:"receipt_backpressure" env:"RECEIPT_BACKPRESSURE"`
	LedgerURL     string        `yaml:"ledger_url" env:"LEDGER_URL"` // default: the hub's
	TLSCA         string        `yaml:"tls_ca" env:"CHORDWHEEL_TLS_CA"`

	RegistryURL   string        `yaml:"registry_url" env:"REGISTRY_URL"`                      // default: the hub's
	TrustURL      string        `yaml:"trust_url" env:"TRUST_URL"`                            // default: the hub's
	TrustIssuer   string        `yaml:"trust_issuer" env:"CHORDWHEEL_TRUST_ISSUER"`           // iss of its tokens; "": any that its keys sign
	GateMode      string        `yaml:"gate_mode" env:"GATE_MODE"`                            // observe or enforce
	SnapshotAge   time.Duration `yaml:"snapshot_max_age" env:"SNAPSHOT_MAX_AGE"`              // 0: see maxAge
	SnapshotEvery time.Duration `yaml:"snapshot_interval" env:"CHORDWHEEL_SNAPSHOT_INTERVAL"` // 0: see every
	RefreshSkew   time.Duration `yaml:"refresh_skew" env:"REFRESH_SKEW"`

	Key         chain.Secret  `yaml:"-" env:"ORCH_API_KEY"`
	ServiceKey  chain.Secret  `yaml:"-" env:"ORCH_SERVICE_TOKEN"` // an alias of Key
	NextKey     chain.Secret  `yaml:"-" env:"ORCH_API_KEY_NEXT"`
	AdminToken  chain.Secret  `yaml:"-" env:"ORCH_ADMIN_TOKEN"`
	Invite      chain.Secret  `yaml:"-" env:"CHORDWHEEL_INVITE"`
	ConnectWait time.Duration `yaml:"-" env:"UPSTREAM_CONNECT_TIMEOUT"`
	FirstOutput time.Duration `yaml:"-" env:"UPSTREAM_TTFB_TIMEOUT"`
	Total       time.Duration `yaml:"-" env:"UPSTREAM_TOTAL_TIMEOUT"`
}

// hubConfig is the orchestrator's config.yaml.
type hubConfig struct {
	Name    string   `yaml:"name" env:"CHORDWHEEL_NAME"`
	Web     string   `yaml:"web" env:"CHORDWHEEL_WEB"`
	Listen  []string `yaml:"listen" env:"CHORDWHEEL_LISTEN"`
	Catalog string   `yaml:"catalog" env:"CHORDWHEEL_CATALOG"`
	Hosts   []string `yaml:"hosts" env:"CHORDWHEEL_HOSTS"`
	Origins []string `yaml:"origins" env:"CHORDWHEEL_ORIGINS"`
	Log     string   `yaml:"log" env:"CHORDWHEEL_LOG"`

	Authority    string `yaml:"authority" env:"CHORDWHEEL_AUTHORITY"`
	AuthorityURL string `yaml:"authority_url" env:"CHORDWHEEL_AUTHORITY_URL"` // what devices are told; default: worked out

	LedgerSenders []string     `yaml:"ledger_senders" env:"CHORDWHEEL_LEDGER_SENDERS"` // DIDs beside those of devices and agents; "*": anybody
	LedgerToken   chain.Secret `yaml:"-" env:"CHORDWHEEL_LEDGER_TOKEN"`                // lets auditors read receipts
}

// defaultDevice is what holds for device i of `up`, and with i = 0 for
// `daemon`.
func defaultDevice(i int, host string) deviceConfig {
	return deviceConfig{
		Edge: fmt.Sprintf("127.0.0.1:%d", edgePort+10*i), Admin: fmt.Sprintf("127.0.0.1:%d", adminPort+10*i),
		Listen: meshAddresses(host, devMeshPort+10*i), MDNS: true, Log: "info", Builtin: true, KeyRing: "file", Explore: true,
		SelectWait: 300 * time.Millisecond, ConnectWait: 5 * time.Second, FirstOutput: time.Minute, Total: 5 * time.Minute,
		Pipeline:   defaultPipeline(),
		SpoolAlert: 1000, SpoolAlertAge: 15 * time.Minute, SpoolMax: 100000, Backpressure: "off",
		GateMode: string(gate.Observe), RefreshSkew: time.Minute,
	}
}

func defaultHub(host string) hubConfig {
	return hubConfig{Web: fmt.Sprintf("127.0.0.1:%d", dashboardPort), Authority: fmt.Sprintf("%s:%d", host, authorityPort), Listen: meshAddresses(host, hubMeshPort), Log: "info"}
}

func meshAddresses(host string, port int) []string {
	return []string{fmt.Sprintf("/ip4/%s/tcp/%d", host, port), fmt.Sprintf("/ip4/%s/udp/%d/quic-v1", host, port)}
}

// load lays config.yaml of dir over c, which holds the defaults, and the
// environment over that. Its error is one line that names everything that is wrong:
// in the file, in the environment and, if something is, in the values too.
func load[C deviceConfig | hubConfig](c *C, dir string, environ []string) error {
	file := filepath.Join(dir, "config.yaml")
	b, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		b = nil
	} else if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	if len(b) > maxConfig {
		return fmt.Errorf("%s: %d bytes, at most %d", file, len(b), maxConfig)
	}
	var wrong []string
	for _, w := range decodeConfig(b, c) {
		wrong = append(wrong, file+": "+w)
	}
	if err := env.ParseWithOptions(c, env.Options{Environment: env.ToMap(environ), FuncMap: map[reflect.Type]env.ParserFunc{
		reflect.TypeFor[chain.Secret](): func(v string) (any, error) { return chain.Secret(v), nil },
	}}); err != nil {
		wrong = append(wrong, plainEnvError(err, reflect.TypeFor[C]())...)
	}
	d, ofDevice := any(c).(*deviceConfig)
	if ofDevice {
		wrong = append(wrong, emptyKeys(environ)...)
	}
	if len(wrong) == 0 {
		return nil // flags may still put something over it: validate comes after them
	}
	wrong = append(wrong, any(c).(interface{ wrong() []string }).wrong()...)
	if ofDevice && d.Adapters != nil {
		if _, err := catalog.Services(file, d.Adapters); err != nil {
			wrong = append(wrong, err.Error())
		}
	}
	return oneLine(wrong)
}

// emptyKeys names the keys of the edge and of its owner that are set to nothing: whoever set one
// meant to have it, and would be served without.
func emptyKeys(environ []string) (wrong []string) {
	for _, name := range []string{"ORCH_API_KEY", "ORCH_SERVICE_TOKEN", "ORCH_API_KEY_NEXT", "ORCH_ADMIN_TOKEN"} {
		if slices.Contains(environ, name+"=") {
			wrong = append(wrong, name+" is set to nothing: give it a value, or unset it")
		}
	}
	return wrong
}

// plainEnvError names every variable that could not be read into a field of t,
// without its value.
func plainEnvError(err error, t reflect.Type) (names []string) {
	var all env.AggregateError
	if !errors.As(err, &all) {
		return []string{"environment: " + err.Error()}
	}
	for _, e := range all.Errors {
		var p env.ParseError
		if errors.As(e, &p) {
			name := p.Name // the field's, which nobody but us has heard of
			if f, ok := t.FieldByName(name); ok {
				name = f.Tag.Get("env")
			}
			names = append(names, name+" must be "+kindWanted(p.Type))
			continue
		}
		names = append(names, e.Error())
	}
	return names
}

// canBeSent reports whether a key arrives in a header as it is. A line break behind it, as
// files have one, would shut everybody out.
func canBeSent(key string) bool {
	return key == strings.TrimSpace(key) && strings.IndexFunc(key, unicode.IsControl) < 0
}

// wrong checks what the types cannot, and names everything that is wrong.
func (c *deviceConfig) wrong() (wrong []string) {
	wrong = append(wrong, wrongAddress("edge", c.Edge)...)
	wrong = append(wrong, wrongAddress("admin", c.Admin)...)
	wrong = append(wrong, wrongListen(c.Listen)...)
	if err := mesh.CheckPeers(c.Peers); err != nil {
		wrong = append(wrong, "peers: "+err.Error())
	}
	wrong = append(wrong, edge.CheckNames(c.Hosts, c.Origins)...)
	wrong = append(wrong, wrongLevel(c.Log)...)
	if c.KeyRing != "file" && c.KeyRing != "os" {
		wrong = append(wrong, fmt.Sprintf("keyring %q must be file or os", c.KeyRing))
	}
	wrong = append(wrong, wrongName(c.Name)...)
	if _, err := c.Sharing.policy(); err != nil {
		wrong = append(wrong, err.Error())
	}
	if _, err := c.Pipeline.settings(); err != nil {
		wrong = append(wrong, err.Error())
	}
	if c.Invite != "" {
		if _, err := member.ParseInvitation(strings.TrimSpace(c.Invite.Reveal())); err != nil {
			wrong = append(wrong, "CHORDWHEEL_INVITE: "+err.Error())
		}
	}
	if c.DefaultModel != "" && !chain.IsDID(c.DefaultModel) {
		wrong = append(wrong, "DEFAULT_MODEL_DID must be the DID of an agent, such as did:key:z6Mk…")
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"SELECT_TIMEOUT", c.SelectWait}, {"UPSTREAM_CONNECT_TIMEOUT", c.ConnectWait}, {"UPSTREAM_TTFB_TIMEOUT", c.FirstOutput}, {"UPSTREAM_TOTAL_TIMEOUT", c.Total}} {
		if d.value <= 0 || d.value > 24*time.Hour {
			wrong = append(wrong, d.name+" must be a duration above 0 and at most 24h, such as 60s")
		}
	}
	wrong = append(wrong, c.wrongKeys()...)
	wrong = append(wrong, c.wrongReceipts()...)
	return append(wrong, c.wrongServices()...)
}

// wrongKeys checks the keys of applications and of the owner. ORCH_SERVICE_TOKEN becomes the
// edge's key where it has no other.
func (c *deviceConfig) wrongKeys() (wrong []string) {
	if c.Key != "" && c.ServiceKey != "" && c.Key != c.ServiceKey {
		wrong = append(wrong, "ORCH_API_KEY and ORCH_SERVICE_TOKEN differ; set one of them")
	}
	if c.Key == "" {
		c.Key = c.ServiceKey
	}
	if c.Key == "" && c.NextKey != "" {
		wrong = append(wrong, "ORCH_API_KEY_NEXT is set without ORCH_API_KEY")
	}
	if c.AdminToken != "" && (c.AdminToken == c.Key || c.AdminToken == c.NextKey) {
		wrong = append(wrong, "ORCH_ADMIN_TOKEN is the same as ORCH_API_KEY; what applications have must not be the owner's")
	}
	for _, k := range []struct {
		name  string
		value chain.Secret
	}{{"ORCH_API_KEY", c.Key}, {"ORCH_API_KEY_NEXT", c.NextKey}, {"ORCH_ADMIN_TOKEN", c.AdminToken}} {
		if !canBeSent(k.value.Reveal()) {
			wrong = append(wrong, k.name+" has blanks around it or control characters in it, which no header can carry")
		}
	}
	return wrong
}

// wrongReceipts checks what says where receipts wait, and who takes them.
func (c *deviceConfig) wrongReceipts() (wrong []string) {
	if c.SpoolAlert < 1 || c.SpoolMax < 1 {
		wrong = append(wrong, "SPOOL_ALERT and SPOOL_MAX must be 1 or more")
	}
	if c.SpoolAlertAge < time.Second {
		wrong = append(wrong, "SPOOL_ALERT_AGE must be a duration of at least 1s, such as 15m")
	}
	if c.Backpressure != "on" && c.Backpressure != "off" {
		wrong = append(wrong, fmt.Sprintf("RECEIPT_BACKPRESSURE %q must be on or off", chain.Clip(c.Backpressure)))
	}
	return wrong
}

func (c *hubConfig) validate() error { return oneLine(c.wrong()) }

func (c *hubConfig) wrong() []string {
	wrong := append(wrongAddress("web", c.Web), wrongAddress("authority", c.Authority)...)
	if u, err := url.Parse(c.AuthorityURL); c.AuthorityURL != "" && (err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "") {
		wrong = append(wrong, fmt.Sprintf("authority_url %q must be https://HOST:PORT", chain.Clip(c.AuthorityURL)))
	}
	for _, name := range c.LedgerSenders {
		if name != anySender && did.Check(name) != nil {
			wrong = append(wrong, fmt.Sprintf("ledger_senders: %q must be did:key:…, did:webvh:… or %q", chain.Clip(name), anySender))
		}
	}
	wrong = append(wrong, wrongListen(c.Listen)...)
	wrong = append(wrong, edge.CheckNames(c.Hosts, c.Origins)...)
	wrong = append(wrong, wrongName(c.Name)...)
	return append(wrong, wrongLevel(c.Log)...)
}

// wrongSettings begins the one line that names what is wrong.
const wrongSettings = "configuration: "

func oneLine(wrong []string) error {
	if len(wrong) == 0 {
		return nil
	}
	return errors.New(wrongSettings + strings.ReplaceAll(strings.Join(wrong, "; "), "\n", "; "))
}

func wrongAddress(name, address string) []string {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return []string{fmt.Sprintf("%s %q must be HOST:PORT, such as 127.0.0.1:0", name, address)}
	}
	return nil
}

// isPublic reports whether others than this machine reach a listener at address, as far
// as that can be said without asking for a name.
func isPublic(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err == nil && (host == "" || ip != nil && !ip.IsLoopback())
}

func wrongListen(addresses []string) []string {
	if err := mesh.CheckAddresses(addresses); err != nil {
		return []string{"listen: " + err.Error()}
	}
	return nil
}

// wrongName checks the name of a node, which others see in their terminals and logs.
func wrongName(name string) []string {
	if len(name) > 64 {
		return []string{"name is over 64 bytes"}
	}
	if !utf8.ValidString(name) || strings.IndexFunc(name, unicode.IsControl) >= 0 {
		return []string{"name must be one line of UTF-8"}
	}
	return nil
}

func wrongLevel(level string) []string {
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, level) {
		return []string{fmt.Sprintf("log %q must be debug, info, warn or error", level)}
	}
	return nil
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

// deviceIDFile is where the device ID lives that other tools may share: the
// configured file, else the user's configuration directory.
func (c *deviceConfig) deviceIDFile() (string, error) {
	if c.DeviceID != "" {
		return c.DeviceID, nil
	}
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("find the user's configuration directory: %w; set CHORDWHEEL_DEVICE_ID_FILE", err)
	}
	return filepath.Join(dir, "chordwheel", "device-id"), nil
}
