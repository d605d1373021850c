package simulate

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every world says in its first line what it is about, and none names a person's paths
// or keys: they are read by newcomers.
func TestEveryWorldSaysWhatItIsAbout(t *testing.T) {
	files, err := filepath.Glob("*/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("no worlds: %v", err)
	}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if first, _, _ := strings.Cut(string(b), "\n"); !strings.HasPrefix(first, "about: ") {
			t.Errorf("%s: the first line is %q", file, first)
		}
	}
}
