// Command cascade moves a configuration of three levels (stage defaults, consumer
// overrides, instance overrides) into a catalogue of chordwheel and keeps its
// behaviour: requests that carry X-Chordwheel-Stage, -Consumer and -Instance get
// the models they always got, in the same order.
//
//	go run ./examples/cascade cascade.json > catalogue.yaml
package main

import (
	"fmt"
	"io"
	"os"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "cascade:", err)
		os.Exit(1)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) < 1 || len(args) > 2 {
		return fmt.Errorf("want the name of a cascade, and perhaps that of a workspace: cascade cascade.json home")
	}
	b, err := os.ReadFile(args[0])
	if err != nil {
		return err
	}
	c, err := Parse(b)
	if err != nil {
		return err
	}
	workspace := "home"
	if len(args) == 2 {
		workspace = args[1]
	}
	_, err = io.WriteString(out, c.Catalogue(workspace))
	return err
}
