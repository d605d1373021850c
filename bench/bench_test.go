package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test's own binary stand for the programs that a run
// starts: the roles, and a chordwheel that is no more than the lean proxy.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "serve":
			if err := serveRole(context.Background(), os.Args[2:], os.Stdin, os.Stdout); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
			return
		case "up", "orchestrator", "invite", "join", "daemon":
			pretend(os.Args)
			return
		case "-addr":
			pretendDuties(os.Args)
		case "hold":
			if err := hold(); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
	}
	os.Exit(m.Run())
}

// pretend answers as chordwheel does. Which provider there is travels in the invitation.
func pretend(args []string) {
	flag := func(name string) string { return args[slices.Index(args, name)+1] }
	read := func(path ...string) []byte {
		raw, err := os.ReadFile(filepath.Join(path...))
		if err != nil {
			panic(err)
		}
		return raw
	}
	keep := func(text []byte) {
		if err := errors.Join(os.MkdirAll(flag("--dir"), 0o700), os.WriteFile(filepath.Join(flag("--dir"), "provider"), text, 0o600)); err != nil {
			panic(err)
		}
	}
	endpoint := regexp.MustCompile(`endpoint: (.*)/v1`)
	say := json.NewEncoder(os.Stdout).Encode
	switch args[1] {
	case "orchestrator":
		keep(endpoint.FindSubmatch(read(flag("--catalog")))[1])
		say(map[string]any{"hub": map[string]any{}})
		io.Copy(io.Discard, os.Stdin)
	case "invite":
		os.Stdout.Write(read(flag("--dir"), "provider"))
	case "join":
		keep([]byte(args[len(args)-1]))
	case "daemon":
		ln := listenHere()
		say(map[string]any{"device": map[string]any{"edge": "http://" + ln.Addr().String() + "/v1"}})
		http.Serve(ln, pretendEdge(edgeKey, string(read(flag("--dir"), "provider"))))
	case "up": // the provider is the second device's own
		ln := listenHere()
		say(map[string]any{"hub": map[string]any{}, "devices": slices.Repeat([]any{map[string]any{"edge": "http://" + ln.Addr().String() + "/v1", "key": "secret"}}, 2)})
		http.Serve(ln, pretendEdge("secret", string(endpoint.FindSubmatch(read(flag("--dir"), "b", "config.yaml"))[1])))
	}
}

// pretendDuties is a proxy without any.
func pretendDuties(args []string) {
	ln, err := net.Listen("tcp", args[2])
	if err != nil {
		panic(err)
	}
	http.Serve(ln, newLean(args[4]))
}

func listenHere() net.Listener {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	return ln
}

// pretendEdge passes chats on, and wants to see a key.
func pretendEdge(key, upstream string) http.Handler {
	proxy := newLean(upstream)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Header.Get("Authorization") != "Bearer "+key:
			http.Error(w, "who are you", http.StatusUnauthorized)
		case r.URL.Path == "/v1/inlet":
			fmt.Fprint(w, `{"transaction_id":"x"}`)
		case r.URL.Path == "/v1/outlet":
			fmt.Fprint(w, `{"ack":true}`)
		default:
			proxy.ServeHTTP(w, r)
		}
	})
}

func TestRunComparesEveryTarget(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := run(t.Context(), []string{"-binary", self, "-rounds", "2", "-slice", "40ms", "-streams", "40", "-walk", "", "-exec", "", "-duties", self}, &out); err != nil {
		t.Fatalf("run: %v\n%s", err, out.String())
	}
	for _, want := range []string{"the edge, all in one", "plain chat, one caller", "first chunk of a stream, 16 callers at once", "straight", "lean", "reverse", "edge", "through a peer", "beside a proxy with the same", "inlet, plain chat, 16 callers at once: added", "outlet, 64 at once", "beside that commit behind a bare handler", "streams cut, of 40 through the edge: 0"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the output lacks %q:\n%s", want, out.String())
		}
	}
}

