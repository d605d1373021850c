package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/chordwheel/chordwheel/orchestrator/catalog"
)

// lines is a writer that hands on what a log says, as long as somebody listens.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	select {
	case l <- string(b):
	default:
	}
	return len(b), nil
}

// TestTheCatalogueIsFoundAgain: whatever happens around the file, its next
// content is put in force.
func TestTheCatalogueIsFoundAgain(t *testing.T) {
	text := func(name string) string {
		return strings.ReplaceAll(`providers: [{name: NAME, adapter: openai, endpoint: "http://127.0.0.1:1/v1", models: [{name: m, primitives: [llm.chat]}]}]
primitives: [{name: llm.chat, default: [NAME/m]}]
`, "NAME", name)
	}
	write := func(t *testing.T, file, name string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text(name)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	must := func(t *testing.T, errs ...error) {
		t.Helper()
		for _, err := range errs {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, disturb := range map[string]func(t *testing.T, file string, complaints <-chan string){
		"an edit": func(t *testing.T, file string, _ <-chan string) { write(t, file, "next") },
		"the target of a link": func(t *testing.T, file string, _ <-chan string) {
			write(t, filepath.Join(file, "..", "..", "target"), "next")
		},
		"its folder moved": func(t *testing.T, file string, _ <-chan string) {
			folder := filepath.Dir(file)
			must(t, os.Rename(folder, folder+"2"), os.Rename(folder+"2", folder))
			write(t, file, "next")
		},
		"its folder made anew": func(t *testing.T, file string, _ <-chan string) {
			must(t, os.RemoveAll(filepath.Dir(file)), os.Mkdir(filepath.Dir(file), 0o700))
			write(t, file, "next")
		},
		"a folder in its place": func(t *testing.T, file string, _ <-chan string) {
			must(t, os.Remove(file), os.Mkdir(file, 0o700), os.Remove(file))
			write(t, file, "next")
		},
		"a pipe without a writer": func(t *testing.T, file string, complaints <-chan string) {
			must(t, os.Remove(file), syscall.Mkfifo(file, 0o600))
			for line := range complaints { // it may have met the file before it was written whole
				if strings.Contains(line, "not a regular file") {
					break
				}
			}
			must(t, os.Remove(file))
			write(t, file, "next")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			file := filepath.Join(root, "folder", "catalog.yaml")
			must(t, os.Mkdir(filepath.Dir(file), 0o700))
			write(t, filepath.Join(root, "target"), "first")
			if name == "the target of a link" {
				must(t, os.Symlink(filepath.Join("..", "target"), file))
			} else {
				write(t, file, "first")
			}
			_, first, err := readCatalog(file)
			must(t, err)
			taken, ended, complaints := make(chan string, 8), make(chan error, 1), make(lines, 8)
			log := slog.New(slog.NewTextHandler(complaints, &slog.HandlerOptions{Level: slog.LevelError}))
			ctx, stop := context.WithCancel(t.Context())
			go func() {
				ended <- watchCatalog(ctx, file, first, func(c catalog.Catalog) error { taken <- c.Providers[0].Name; return nil }, func(string) {}, log)
			}()
			write(t, file, "before")
			if got := <-taken; got != "before" {
				t.Fatalf("%q is in force", got)
			}
			disturb(t, file, complaints)
			if got := <-taken; got != "next" {
				t.Errorf("%q is in force", got)
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// TestTheListBesideTheCatalogue: workspaces that are like others are read with the catalogue,
// their faults are the catalogue's, and a change of the list alone is a change.
func TestTheListBesideTheCatalogue(t *testing.T) {
	file := filepath.Join(t.TempDir(), "c.yaml")
	put := func(file, text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(file, `providers: [{name: a, adapter: builtin, models: [{name: m, primitives: [llm.chat]}]}]
primitives: [{name: llm.chat, default: [a/m]}]
workspaces: [{id: free}]
`)
	_, alone, err := readCatalog(file)
	if err != nil {
		t.Fatal(err)
	}
	put(file+rosterSuffix, "x free\ny free\n")
	c, two, err := readCatalog(file)
	if w, known := c.Workspace("workspace:y"); err != nil || !known || w.ID != "free" || c.Enlisted() != 2 {
		t.Errorf("%+v %v %v", w, known, err)
	}
	put(file+rosterSuffix, "x free\nz free\n")
	_, other, err := readCatalog(file)
	if err != nil || bytes.Equal(alone, two) || bytes.Equal(two, other) {
		t.Errorf("a change of the list is no change: %v", err)
	}
	put(file+rosterSuffix, "x free\nx free\n")
	_, _, err = readCatalog(file)
	var invalid *catalog.Invalid
	if !errors.As(err, &invalid) || !strings.Contains(err.Error(), "c.yaml.workspaces:2:1: workspace \"x\" stands twice") {
		t.Errorf("%v", err)
	}
}
