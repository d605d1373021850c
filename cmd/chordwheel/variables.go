package main

import (
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/orchestrator/catalog"
	"github.com/chordwheel/chordwheel/store/keyring"
)

// ourPrefix begins the variables that only this program reads.
const ourPrefix = "CHORDWHEEL_"

// maxVariables bounds how many unknown variables one warning names.
const maxVariables = 8

// warnOfVariables says in one line which variables look like this program's and are none. It is
// no reason to stop: one environment may serve several versions, and others put
// variables into it whose names nobody here chose.
func (a *app) warnOfVariables(log *slog.Logger) {
	if names := unknownVariables(a.environ); len(names) > 0 {
		log.Warn("variables that chordwheel does not know have no effect; docs/configuration.md lists those that have", "variables", strings.Join(names, ", "))
	}
}

// unknownVariables names, without their values, the variables that begin like this program's and
// are none, each with the one that was probably meant.
func unknownVariables(environ []string) (names []string) {
	known := []string{"DIR"}
	for _, t := range []reflect.Type{reflect.TypeFor[deviceConfig](), reflect.TypeFor[hubConfig]()} {
		known = append(known, variablesOf(t)...)
	}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		rest, ours := strings.CutPrefix(name, ourPrefix)
		if !ours || slices.Contains(known, rest) || ofOthers(name, value) {
			continue
		}
		name = chain.Clip(name)
		if near := catalog.Nearest(rest, known); near != "" {
			name += " (did you mean " + ourPrefix + near + "?)"
		}
		names = append(names, name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if more := len(names) - maxVariables; more > 0 {
		names = append(names[:maxVariables], fmt.Sprintf("and %d more", more))
	}
	return names
}

// ofOthers reports whether a variable that begins like this program's may be: a provider's key, one of the
// tests, or what Kubernetes and Docker tell every container about a service called
// chordwheel or chordwheel-something.
func ofOthers(name, value string) bool {
	for _, prefix := range []string{keyring.EnvPrefix, ourPrefix + "TEST_", ourPrefix + "ENV_"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return name == ourPrefix+"PORT" || strings.HasSuffix(name, "_PORT") && strings.Contains(value, "://") ||
		strings.Contains(name, "_PORT_") || strings.Contains(name, "_SERVICE_")
}

// variablesOf gives the variables of t's fields without their prefix, of those that have ours.
func variablesOf(t reflect.Type) (names []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		if name, ours := strings.CutPrefix(f.Tag.Get("env"), ourPrefix); ours {
			names = append(names, name)
		}
		if f.Type.Kind() == reflect.Struct {
			names = append(names, variablesOf(f.Type)...)
		}
	}
	return names
}
