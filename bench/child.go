package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// target is one address to ask, and the process that stands behind it.
type target struct {
	name  string
	base  string // http://HOST:PORT
	key   string
	model string
	path  string // what is asked, where it is no chat
	body  string
	want  string // a part of every answer; the provider's if empty
	pid   int
	words func() string // the end of what the process logged; nil where there is none
}

// startTargets starts the provider and all that is compared in front of it, in
// the order that the tables have. The caller calls stop, also to clean up.
func startTargets(ctx context.Context, binary, duties string) (_ []target, stop func(), err error) {
	var targets []target
	var running []*child
	dir, err := os.MkdirTemp("", "chordwheel-bench-")
	if err != nil {
		return nil, nil, err
	}
	cleanUp := func() {
		for i := len(running) - 1; i >= 0; i-- {
			running[i].stop()
		}
		os.RemoveAll(dir)
	}
	defer func() {
		if err != nil {
			cleanUp()
		}
	}()
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	provider, line, err := start(ctx, dir, self, "serve", "provider")
	if err != nil {
		return nil, nil, err
	}
	running = append(running, provider)
	targets = append(targets, target{name: "straight", base: line, model: "small", pid: provider.cmd.Process.Pid})
	for _, role := range []string{"lean", "reverse"} {
		c, base, err := start(ctx, dir, self, "serve", role, targets[straight].base)
		if err != nil {
			return nil, nil, err
		}
		running = append(running, c)
		targets = append(targets, target{name: role, base: base, model: "small", pid: c.cmd.Process.Pid})
	}
	begins := []func(ctx context.Context, binary, dir, provider string) (target, []*child, error){startEdge, startPeer}
	if duties != "" {
		begins = append(begins, func(ctx context.Context, _, dir, provider string) (target, []*child, error) {
			return startDuties(ctx, duties, dir, provider)
		})
	}
	for _, begin := range begins {
		t, c, err := begin(ctx, binary, dir, targets[straight].base)
		if running = append(running, c...); err != nil {
			return nil, nil, err
		}
		targets = append(targets, t)
	}
	return targets, cleanUp, nil
}

// catalogue gives the edge the provider as its only option.
const catalogue = `providers:
  - name: bench
    adapter: openai
    endpoint: %s/v1
    models:
      - name: small
        primitives: [llm.chat]
        context: 32768
primitives:
  - name: llm.chat
    order: fixed
    default: [bench/small]
workspaces:
  - id: home
`

