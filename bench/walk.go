package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
)

// attempt is what the walk itself takes for one attempt, without any network.
type attempt struct {
	nanoseconds float64
	allocations int
}

// measureWalk runs the benchmark of the package that holds the walk. The tool
// is the one that runs this program.
func measureWalk(ctx context.Context, pkg string) (attempt, error) {
	out, err := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^BenchmarkRun$", "-benchmem", "-benchtime", "500ms", pkg).CombinedOutput()
	if err != nil {
		return attempt{}, fmt.Errorf("the benchmark of %s: %w: %s", pkg, err, bytes.TrimSpace(out))
	}
	return parseWalk(out)
}

var walkLine = regexp.MustCompile(`(?m)^BenchmarkRun\S*\s+\d+\s+([\d.]+) ns/op\s+\d+ B/op\s+(\d+) allocs/op`)

func parseWalk(out []byte) (attempt, error) {
	m := walkLine.FindSubmatch(out)
	if m == nil {
		return attempt{}, fmt.Errorf("no figures of the walk in %q", out)
	}
	ns, err := strconv.ParseFloat(string(m[1]), 64)
	if err != nil {
		return attempt{}, fmt.Errorf("nanoseconds of the walk: %w", err)
	}
	allocs, err := strconv.Atoi(string(m[2]))
	if err != nil {
		return attempt{}, fmt.Errorf("allocations of the walk: %w", err)
	}
	return attempt{ns, allocs}, nil
}
