package main

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/sharing"
	"github.com/chordwheel/chordwheel/mesh/wire"
)

func write(t *testing.T, dir, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, "config.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestTheEnvironmentWinsOverTheFileAndTheFileOverTheDefaults(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "name: from-file\nedge: 127.0.0.1:1111\n")
	c := defaultDevice(0, "127.0.0.1")
	if err := load(&c, dir, []string{"CHORDWHEEL_NAME=from-env", "ORCH_API_KEY=secret", "UPSTREAM_TTFB_TIMEOUT=7s", "CHORDWHEEL_HOSTS=a.lan,b.lan"}); err != nil {
		t.Fatal(err)
	}
	if c.Name != "from-env" || c.Edge != "127.0.0.1:1111" || c.Admin != "127.0.0.1:7421" || c.Key.Reveal() != "secret" || c.FirstOutput != 7*time.Second || len(c.Hosts) != 2 {
		t.Errorf("got %+v", c)
	}
	if err := oneLine(c.wrong()); err != nil {
		t.Error(err)
	}
}

// The settings of the accountable edge have the names and the defaults that others rely
// on, and each is heeded.
func TestSettingsOfTheEdgeHaveTheirNamesAndDefaults(t *testing.T) {
	for name, s := range map[string]struct {
		of           func(*deviceConfig) any
		unset, given string
		want         string // of given
	}{
		"ORCH_API_KEY":                 {func(c *deviceConfig) any { return c.Key.Reveal() }, "", "k", "k"},
		"ORCH_API_KEY_NEXT":            {func(c *deviceConfig) any { return c.NextKey.Reveal() }, "", "k", "k"},
		"ORCH_ADMIN_TOKEN":             {func(c *deviceConfig) any { return c.AdminToken.Reveal() }, "", "k", "k"},
		"GATE_MODE":                    {func(c *deviceConfig) any { return c.GateMode }, "observe", "enforce", "enforce"},
		"REGISTRY_URL":                 {func(c *deviceConfig) any { return c.RegistryURL }, "", "https://a.example", "https://a.example"},
		"TRUST_URL":                    {func(c *deviceConfig) any { return c.TrustURL }, "", "https://a.example", "https://a.example"},
		"LEDGER_URL":                   {func(c *deviceConfig) any { return c.LedgerURL }, "", "https://a.example", "https://a.example"},
		"CHORDWHEEL_TLS_CA":            {func(c *deviceConfig) any { return c.TLSCA }, "", "ca.pem", "ca.pem"},
		"SEED_PATH":                    {func(c *deviceConfig) any { return c.Seed }, "", "seed.json", "seed.json"},
		"DEFAULT_MODEL_DID":            {func(c *deviceConfig) any { return c.DefaultModel }, "", "did:web:a.example", "did:web:a.example"},
		"SNAPSHOT_MAX_AGE":             {func(c *deviceConfig) any { return c.maxAge() }, "168h0m0s", "2h", "2h0m0s"},
		"CHORDWHEEL_SNAPSHOT_INTERVAL": {func(c *deviceConfig) any { return c.every() }, "0s", "30s", "30s"},
		"REFRESH_SKEW":                 {func(c *deviceConfig) any { return c.RefreshSkew }, "1m0s", "90s", "1m30s"},
		"SELECT_TIMEOUT":               {func(c *deviceConfig) any { return c.SelectWait }, "300ms", "1s", "1s"},
		"SPOOL_DIR":                    {func(c *deviceConfig) any { return c.SpoolDir }, "", "/spool", "/spool"},
		"SPOOL_ALERT":                  {func(c *deviceConfig) any { return c.SpoolAlert }, "1000", "7", "7"},
		"SPOOL_ALERT_AGE":              {func(c *deviceConfig) any { return c.SpoolAlertAge }, "15m0s", "1m", "1m0s"},
		"SPOOL_MAX":                    {func(c *deviceConfig) any { return c.SpoolMax }, "100000", "7", "7"},
		"RECEIPT_BACKPRESSURE":         {func(c *deviceConfig) any { return c.Backpressure }, "off", "on", "on"},
		"UPSTREAM_CONNECT_TIMEOUT":     {func(c *deviceConfig) any { return c.ConnectWait }, "5s", "7s", "7s"},
		"UPSTREAM_TTFB_TIMEOUT":        {func(c *deviceConfig) any { return c.FirstOutput }, "1m0s", "7s", "7s"},
		"UPSTREAM_TOTAL_TIMEOUT":       {func(c *deviceConfig) any { return c.Total }, "5m0s", "7s", "7s"},
		"EDGE_LIST_AGENTS":             {func(c *deviceConfig) any { return c.ListAgents }, "false", "true", "true"},
	} {
		for environ, want := range map[string]string{"": s.unset, name + "=" + s.given: s.want} {
			c := defaultDevice(0, "127.0.0.1")
			if err := load(&c, t.TempDir(), []string{environ}); err != nil || fmt.Sprint(s.of(&c)) != want {
				t.Errorf("%s with %q: %v, want %s; %v", name, environ, s.of(&c), want, err)
			}
		}
	}
	// Of a registry elsewhere.
	c := defaultDevice(0, "127.0.0.1")
	if err := load(&c, t.TempDir(), []string{"REGISTRY_URL=https://a.example"}); err != nil || c.maxAge() != time.Hour || c.every() != time.Minute {
		t.Errorf("%s, %s, %v", c.maxAge(), c.every(), err)
	}
}

