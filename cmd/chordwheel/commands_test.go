package main

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// Every command is listed in docs/commands.md, says what it does in one line
// without a stop, and shows an example.
func TestEveryCommandIsDescribed(t *testing.T) {
	b, err := os.ReadFile("../../docs/commands.md")
	if err != nil {
		t.Fatal(err)
	}
	var visit func(c *cobra.Command, path string)
	visit = func(c *cobra.Command, path string) {
		for _, sub := range c.Commands() {
			name := strings.TrimSpace(path + " " + sub.Name())
			if sub.Hidden || sub.Name() == "help" || sub.Name() == "completion" { // these two are the library's
				continue
			}
			if !sub.HasSubCommands() && !strings.Contains(string(b), "`"+name+"`") && !strings.Contains(string(b), "`"+name+" ") {
				t.Errorf("docs/commands.md does not list %q", name)
			}
			if sub.Short == "" || strings.HasSuffix(sub.Short, ".") || strings.Contains(sub.Short, "\n") {
				t.Errorf("%s: short help %q", name, sub.Short)
			}
			if sub.Example == "" && name != "version" {
				t.Errorf("%s: no example", name)
			}
			visit(sub, name)
		}
	}
	visit((&app{}).root(), "")
}