func TestRunSaysWhatIsMissing(t *testing.T) {
	for _, tt := range []struct {
		name string
		args []string
		want string
	}{
		{"no binary", []string{"-binary", "testdata/none"}, "testdata/none"},
		{"a binary that prints nothing", []string{"-binary", "/bin/false"}, "did not start"},
		{"no rounds", []string{"-rounds", "0"}, "must be positive"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := run(t.Context(), tt.args, new(strings.Builder)); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
}

// listen serves a provider in this process.
func listen(t *testing.T, p provider) target {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go serveProvider(ln, p)
	return target{name: "straight", base: "http://" + ln.Addr().String(), model: "small", pid: os.Getpid()}
}

func TestWholeAnswersPassEveryProxy(t *testing.T) {
	upstream := listen(t, provider{chunks: 20})
	for name, handler := range map[string]http.Handler{"lean": newLean(upstream.base), "reverse": newReverse(upstream.base)} {
		srv := httptest.NewServer(handler)
		defer srv.Close()
		for _, streamed := range []bool{false, true} {
			c := newCrowd(target{name: name, base: srv.URL, model: "small"}, shape{streamed: streamed, conns: 4})
			got := c.drive(t.Context(), times(100))
			c.close()
			if len(got.took) != 100 || got.failed != 0 {
				t.Errorf("%s, streamed %t: %d answers, %d failures, last %v", name, streamed, len(got.took), got.failed, got.last)
			}
		}
	}
}

func TestCutStreamsAreCounted(t *testing.T) {
	cutting := listen(t, provider{chunks: 20, cut: 7})
	proxy := httptest.NewUnstartedServer(newLean(cutting.base))
	proxy.Config.ErrorLog = nil
	proxy.Start()
	defer proxy.Close()
	for name, base := range map[string]string{"straight": cutting.base, "through the lean proxy": proxy.URL} {
		cut, err := countCut(t.Context(), target{base: base, model: "small"}, 30)
		if err != nil || cut != 30 {
			t.Errorf("%s: %d of 30 cut streams were seen, error %v", name, cut, err)
		}
	}
}

func TestReadStream(t *testing.T) {
	const content = "data: {\"choices\":[{\"delta\":{\"content\":\"x\"}}]}\n\n"
	const finish = "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
	tests := []struct {
		name, body string
		whole      bool
	}{
		{"whole", content + finish + "data: [DONE]\n\n", true},
		{"comments in between", ": wait\n\n" + content + finish + "data: [DONE]\n\n", true},
		{"no end", content + finish, false},
		{"no finish", content + "data: [DONE]\n\n", false},
		{"no content", finish + "data: [DONE]\n\n", false},
		{"something after the end", content + finish + "data: [DONE]\n\n" + content, false},
		{"nothing", "", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := readStream(strings.NewReader(tt.body), time.Now())
			if (err == nil) != tt.whole {
				t.Errorf("error %v, want whole: %t", err, tt.whole)
			}
		})
	}
}

func TestRatiosAreTakenWithinARound(t *testing.T) {
	// The machine is ten times slower in the second round; the edge costs
	// twice the straight way in both.
	rounds := [][]figure{
		{{p50: 1}, {p50: 1.5}, {p50: 3}, {p50: 2, cpu: math.NaN()}},
		{{p50: 10}, {p50: 15}, {p50: 30}, {p50: 20, cpu: math.NaN()}},
	}
	var out strings.Builder
	targets := []target{{name: "straight"}, {name: "lean"}, {name: "reverse"}, {name: "edge"}}
	printTable(&out, shape{conns: 1}, targets, rounds)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	got := strings.Fields(lines[len(lines)-1])
	want := []string{"edge", "11.000", "2.00x", "1.33x", "0.67x", "5.500", "2.00x", "0.000", "-", "-", "0.000"}
	if strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("line of the edge %q, want %q", got, want)
	}
}