func TestTheSharingPolicyIsRead(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, `
sharing:
  mode: always
  hours: ["22:00-07:00", "sat,sun"]
  mains: true
  jobs: 3
  scopes:
    workspace:work: {mode: off}
    workspace:lab: {hours: [], mains: false, metered: true, jobs: 2}
`)
	c := defaultDevice(0, "127.0.0.1")
	if err := load(&c, dir, []string{"CHORDWHEEL_SHARING=idle"}); err != nil {
		t.Fatal(err)
	}
	p, err := c.Sharing.policy()
	if err != nil {
		t.Fatal(err)
	}
	if p.Mode != sharing.Idle || len(p.Hours) != 2 || !p.Mains || p.Metered || p.Jobs != 3 {
		t.Errorf("for all: %+v", p.Rules)
	}
	if r := p.For("workspace:work"); r.Mode != sharing.Off || !r.Mains {
		t.Errorf("work: %+v", r)
	}
	if r := p.For("workspace:lab"); r.Mode != sharing.Idle || len(r.Hours) != 0 || r.Mains || !r.Metered || r.Jobs != 2 {
		t.Errorf("lab: %+v", r)
	}
	empty := sharingConfig{}
	if p, err := empty.policy(); err != nil || p.For("workspace:home").Mode != sharing.Always {
		t.Errorf("without a word a device shares: %+v, %v", p, err)
	}
}

func TestTheServiceTokenIsAnAliasOfTheKey(t *testing.T) {
	c := defaultDevice(0, "127.0.0.1")
	if err := load(&c, t.TempDir(), []string{"ORCH_SERVICE_TOKEN=x"}); err != nil {
		t.Fatal(err)
	}
	if err := oneLine(c.wrong()); err != nil || c.Key.Reveal() != "x" {
		t.Errorf("key %q, error %v", c.Key.Reveal(), err)
	}
}

