package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chordwheel/chordwheel/daemon/adapter/providertest"
)

// patience bounds every wait of these tests. It is no figure of the product.
const patience = time.Minute

// process is a running `chordwheel` whose ready line was read.
type process struct {
	t     *testing.T
	cmd   *exec.Cmd
	ready readyLine
	out   *logBuffer // what came behind the ready line
	log   *logBuffer
	done  chan error
}

type readyLine struct {
	Hub     hubReady      `json:"hub"`
	Device  deviceReady   `json:"device"`
	Devices []deviceReady `json:"devices"`
}

// logBuffer collects what a process says.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// choosing is held while an `up` starts. It looks for a free port of the mesh and opens
// it a little later: another that starts just then may find the same one free, which is
// an error.
var choosing sync.Mutex

// alone lets no other `up` start until what it gives is called, if that is what args start.
func alone(args []string) func() {
	if !slices.Contains(args, "up") {
		return func() {}
	}
	choosing.Lock()
	return choosing.Unlock
}

// program makes a command that runs chordwheel in a world of its own.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "HOME="+t.TempDir(), "XDG_DATA_HOME=", "XDG_CONFIG_HOME=", "CHORDWHEEL_DIR=", "QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING=true")
	return cmd
}

// start runs a node and waits for its ready line.
func start(t *testing.T, args ...string) *process {
	t.Helper()
	return startCommand(t, program(t, append(args, "--json")...))
}

// startCommand is start for a command that was made already.
func startCommand(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	args := cmd.Args[1:]
	defer alone(args)()
	p := &process{t: t, cmd: cmd, out: &logBuffer{}, log: &logBuffer{}, done: make(chan error, 1)}
	p.cmd.Stderr = p.log
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 1)
	go func() {
		in := bufio.NewReader(out)
		line, _ := in.ReadString('\n')
		lines <- line
		io.Copy(p.out, in)
		p.done <- p.cmd.Wait()
	}()
	t.Cleanup(func() {
		if p.cmd.ProcessState == nil {
			p.stop()
		}
		if t.Failed() {
			t.Logf("log of %v:\n%s", args, p.log)
		}
	})
	select {
	case line := <-lines:
		if err := json.Unmarshal([]byte(line), &p.ready); err != nil {
			t.Fatalf("the ready line of %v is %q: %v\n%s", args, line, err, p.log)
		}
	case <-time.After(patience):
		t.Fatalf("%v is not ready:\n%s", args, p.log)
	}
	return p
}

// stop ends the process in order and wants it to end well.
func (p *process) stop() {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return
	}
	select {
	case err := <-p.done:
		if err != nil {
			p.t.Errorf("the process ended with %v:\n%s", err, p.log)
		}
	case <-time.After(patience):
		p.t.Error("the process does not end after SIGTERM")
		p.kill()
	}
}

// kill ends the process as a crash would.
func (p *process) kill() {
	p.cmd.Process.Kill()
	<-p.done
}

// command runs one command to its end.
func command(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return commandWithin(t, patience, args...)
}

