// Command chordwheel is the whole product in one binary: hub and device, and
// the verbs that speak to them. It wires flags, configuration and rooms
// together, and takes no decision that belongs to one of them.
package main

import (
	"fmt"
	"os"
)

// version is set by the linker.
var version = "dev"

func main() {
	fmt.Fprintln(os.Stderr, "chordwheel "+version)
	os.Exit(2)
}