// TestOneLineNamesEverythingThatIsWrong holds for files, environment and values.
func TestOneLineNamesEverythingThatIsWrong(t *testing.T) {
	for name, c := range map[string]struct {
		file    string
		environ []string
		want    []string
		never   string
	}{
		"a wrong kind":                 {file: "edge: 127.0.0.1:0\nmetered: 7\n", want: []string{"line 2, column 10: want true or false"}},
		"a wrong kind deep":            {file: "sharing: {jobs: many}\n", want: []string{"line 1, column 17: want a number"}},
		"unknown keys":                 {file: "nmae: x\nedge: 127.0.0.1:0\nlisen: []\n", want: []string{`"nmae" (line 1)`, `"lisen" (line 3)`, "known: name"}},
		"a wrong type":                 {file: "builtin: sometimes\n", want: []string{"line 1"}},
		"two documents":                {file: "name: a\n---\nname: b\n", want: []string{"more than one"}},
		"not YAML":                     {file: "name: [\n", want: []string{"line 1"}},
		"a list":                       {file: "- name\n", want: []string{"mapping"}},
		"wrong variables":              {environ: []string{"CHORDWHEEL_BUILTIN=perhaps", "UPSTREAM_TTFB_TIMEOUT=soon"}, want: []string{"CHORDWHEEL_BUILTIN", "UPSTREAM_TTFB_TIMEOUT"}, never: "perhaps"},
		"values":                       {file: "edge: nowhere\nlog: loud\nkeyring: pocket\n", want: []string{`edge "nowhere"`, `log "loud"`, `keyring "pocket"`}},
		"a peer without ID":            {file: "peers: [/ip4/192.0.2.7/tcp/7412]\n", want: []string{"peers:", "/p2p/12D3Koo"}},
		"no multiaddr":                 {file: "listen: [/ip4/127.0.0.1/tcp/0, 127.0.0.1:7411]\n", want: []string{`"127.0.0.1:7411"`, "/ip4/192.0.2.1/tcp/7411"}},
		"two keys":                     {environ: []string{"ORCH_API_KEY=first-secret", "ORCH_SERVICE_TOKEN=second-secret"}, want: []string{"ORCH_SERVICE_TOKEN"}, never: "secret"},
		"a next key alone":             {environ: []string{"ORCH_API_KEY_NEXT=second-secret"}, want: []string{"ORCH_API_KEY"}, never: "secret"},
		"an endless limit":             {environ: []string{"UPSTREAM_TOTAL_TIMEOUT=9999h"}, want: []string{"UPSTREAM_TOTAL_TIMEOUT"}},
		"a negative limit":             {environ: []string{"UPSTREAM_CONNECT_TIMEOUT=-1s"}, want: []string{"UPSTREAM_CONNECT_TIMEOUT"}},
		"sharing":                      {file: "sharing: {mode: sometimes, hours: [noon], jobs: -1}\n", want: []string{`mode "sometimes"`, `hours "noon"`, "jobs must be"}},
		"unknown sharing":              {file: "sharing:\n  hour: [\"09:00-10:00\"]\n", want: []string{"line 2", "hour"}},
		"services by plain http":       {file: "registry_url: http://agents.example\ntrust_url: ftp://x\n", environ: []string{"LEDGER_URL=http://ledger.example"}, want: []string{"REGISTRY_URL", "https://agents.example", "TRUST_URL", "LEDGER_URL"}},
		"a gate mode":                  {environ: []string{"GATE_MODE=enforced"}, want: []string{`GATE_MODE: gate mode "enforced"`, "observe or enforce"}},
		"who is believed, in a LAN":    {environ: []string{"REGISTRY_URL=http://192.168.1.7", "TRUST_URL=http://nas.local", "LEDGER_URL=http://192.168.1.7"}, want: []string{"REGISTRY_URL", "https://192.168.1.7", "TRUST_URL", "this machine alone"}, never: "LEDGER_URL"},
		"an issuer without its server": {file: "trust_issuer: https://trust.example\n", want: []string{"CHORDWHEEL_TRUST_ISSUER", "TRUST_URL"}},
		"ages that contradict":         {environ: []string{"REGISTRY_URL=https://agents.example", "SNAPSHOT_MAX_AGE=30s"}, want: []string{"SNAPSHOT_MAX_AGE (30s)", "CHORDWHEEL_SNAPSHOT_INTERVAL (1m0s)"}},
		"an age below visits":          {environ: []string{"SNAPSHOT_MAX_AGE=30s"}, want: []string{"SNAPSHOT_MAX_AGE (30s)", "set CHORDWHEEL_SNAPSHOT_INTERVAL"}},
		"an invitation that is none":   {environ: []string{"CHORDWHEEL_INVITE=a-secret", "GATE_MODE=loud"}, want: []string{"CHORDWHEEL_INVITE: ", "chordwheel1:", "GATE_MODE"}, never: "secret"},
		"a skew":                       {environ: []string{"REFRESH_SKEW=2h"}, want: []string{"REFRESH_SKEW"}},
		"one key for all":              {environ: []string{"ORCH_API_KEY=a-secret", "ORCH_ADMIN_TOKEN=a-secret"}, want: []string{"ORCH_ADMIN_TOKEN"}, never: "a-secret"},
		"a key that no header carries": {environ: []string{"ORCH_API_KEY=a-secret\n", "ORCH_ADMIN_TOKEN=b-\x7fsecret"}, want: []string{"ORCH_API_KEY has", "ORCH_ADMIN_TOKEN has"}, never: "secret"},
		"a password in an address":     {environ: []string{"LEDGER_URL=https://user:a-secret@ledger.example", "TRUST_URL=https://trust.example?token=a-secret"}, want: []string{"LEDGER_URL: want https://", "without user", "TRUST_URL: want"}, never: "secret"},
		"a port that is none":          {environ: []string{"TRUST_URL=http://127.0.0.1:99999"}, want: []string{"TRUST_URL", "99999"}},
		"no file of authorities":       {file: "tls_ca: /nowhere/ca.pem\n", want: []string{"CHORDWHEEL_TLS_CA", "/nowhere/ca.pem"}},
		"file, environment and values at once": {file: "nmae: x\nmetered: 7\nexplore: 8\nedge: nowhere\n", environ: []string{"SPOOL_MAX=many", "GATE_MODE=loud"},
			want: []string{`"nmae" (line 1)`, "line 2, column 10: want true or false", "line 3, column 10: want true or false", "SPOOL_MAX must be", `edge "nowhere"`, `GATE_MODE: gate mode "loud"`}, never: "many"},
		"keys that are empty": {environ: []string{"ORCH_API_KEY=", "ORCH_ADMIN_TOKEN=", "GATE_MODE=loud"}, want: []string{"ORCH_API_KEY is set to nothing", "ORCH_ADMIN_TOKEN is set to nothing", "GATE_MODE"}},
		"a duration":          {file: "name: a\nspool_alert_age: soon\n", want: []string{"spool_alert_age: line 2, column 18: want a duration, such as 60s"}},
		"a name of two lines": {file: "name: \"a\\nb\"\nlog: loud\n", want: []string{"name must be one line", `log "loud"`}},
		"more than one value deep": {file: "pipeline: {enabled: 3, hedge_after: soon, max_parallel_subtasks: 99, bogus: 1}\nsharing: {jobs: many}\nadapters:\n  - name: a b\n",
			want: []string{"pipeline.enabled: line 1, column 21: want true or false", "pipeline.hedge_after: line 1, column 37: want a duration", "max_parallel_subtasks is 99", `"bogus"`, "sharing.jobs: line 2, column 17: want a number", `"a b"`}},
		"aliases that unfold for ever": {file: "adapters: &a [x,x,x,x,x,x,x,x]\nhosts: &b [*a,*a,*a,*a,*a,*a,*a,*a]\norigins: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n" +
			"peers: &d [*c,*c,*c,*c,*c,*c,*c,*c]\nlisten: &e [*d,*d,*d,*d,*d,*d,*d,*d]\nname: &f [*e,*e,*e,*e,*e,*e,*e,*e]\nedge: [*f,*f,*f,*f,*f,*f,*f,*f]\n",
			environ: []string{"GATE_MODE=loud"}, want: []string{"line 2, column 12: an alias, which is not allowed", "GATE_MODE"}},
		"an alias of itself": {file: "adapters: &a\n  b: *a\n", want: []string{"line 2, column 6: an alias"}},
		"a broken adapters":  {file: "adapters: 7\n", want: []string{"adapters"}},
		"two services": {file: "adapters:\n  - name: a b\n    adapter: nope\n  - endpoint: ftp://x\n", environ: []string{"GATE_MODE=loud"},
			want: []string{`"a b"`, `required field "models"`, "config.yaml:4:", `required field "adapter"`, "GATE_MODE"}},
		"names of listeners": {file: "hosts: [box.lan, http://x, a b]\n", environ: []string{"CHORDWHEEL_ORIGINS=*,https://a.example/b", "GATE_MODE=loud"},
			want: []string{`CHORDWHEEL_HOSTS: "http://x"`, `CHORDWHEEL_HOSTS: "a b"`, `CHORDWHEEL_ORIGINS: "*"`, `CHORDWHEEL_ORIGINS: "https://a.example/b"`, "GATE_MODE"}},
		"for everybody, without a key": {file: "edge: :7420\nlog: loud\n", want: []string{"no key", "ORCH_API_KEY", `log "loud"`}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, dir, c.file)
			config := defaultDevice(0, "127.0.0.1")
			err := load(&config, dir, c.environ)
			if err == nil {
				err = (&device{options: deviceOptions{dir: dir, config: config}}).settings()
			}
			if err == nil {
				t.Fatal("it was taken")
			}
			text := err.Error()
			if strings.Contains(text, "\n") {
				t.Errorf("more than one line: %q", text)
			}
			for _, want := range c.want {
				if !strings.Contains(text, want) {
					t.Errorf("%q does not name %q", text, want)
				}
			}
			if c.never != "" && strings.Contains(text, c.never) {
				t.Errorf("%q repeats a value that may be a secret", text)
			}
		})
	}
}

