package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/chordwheel/chordwheel/orchestrator/authority"
)

// wrongArguments says what is wrong with the number of arguments, in the words of
// the command's own usage line.
func wrongArguments(c *cobra.Command, args []string, err error) error {
	if c.HasSubCommands() {
		return err // an unknown verb: verb said so
	}
	want := strings.Fields(c.Use)[1:]
	need := 0
	for need < len(want) && !strings.HasPrefix(want[need], "[") {
		need++
	}
	form := strings.TrimSuffix(c.UseLine(), " [flags]")
	switch {
	case len(args) < need:
		return fmt.Errorf("%s is missing: %s", strings.TrimSuffix(want[len(args)], "..."), form)
	case len(want) == 0:
		return fmt.Errorf("%q is too much: %s takes no argument", args[0], form)
	}
	return fmt.Errorf("%q is too much: %s", args[len(args)-1], form)
}

// wrongFlag says what a flag's value should have been.
func wrongFlag(err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "" { // a token, or an id of somebody else's
		return fmt.Errorf("%w; an argument that begins with a dash goes behind --", err)
	}
	var invalid *pflag.InvalidValueError
	if !errors.As(err, &invalid) {
		return err
	}
	want := ""
	switch invalid.GetFlag().Value.Type() {
	case "int":
		want = "a whole number"
	case "float64":
		want = "a number"
	case "duration":
		want = "a duration, such as 30m or 8h"
	case "bool":
		want = "true or false"
	default:
		return err
	}
	return fmt.Errorf("--%s: want %s, not %q", invalid.GetFlag().Name, want, invalid.GetValue())
}

// foreignDir refuses to start a node of one kind ("up", "device" or "hub") in the data
// directory of another: it would live inside it, or under its identity.
func foreignDir(dir, kind string) error {
	has := func(name ...string) bool {
		_, err := os.Lstat(filepath.Join(append([]string{dir}, name...)...))
		return err == nil
	}
	found, command := "", ""
	switch {
	case has(authority.CertificateFile):
		found, command = "hub", "orchestrator"
	case has("identity.key") && has("device"):
		found, command = "device", "daemon"
	case !has("identity.key") && has(hubName, "identity.key"):
		found, command = "up", "up"
	}
	if found == "" || found == kind {
		return nil
	}
	if found != "up" {
		found = "a " + found
	}
	return usage("%s is the data directory of %s: run chordwheel %s --dir %s, or give another --dir", dir, found, command, dir)
}