func TestTheSummaryHoldsAllFigures(t *testing.T) {
	rounds := [][]figure{{{p50: 1}, {p50: 2, cpu: 1}, {p50: 4}, {p50: 3, cpu: 1.5}, {p50: 6, cpu: 4.5}}}
	sum := summary{streams: 10_000, walk: &attempt{1234.4, 7}}
	sum.add(shape{conns: 1}, rounds)
	sum.add(shape{streamed: true, conns: 16}, rounds)
	var out strings.Builder
	sum.print(&out)
	got := strings.Join(strings.Fields(out.String()), " ")
	const figures = "3.00x 1.50x 0.75x 2.00x 1.500 1.50x"
	const peers = "6.00x 2.00x 3.00x"
	want := "the edge, all in one p50 /straight /lean /reverse added/lean cpu s/10k cpu/lean " +
		"plain chat, one caller " + figures + " first chunk of a stream, 16 callers at once " + figures +
		" through a peer: one device's edge, another device's work p50 /straight /edge cpu/edge plain chat, one caller " + peers + " first chunk of a stream, 16 callers at once " + peers +
		" no proxy with duties to compare with: name its folder or program with -duties or DUTIES_PROXY streams cut, of 10000 through the edge: 0 the walk, for each attempt: 1234 ns, 7 allocations"
	if got != want {
		t.Errorf("summary\n%s\nwant\n%s", got, want)
	}
}

func TestParseWalk(t *testing.T) {
	got, err := parseWalk([]byte("goos: linux\nBenchmarkRun-2   \t  401234\t      1490.5 ns/op\t     560 B/op\t       8 allocs/op\nPASS\n"))
	if err != nil || got != (attempt{1490.5, 8}) {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := parseWalk([]byte("PASS\n")); err == nil {
		t.Error("figures without a benchmark")
	}
}

func TestParseExec(t *testing.T) {
	got, err := parseExec([]byte("goos: linux\nBenchmarkExec/tcp-2   1000  900 ns/op  40 us_raw  60 us_sign+verify  1.2 x_answer\nBenchmarkExec/quic-2   1000  900 ns/op  80 us_raw\nPASS\n"))
	if err != nil || len(got) != 2 || got[0].transport != "tcp" || got[1].of["us_raw"] != 80 {
		t.Errorf("%+v, %v", got, err)
	}
	if line := got[0].String(); !strings.Contains(line, "on tcp: 3.00x of a raw echo (40 µs)") {
		t.Error(line)
	}
	if _, err := parseExec([]byte("PASS\n")); err == nil {
		t.Error("figures without a benchmark")
	}
}

// The handler that outlets are compared with answers when its line is in the file.
func TestTheBareHandlerKeepsALineForEachRequest(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bare")
	b, err := newBare(path)
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= 3; n++ {
		w := httptest.NewRecorder()
		b.ServeHTTP(w, httptest.NewRequest("POST", "/v1/outlet", strings.NewReader("{}")))
		kept, err := os.ReadFile(path)
		if err != nil || w.Code != http.StatusOK || w.Body.String() != `{"ack":true}` || len(kept) != n*len(receiptLine) {
			t.Errorf("request %d: status %d, %s, %d bytes, %v", n, w.Code, w.Body, len(kept), err)
		}
	}
	if err := b.close(); err != nil {
		t.Error(err)
	}
}

func TestFaultsNameTheTarget(t *testing.T) {
	last := errors.New("status 502")
	err := faults([]target{{name: "straight"}, {name: "edge"}}, [][]figure{{{asked: 5}, {asked: 5, failed: 1, last: last}}, {{asked: 5}, {asked: 5}}})
	if !errors.Is(err, last) || !strings.Contains(err.Error(), "edge failed 1 of 10") || strings.Contains(err.Error(), "straight") {
		t.Errorf("faults: %v", err)
	}
}
