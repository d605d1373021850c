//go:build !linux

package main

import "github.com/chordwheel/chordwheel/daemon/sharing"

// Elsewhere nothing is known of power and load; docs/sharing.md says what follows.
func readMains() sharing.Reading { return sharing.Unknown }
func readQuiet() sharing.Reading { return sharing.Unknown }
