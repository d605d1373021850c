package spool_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/chordwheel/chordwheel/store/spool"
)

func TestReadGivesEveryWholeLineInOrder(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("x", 3*spool.MaxLine)
	for name, text := range map[string]string{"spool-000002.jsonl": "c\n", "spool-000001.jsonl": "a\n" + long + "\nb\n", "spool.jsonl": "d\n" + long + "\ne\nunfinished",
		"spool.rejected.jsonl": "no\n", "spool-1.jsonl": "no\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	take := func(line []byte) error { got = append(got, string(line)); return nil }
	if err := spool.Read(dir, take); err != nil || !slices.Equal(got, []string{"a", "b", "c", "d", "e"}) {
		t.Errorf("%q, %v", got, err)
	}
	stop := errors.New("enough")
	if err := spool.Read(dir, func([]byte) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("it went on: %v", err)
	}
	got = nil
	if err := spool.Read(t.TempDir(), take); err != nil || got != nil {
		t.Errorf("of nothing: %q, %v", got, err)
	}
}
