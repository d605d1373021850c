package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// execFigures are what an attempt at a peer with 1 KiB each way costs, on one transport,
// beside a raw echo of the same bytes on a new stream.
type execFigures struct {
	transport string
	of        map[string]float64 // by the benchmark's own units
}

// String gives the figures in a line. The floor is the raw echo, one signature and one
// verification.
func (e execFigures) String() string {
	raw, floor := e.of["us_raw"], e.of["us_raw"]+e.of["us_sign+verify"]
	return fmt.Sprintf("exec of 1 KiB on %s: %s of a raw echo (%.0f µs); of echo, signature and verification: payload %s, whole answer %s, verified trailer %s; %s of the echo's cpu; %.0f and %.0f bytes beside the content",
		e.transport, ratio(e.of["x_answer"]*floor/raw), raw, ratio(e.of["x_payload"]), ratio(e.of["x_answer"]), ratio(e.of["x_whole"]),
		ratio(e.of["x_cpu_raw"]), e.of["bytes_beside_payload"], e.of["bytes_beside_answer"])
}

// measureExec runs the benchmark of the package that holds the exec streams.
func measureExec(ctx context.Context, pkg string) ([]execFigures, error) {
	out, err := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^BenchmarkExec$", "-benchtime", "1000x", pkg).CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("the benchmark of %s: %w: %s", pkg, err, bytes.TrimSpace(out))
	}
	return parseExec(out)
}

func parseExec(out []byte) ([]execFigures, error) {
	var all []execFigures
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "BenchmarkExec/") {
			continue
		}
		transport, _, _ := strings.Cut(strings.TrimPrefix(fields[0], "BenchmarkExec/"), "-")
		e := execFigures{transport: transport, of: map[string]float64{}}
		for i := 2; i+1 < len(fields); i += 2 {
			v, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("figures of exec: %w", err)
			}
			e.of[fields[i+1]] = v
		}
		all = append(all, e)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no figures of exec in %q", out)
	}
	return all, nil
}