// startEdge gives the edge of a device whose hub is another process, so that what the
// hub does, the ledger's part among it, does not count as the device's.
func startEdge(ctx context.Context, binary, dir, provider string) (target, []*child, error) {
	dir = filepath.Join(dir, "edge")
	file, err := writeCatalogue(dir, fmt.Sprintf(catalogue, provider))
	if err != nil {
		return target{}, nil, err
	}
	hubDir, deviceDir := filepath.Join(dir, "hub"), filepath.Join(dir, "device")
	hub, _, err := start(ctx, dir, binary, "orchestrator", "--json", "--dir", hubDir, "--web", "127.0.0.1:0", "--authority", "127.0.0.1:0", "--listen", "/ip4/127.0.0.1/tcp/0", "--catalog", file)
	if err != nil {
		return target{}, nil, err
	}
	running := []*child{hub}
	invitation, err := exec.CommandContext(ctx, binary, "invite", "--dir", hubDir).Output()
	if err == nil {
		err = exec.CommandContext(ctx, binary, "join", "--dir", deviceDir, strings.TrimSpace(string(invitation))).Run()
	}
	if err != nil {
		return target{}, running, fmt.Errorf("%s does not join a device: %w", binary, err)
	}
	device, line, err := start(ctx, dir, binary, "daemon", "--json", "--dir", deviceDir, "--edge", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--listen", "/ip4/127.0.0.1/tcp/0")
	if err != nil {
		return target{}, running, err
	}
	running = append(running, device)
	var ready struct {
		Device struct{ Edge string }
	}
	if err := json.Unmarshal([]byte(line), &ready); err != nil || ready.Device.Edge == "" {
		return target{}, running, fmt.Errorf("%s daemon --json said %q, not where its edge is", binary, line)
	}
	t := target{name: "edge", base: strings.TrimSuffix(ready.Device.Edge, "/v1"), key: edgeKey, model: "small", pid: device.cmd.Process.Pid, words: device.lastWords}
	if err := untilAnswered(ctx, t); err != nil {
		return target{}, running, fmt.Errorf("the device answers nothing: %w; the log ends with: %s", err, device.lastWords())
	}
	return t, running, nil
}

// edgeKey is what callers show to the edge: checking it is one of its duties.
const edgeKey = "bench"

// Where the provider is the peer's own service, the first device has nothing but the
// slot. 16 callers at once are more than a device takes from one peer unless told.
const (
	slotOnly = `primitives:
  - name: llm.chat
    order: fixed
    default: [local, peer]
    peer: {requires: ["execute:llm.chat"]}
`
	ownService = `adapters:
  - name: bench
    adapter: openai
    endpoint: %s/v1
    models: [{name: small, primitives: [llm.chat], context: 32768}]
sharing: {jobs: 64}
`
)

// startPeer gives the edge of a device whose every request runs on another device.
func startPeer(ctx context.Context, binary, dir, provider string) (target, []*child, error) {
	dir = filepath.Join(dir, "peer")
	config := filepath.Join(dir, "up", "b", "config.yaml")
	if err := os.MkdirAll(filepath.Dir(config), 0o700); err != nil {
		return target{}, nil, err
	}
	if err := os.WriteFile(config, fmt.Appendf(nil, ownService, provider), 0o600); err != nil {
		return target{}, nil, err
	}
	file, err := writeCatalogue(dir, slotOnly)
	if err != nil {
		return target{}, nil, err
	}
	c, line, err := start(ctx, dir, binary, "up", "--devices", "2", "--dir", filepath.Join(dir, "up"), "--catalog", file, "--json")
	if err != nil {
		return target{}, nil, err
	}
	var ready struct {
		Devices []struct{ Edge, Key string }
	}
	if err := json.Unmarshal([]byte(line), &ready); err != nil || len(ready.Devices) != 2 {
		return target{}, []*child{c}, fmt.Errorf("%s up --json said %q, not which devices are ready", binary, line)
	}
	d := ready.Devices[0] // a peer's own models have no names there
	t := target{name: "peer", base: strings.TrimSuffix(d.Edge, "/v1"), key: d.Key, model: "auto", pid: c.cmd.Process.Pid, words: c.lastWords}
	if err := untilAnswered(ctx, t); err != nil {
		err = fmt.Errorf("the first device never handed work to the second: %w; the log ends with: %s", err, c.lastWords())
		return target{}, []*child{c}, err
	}
	return t, []*child{c}, nil
}

// untilAnswered waits a limited time until a target answers: two devices have to meet
// before one works for the other.
func untilAnswered(ctx context.Context, t target) error {
	c := newCrowd(t, shape{conns: 1})
	defer c.close()
	for end := time.Now().Add(20 * time.Second); ; {
		got := c.drive(ctx, times(1))
		if got.failed == 0 {
			return nil
		}
		if ctx.Err() != nil || time.Now().After(end) {
			return got.last
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// writeCatalogue writes it in a folder of its own: the hub watches the one that the
// catalogue is in, and every line that is logged beside it would wake the hub.
func writeCatalogue(dir, text string) (string, error) {
	file := filepath.Join(dir, "catalogue", "catalogue.yaml")
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return "", err
	}
	return file, os.WriteFile(file, []byte(text), 0o600)
}

// child is a process that was started here and has said that it is ready.
type child struct {
	cmd  *exec.Cmd
	log  *os.File // its standard error: a file, so that nobody spends time on reading it
	stop func()   // ends it and waits
}

// lastWords gives the end of what the process logged.
func (c *child) lastWords() string {
	const most = 600
	if end, err := c.log.Seek(0, io.SeekEnd); err == nil {
		raw := make([]byte, most)
		n, _ := c.log.ReadAt(raw, max(0, end-most))
		return string(bytes.TrimSpace(raw[:n]))
	}
	return ""
}

// start runs a program until it has printed its first line, which it returns.
// Its log goes to a file in dir.
func start(ctx context.Context, dir, program string, args ...string) (*child, string, error) {
	c, out, err := launch(ctx, dir, program, args...)
	if err != nil {
		return nil, "", err
	}
	line, err := firstLine(ctx, out)
	if err != nil {
		words := c.lastWords()
		c.stop()
		return nil, "", fmt.Errorf("%s %s did not start: %w: %s", program, args[0], err, words)
	}
	return c, line, nil
}

// startSilent runs a program that says nothing when it is ready.
func startSilent(ctx context.Context, dir, program string, args ...string) (*child, error) {
	c, out, err := launch(ctx, dir, program, args...)
	if err == nil {
		go io.Copy(io.Discard, out)
	}
	return c, err
}

func launch(ctx context.Context, dir, program string, args ...string) (*child, io.Reader, error) {
	log, err := os.CreateTemp(dir, "log-")
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	c := &child{cmd: exec.CommandContext(ctx, program, args...), log: log}
	c.cmd.Cancel = func() error { return c.cmd.Process.Signal(syscall.SIGTERM) }
	c.cmd.WaitDelay = 10 * time.Second
	c.cmd.Stderr = log
	c.cmd.SysProcAttr = tied()
	// The model inside the binary would answer in the provider's place.
	c.cmd.Env = append(os.Environ(), "CHORDWHEEL_BUILTIN=false")
	if len(args) > 0 && args[0] == "daemon" {
		c.cmd.Env = append(c.cmd.Env, "ORCH_API_KEY="+edgeKey)
	}
	out, err := c.begin()
	if err != nil {
		cancel()
		log.Close()
		return nil, nil, err
	}
	c.stop = func() {
		cancel()
		_ = c.cmd.Wait()
		log.Close()
	}
	return c, out, nil
}

func (c *child) begin() (io.Reader, error) {
	// Kept open for as long as this process lives: the roles end with it.
	if _, err := c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return out, c.cmd.Start()
}

// firstLine waits a limited time for a line; the rest of the output is dropped
// as it comes, so that the process never blocks on it.
func firstLine(ctx context.Context, out io.Reader) (string, error) {
	type got struct {
		line string
		err  error
	}
	first := make(chan got, 1) // one line, never blocks the reader
	go func() {
		in := bufio.NewReader(out)
		line, err := in.ReadString('\n')
		first <- got{strings.TrimSpace(line), err}
		_, _ = in.WriteTo(io.Discard)
	}()
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	select {
	case g := <-first:
		return g.line, g.err
	case <-limit.C:
		return "", errors.New("nothing was printed for 20 s")
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// processorTime is how many processor seconds a process has used, user and
// system together, or NaN where the system has no such file.
func processorTime(pid int) float64 {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return math.NaN()
	}
	// The name in parentheses may hold anything; the fields after it do not.
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) < 13 {
		return math.NaN()
	}
	user, err1 := strconv.ParseFloat(fields[11], 64)
	system, err2 := strconv.ParseFloat(fields[12], 64)
	if err1 != nil || err2 != nil {
		return math.NaN()
	}
	return (user + system) / ticksPerSecond
}

// memoryOf is what a process holds of the machine's memory, in MiB, or NaN where the
// system has no such file.
func memoryOf(pid int) float64 {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		return math.NaN()
	}
	fields := strings.Fields(string(raw))
	if len(fields) < 2 {
		return math.NaN()
	}
	pages, err := strconv.ParseFloat(fields[1], 64)
	if err != nil {
		return math.NaN()
	}
	return pages * float64(os.Getpagesize()) / (1 << 20)
}

// ticksPerSecond is the unit of the proc file system on every Linux in use.
const ticksPerSecond = 100
