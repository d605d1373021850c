package main

import (
	"os"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// asProgram makes the test binary be the program: tests start real processes
// without a build, and under the race detector where they run under it. It is
// inherited, because the program starts itself to check a damaged database.
const asProgram = "CHORDWHEEL_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	program := func() {
		os.Setenv(asProgram, "1")
		adapters = withPanics(adapters)
		os.Exit(run(os.Args[1:], os.Environ(), os.Stdin, os.Stdout, os.Stderr))
	}
	if os.Getenv(asProgram) != "" {
		program()
	}
	// A program that was built with the race detector sleeps for a second when it ends, in
	// case other goroutines race on. These tests start hundreds of programs, whose
	// goroutines end before they do.
	os.Setenv("GORACE", strings.TrimSpace("atexit_sleep_ms=0 "+os.Getenv("GORACE")))
	testscript.Main(m, map[string]func(){"chordwheel": program})
}
