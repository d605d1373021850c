package merkle_test

import (
	"fmt"
	"testing"

	"github.com/chordwheel/chordwheel/chain/merkle"
	"golang.org/x/mod/sumdb/tlog"
)

// The root of each size is the library's.
func TestTheRootOfLines(t *testing.T) {
	var tree merkle.Tree
	if tree.Root() != merkle.Empty() {
		t.Error("without a line")
	}
	var lines []string
	for i := range 70 {
		lines = append(lines, fmt.Sprint("line ", i))
		tree.Add([]byte(lines[i]))
		want, err := tlog.TreeHash(int64(len(lines)), hashesOf(t, lines))
		if err != nil || tree.Root() != want {
			t.Fatalf("%d lines: another root, %v", len(lines), err)
		}
	}
}