func commandWithin(t *testing.T, limit time.Duration, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	c := program(t, args...)
	cmd := exec.CommandContext(ctx, c.Path, c.Args[1:]...)
	cmd.Env = c.Env
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if _, exited := err.(*exec.ExitError); err != nil && !exited {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// good is command for commands that must succeed.
func good(t *testing.T, args ...string) string {
	t.Helper()
	out, errs, code := command(t, args...)
	if code != 0 {
		t.Fatalf("%v ended with %d: %s", args, code, errs)
	}
	return out
}

// ask sends one plain chat to an edge and gives status and text.
func ask(t *testing.T, d deviceReady, headers ...string) (status int, text string, header http.Header) {
	t.Helper()
	request, err := http.NewRequest(http.MethodPost, d.Edge+"/chat/completions", strings.NewReader(`{"model":"auto","messages":[{"role":"user","content":"hello"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	if d.Key != "" {
		request.Header.Set("Authorization", "Bearer "+d.Key)
	}
	for i := 0; i+1 < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	response, err := (&http.Client{Timeout: patience}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	if response.StatusCode != http.StatusOK {
		return response.StatusCode, string(b), response.Header
	}
	return response.StatusCode, plainOutput(b), response.Header
}

// until waits for something to become true.
func until(t *testing.T, what string, f func() bool) time.Duration {
	t.Helper()
	began := time.Now()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !f() {
		if time.Since(began) > patience {
			t.Fatalf("it never came true: %s", what)
		}
		<-tick.C
	}
	return time.Since(began)
}

// order gives the options of the home workspace's chat chain as a node has it.
func order(t *testing.T, dir string) []string {
	t.Helper()
	out, _, code := command(t, "chain", "show", "--dir", dir, "--json")
	if code != 0 {
		return nil
	}
	var v struct {
		Options []struct {
			ID string `json:"id"`
		} `json:"options"`
	}
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for _, o := range v.Options {
		ids = append(ids, o.ID)
	}
	return ids
}

func sequence(t *testing.T, dir string) uint64 {
	t.Helper()
	var v struct {
		Head struct {
			Seq uint64 `json:"seq"`
		} `json:"head"`
	}
	if err := json.Unmarshal([]byte(good(t, "chain", "show", "--dir", dir, "--json")), &v); err != nil {
		t.Fatal(err)
	}
	return v.Head.Seq
}

// catalogOf writes a catalogue with one provider for each name, in this order.
func catalogOf(t *testing.T, file string, endpoints map[string]string, defaults, withheld []string) {
	t.Helper()
	var b strings.Builder
	b.WriteString("providers:\n")
	for _, name := range append(append([]string{}, defaults...), withheld...) {
		if endpoint, ok := endpoints[name]; ok {
			fmt.Fprintf(&b, "  - name: %s\n    adapter: openai\n    endpoint: %s\n    models:\n      - name: small\n        primitives: [llm.chat]\n        limits: {first_output: 20s, idle: 20s, total: 30s}\n", name, endpoint)
		}
	}
	ids := func(names []string) string {
		var out []string
		for _, n := range names {
			out = append(out, n+"/small")
		}
		return "[" + strings.Join(out, ", ") + "]"
	}
	fmt.Fprintf(&b, "primitives:\n  - name: llm.chat\n    order: fixed\n    default: %s\n    withheld: %s\n", ids(defaults), ids(withheld))
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

// freePort gives a port that nobody has, and that the system gives to no connection
// that other tests open meanwhile: it lies below what Linux, macOS and Windows choose
// from.
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := 12000 + rand.IntN(18000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			l.Close()
			return port
		}
	}
	t.Fatal("a hundred ports are taken")
	return 0
}

// world is a hub and a device as two processes, with scripted providers.
type world struct {
	t                  *testing.T
	hubDir, deviceDir  string
	catalog            string
	listen             string
	alpha, beta, gamma *providertest.Provider
	hub, device        *process
}

func (w *world) endpoints() map[string]string {
	return map[string]string{"alpha": w.alpha.Endpoint(), "beta": w.beta.Endpoint(), "gamma": w.gamma.Endpoint()}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{t: t, hubDir: filepath.Join(dir, "hub"), deviceDir: filepath.Join(dir, "device"), catalog: filepath.Join(dir, "catalog.yaml"),
		listen: fmt.Sprintf("/ip4/127.0.0.1/tcp/%d", freePort(t)),
		alpha:  providertest.New(t, providertest.Healthy("alpha")), beta: providertest.New(t, providertest.Healthy("beta")), gamma: providertest.New(t, providertest.Healthy("gamma"))}
	catalogOf(t, w.catalog, w.endpoints(), []string{"alpha", "beta"}, []string{"gamma"})
	w.startHub()
	invitation := strings.TrimSpace(good(t, "invite", "--dir", w.hubDir))
	good(t, "join", "--dir", w.deviceDir, invitation)
	w.startDevice()
	until(t, "the device holds a chain", func() bool { return len(order(t, w.deviceDir)) > 0 })
	return w
}

func (w *world) startHub() {
	w.hub = start(w.t, "orchestrator", "--dir", w.hubDir, "--web", "127.0.0.1:0", "--listen", w.listen, "--catalog", w.catalog)
}

func (w *world) startDevice() {
	w.device = start(w.t, "daemon", "--dir", w.deviceDir, "--edge", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--listen", "/ip4/127.0.0.1/tcp/0")
}

// wantAnswer asks the device and wants this text.
func (w *world) wantAnswer(want string) {
	w.t.Helper()
	if status, text, _ := ask(w.t, w.device.ready.Device); status != http.StatusOK || text != want {
		w.t.Errorf("answer %d %q, want %q", status, text, want)
	}
}
