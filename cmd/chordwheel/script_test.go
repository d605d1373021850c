package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestScripts runs the transcripts in testdata/script: commands as a person
// types them, and what they must say. Each has an empty home of its own, and no
// port is fixed. Beside the commands of testscript there are:
//
//	code N PROGRAM ARGS...    the program must end with exit code N
//	start NAME PROGRAM ARGS   run in the background until the ready line, which
//	                          sets $edge, $key, $admin and $hub where it names them
//	end NAME, crash NAME      SIGTERM, which must end it with code 0, or SIGKILL
//	taken                     sets $taken to an address that is in use
//	until PATTERN PROGRAM ARGS...   run it again and again until its output matches
//	flip FROM TO [BEHIND]     copy a text with one letter changed: in its middle, or behind a word
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:      "testdata/script",
		Deadline: time.Now().Add(6 * time.Minute), // for all of them: a command that hangs fails, and is shown
		Setup: func(e *testscript.Env) error {
			home := filepath.Join(e.WorkDir, "home")
			e.Setenv("HOME", home)
			e.Setenv("XDG_DATA_HOME", filepath.Join(home, "data"))
			e.Setenv("XDG_CONFIG_HOME", filepath.Join(home, "config"))
			e.Setenv("GODEBUG", os.Getenv("GODEBUG"))
			e.Setenv("GORACE", os.Getenv("GORACE"))
			e.Values[backgroundKey{}] = map[string]*background{}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"code": cmdCode, "start": cmdStart, "end": cmdEnd, "crash": cmdCrash, "taken": cmdTaken, "until": cmdUntil, "flip": cmdFlip,
		},
	})
}

func cmdCode(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: code N PROGRAM ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	got := 0
	defer alone(args)()
	err = ts.Exec(args[1], args[2:]...)
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		got = failed.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, want %d", got, want)
	}
}

// backgroundKey is the key of a script's background programs.
type backgroundKey struct{}

// background is a program that said it is ready.
type background struct {
	cmd    *exec.Cmd
	stderr *logBuffer
	ended  chan error // what Wait gave, once
	done   bool
}

func cmdStart(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: start NAME PROGRAM ARGS...")
	}
	programs := ts.Value(backgroundKey{}).(map[string]*background)
	if b := programs[args[0]]; b != nil && !b.done {
		ts.Fatalf("%s runs already", args[0])
	}
	defer alone(args[1:])()
	b := &background{stderr: &logBuffer{}, ended: make(chan error, 1)}
	b.cmd = scriptCommand(ts, args[1:])
	b.cmd.Stderr = b.stderr
	out, err := b.cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(b.cmd.Start())
	programs[args[0]] = b
	ts.Defer(func() {
		if !b.done {
			_ = b.cmd.Process.Kill()
			<-b.ended
		}
	})
	first := make(chan string, 1)
	go func() {
		in := bufio.NewReader(out)
		line, _ := in.ReadString('\n')
		first <- line
		_, _ = io.Copy(io.Discard, in)
		b.ended <- b.cmd.Wait()
	}()
	select {
	case line := <-first:
		var ready readyLine
		if err := json.Unmarshal([]byte(line), &ready); err != nil {
			b.done = true
			_ = b.cmd.Process.Kill()
			<-b.ended
			ts.Fatalf("%s printed %q, not a ready line; standard error:\n%s", args[0], line, b.stderr)
		}
		setReady(ts, ready)
	case <-time.After(patience):
		ts.Fatalf("%s printed nothing in time", args[0])
	}
}

// scriptCommand makes a program of the script's own folder and environment.
func scriptCommand(ts *testscript.TestScript, args []string) *exec.Cmd {
	name := args[0]
	for _, dir := range filepath.SplitList(ts.Getenv("PATH")) {
		if path, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			name = path
			break
		}
	}
	cmd := exec.Command(name, args[1:]...)
	cmd.Dir = ts.Getenv("WORK")
	for _, k := range []string{"PATH", "HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "TMPDIR", "WORK", "CHORDWHEEL_INVITE", "CHORDWHEEL_KEY_ALPHA", "ORCH_API_KEY", "GODEBUG", "GORACE"} {
		if v := ts.Getenv(k); v != "" {
			cmd.Env = append(cmd.Env, k+"="+v)
		}
	}
	return cmd
}

func setReady(ts *testscript.TestScript, ready readyLine) {
	device := ready.Device
	if len(ready.Devices) > 0 {
		device = ready.Devices[0]
	}
	for name, value := range map[string]string{"edge": device.Edge, "admin": device.Admin, "key": device.Key, "hub": ready.Hub.URL} {
		if value != "" {
			ts.Setenv(name, value)
		}
	}
}

func cmdEnd(ts *testscript.TestScript, neg bool, args []string) {
	b := named(ts, args)
	ts.Check(b.cmd.Process.Signal(syscall.SIGTERM))
	b.done = true
	select {
	case err := <-b.ended:
		if (err == nil) == neg {
			ts.Fatalf("%s ended with %v; standard error:\n%s", args[0], err, b.stderr)
		}
		ts.Logf("%s", b.stderr)
	case <-time.After(patience):
		_ = b.cmd.Process.Kill()
		ts.Fatalf("%s did not end in time after SIGTERM", args[0])
	}
}

func cmdCrash(ts *testscript.TestScript, _ bool, args []string) {
	b := named(ts, args)
	ts.Check(b.cmd.Process.Kill())
	b.done = true
	<-b.ended
}

func named(ts *testscript.TestScript, args []string) *background {
	if len(args) != 1 {
		ts.Fatalf("usage: end NAME or kill NAME")
	}
	b := ts.Value(backgroundKey{}).(map[string]*background)[args[0]]
	if b == nil || b.done {
		ts.Fatalf("%s does not run", args[0])
	}
	return b
}

func cmdTaken(ts *testscript.TestScript, _ bool, _ []string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { l.Close() })
	ts.Setenv("taken", l.Addr().String())
}

func cmdUntil(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: until PATTERN PROGRAM ARGS...")
	}
	pattern, err := regexp.Compile(args[0])
	ts.Check(err)
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); time.Since(began) < patience; <-tick.C {
		if out, err := scriptCommand(ts, args[1:]).Output(); err == nil && pattern.Match(out) {
			return
		}
	}
	ts.Fatalf("%q never came from %v", args[0], args[1:])
}

func cmdFlip(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 || len(args) > 3 {
		ts.Fatalf("usage: flip FROM TO [BEHIND]")
	}
	b := []byte(ts.ReadFile(args[0]))
	at := len(b) / 2
	if len(args) == 3 {
		if at = bytes.Index(b, []byte(args[2])); at < 0 {
			ts.Fatalf("%s has no %s", args[0], args[2])
		}
		at += len(args[2])
	}
	if b[at] == 'A' {
		b[at] = 'B'
	} else {
		b[at] = 'A'
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), b, 0o600))
}