// A file in which all is commented out says nothing.
func TestAFileOfCommentsLeavesTheDefaults(t *testing.T) {
	for _, text := range []string{"# name: a\n# log: debug\n", "---\n# name: a\n", "---\n", "null\n", "~\n", "{}\n"} {
		dir := t.TempDir()
		write(t, dir, text)
		c := defaultDevice(0, "127.0.0.1")
		if err := load(&c, dir, nil); err != nil {
			t.Errorf("%q: %v", text, err)
		}
		if err := oneLine(c.wrong()); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestDevicesOfUpHavePortsOfTheirOwn(t *testing.T) {
	c := defaultDevice(2, "0.0.0.0")
	if c.Edge != "127.0.0.1:7440" || c.Admin != "127.0.0.1:7441" || c.Listen[0] != "/ip4/0.0.0.0/tcp/7432" {
		t.Errorf("device c: %+v", c)
	}
	for address, want := range map[string]string{"127.0.0.1:9000": "127.0.0.1:9020", "[::1]:9000": "[::1]:9020", "127.0.0.1:0": "127.0.0.1:0", "nowhere": "nowhere"} {
		if got := apart(address, 2, []string{"CHORDWHEEL_EDGE=" + address}, "CHORDWHEEL_EDGE"); got != want {
			t.Errorf("device c, told %s like all, is on %s, want %s", address, got, want)
		}
		if got := apart(address, 2, []string{"CHORDWHEEL_EDGE=127.0.0.1:1"}, "CHORDWHEEL_EDGE"); got != address {
			t.Errorf("device c, whose own file says %s, is on %s", address, got)
		}
	}
	for i, want := range map[int]string{0: "a", 25: "z", 26: "aa", 27: "ab", 51: "az", 52: "ba"} {
		if got := deviceName(i); got != want {
			t.Errorf("device %d is called %s, want %s", i, got, want)
		}
	}
}

// FuzzConfig: any file is read or refused in one line, and never panics.
func FuzzConfig(f *testing.F) {
	for _, seed := range []string{"name: a\n", "adapters: []\n", "- x", "a: &a [*a]", "name: a\n---\n", "\t", "edge: {a: b}", "listen:\n !0 #00"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c := defaultDevice(0, "127.0.0.1")
		if wrong := strings.Join(decodeConfig(b, &c), "; "); strings.Contains(wrong, "\n") {
			t.Errorf("more than one line: %q", wrong)
		}
	})
}

func TestDamagedFilesNameTheirRemedy(t *testing.T) {
	o := deviceOptions{dir: filepath.Join(t.TempDir(), "a"), config: defaultDevice(0, "127.0.0.1"), ownID: true, makeKey: true, log: slog.New(slog.DiscardHandler), say: io.Discard}
	open := func() error {
		d, err := openDevice(o)
		if err == nil {
			err = d.close()
		}
		return err
	}
	if err := open(); err != nil {
		t.Fatal(err)
	}
	for names, remedy := range map[string]string{"edge.key": "remove the file", "joined.cbor joined.cbor.bak": "join again"} {
		for _, name := range strings.Fields(names) {
			if err := os.WriteFile(filepath.Join(o.dir, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := open(); err == nil || !strings.Contains(err.Error(), remedy) || strings.Contains(err.Error(), "standard input") {
			t.Errorf("%s: %v: want %q", names, err, remedy)
		}
		for _, name := range strings.Fields(names) {
			if err := os.Remove(filepath.Join(o.dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestManyModelsOfThisMachine: however many a machine's servers have, the device
// can still say what it offers.
func TestManyModelsOfThisMachine(t *testing.T) {
	d := &device{options: deviceOptions{dir: t.TempDir(), config: defaultDevice(0, "127.0.0.1")}}
	for i := range 300 {
		o := builtinOption()
		o.Option.ID = chain.OptionID(fmt.Sprintf("local/found/m%d", i))
		d.options.locals = append(d.options.locals, o)
	}
	locals, err := d.services()
	if err != nil || len(locals) != wire.MaxLocals || locals[len(locals)-1].Option.ID != builtinOption().Option.ID {
		t.Errorf("%d options, %v: want %d, the builtin among them", len(locals), err, wire.MaxLocals)
	}
}

func TestAHubsSettingsAreNamedAtOnce(t *testing.T) {
	c := defaultHub("127.0.0.1")
	err := load(&c, t.TempDir(), []string{"CHORDWHEEL_HOSTS=a/b", "CHORDWHEEL_ORIGINS=*", "CHORDWHEEL_LOG=loud", "CHORDWHEEL_WEB=nowhere", "CHORDWHEEL_LEDGER_SENDERS=did:web:a.example,*,did:key:z6Mk"})
	if err == nil {
		err = c.validate()
	}
	for _, want := range []string{"CHORDWHEEL_HOSTS", "CHORDWHEEL_ORIGINS", `log "loud"`, `web "nowhere"`, `ledger_senders: "did:web:a.example"`, `ledger_senders: "did:key:z6Mk"`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %q", err, want)
		}
	}
}

// `up` names what is wrong with its hub and all its devices before any of them starts.
func TestUpNamesTheSettingsOfAllAtOnce(t *testing.T) {
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "b"), 0o700); err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(dir, "b"), "nmae: x\n")
	u := &upRun{app: &app{environ: []string{"CHORDWHEEL_WEB=nowhere", "GATE_MODE=loud"}}, dir: dir, host: "127.0.0.1"}
	err := u.settings(3)
	if err == nil {
		t.Fatal("they were taken")
	}
	for want, times := range map[string]int{"the hub: web": 1, "device a: GATE_MODE": 1, "device b: ": 1, `"nmae" (line 1)`: 1, "device c": 0, wrongSettings: 1, "\n": 0} {
		if got := strings.Count(err.Error(), want); got != times {
			t.Errorf("%d times %q in %v", got, want, err)
		}
	}
}
