package catalog

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/chaintest"
	"github.com/chordwheel/chordwheel/orchestrator/resolve"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// TestParse runs the vectors: good_*.yaml is accepted and reads as its .txt says,
// fail_*.yaml is refused with exactly the lines of its .txt.
func TestParse(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) < 8 {
		t.Fatalf("vectors are missing: %v %v", files, err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		t.Run(strings.TrimSuffix(name, ".yaml"), func(t *testing.T) {
			b, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			c, err := Parse(name, b)
			var got string
			if err != nil {
				got = err.Error() + "\n"
				if !reflect.DeepEqual(c, Catalog{}) {
					t.Error("a refused file left something behind")
				}
			} else {
				text, err := json.MarshalIndent(c, "", " ")
				if err != nil {
					t.Fatal(err)
				}
				got = string(text) + "\n"
			}
			if refused := err != nil; refused != strings.HasPrefix(name, "fail_") {
				t.Fatalf("refused = %v: %v", refused, err)
			}
			golden := strings.TrimSuffix(file, ".yaml") + ".txt"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if got != string(want) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		})
	}
}

// TestSecretsAreNotRepeated: who pastes a key where its name belongs does not find it in a log.
func TestSecretsAreNotRepeated(t *testing.T) {
	_, err := Parse("c", []byte("providers: [{name: a, adapter: openai, endpoint: 'https://u:canary@h/v1?k=canary', keys: ['canary!'], models: [{name: m, primitives: [p]}]}]\nprimitives: [{name: p, default: [a/m]}]"))
	var invalid *Invalid
	if !errors.As(err, &invalid) || len(invalid.Problems) != 2 {
		t.Fatalf("want two problems, got %v", err)
	}
	if strings.Contains(err.Error(), "canary") {
		t.Errorf("the error repeats a secret: %v", err)
	}
}

// TestProblemsAreBounded: a file that is wrong on every line gives a page, not a book.
func TestProblemsAreBounded(t *testing.T) {
	_, err := Parse("c", []byte(strings.Repeat("x1: 1\n", 2)+strings.Repeat("- a\n", 1)))
	if err == nil {
		t.Fatal("accepted")
	}
	var b strings.Builder
	for i := range 1000 {
		fmt.Fprintf(&b, "x%d: 1\n", i)
	}
	_, err = Parse("c", []byte(b.String()))
	if lines := strings.Count(err.Error(), "\n") + 1; lines != maxProblems+1 {
		t.Errorf("%d lines, want %d", lines, maxProblems+1)
	}
}

// What the hub lists in its registry is what devices take from one.
func TestAgentsAreDIDs(t *testing.T) {
	parse := func(did string) error {
		_, err := Parse("c", fmt.Appendf(nil, "primitives: [{name: llm.chat, default: [local]}]\nagents: [{did: %q, capability: llm.chat, model_id: m}]\n", did))
		return err
	}
	for _, did := range []string{"did:web:agents.example", "did:webvh:Qm1:a.example%3A8443:x", chaintest.Key(1).DID()} {
		if err := parse(did); err != nil {
			t.Errorf("%q: %v", did, err)
		}
	}
	for why, did := range chaintest.NoDIDs() {
		if parse(did) == nil {
			t.Errorf("%s: %q passes", why, did)
		}
	}
}

func TestNestingIsBounded(t *testing.T) {
	for _, bomb := range []string{strings.Repeat("[", 1<<20), strings.Repeat("- ", 1<<20), strings.Repeat("{a: ", 1<<20), strings.Repeat("? ", 1<<20),
		strings.Repeat("a: b\n", 1<<20), strings.Repeat("---\na\n", 1<<18), strings.Repeat(" ", 1<<20) + "a: b"} {
		_, err := Parse("c", []byte(bomb))
		if err == nil {
			t.Fatalf("accepted %.8s…", bomb)
		}
		if strings.Count(err.Error(), "\n") > 0 {
			t.Errorf("%.8s… was parsed", bomb)
		}
	}
	if _, err := Parse("c", make([]byte, MaxBytes+1)); err == nil {
		t.Error("accepted a file over the limit")
	}
}

func TestEndpoint(t *testing.T) {
	for address, ok := range map[string]bool{
		"https://api.example.com/v1": true, "https://api.example.com:8443": true, "http://127.0.0.1:9001/v1": true, "http://localhost:11434": true,
		"http://[::1]:80/v1": true, "http://[fd00::7]/v1": true, "http://192.168.1.4:1234/v1": true, "http://nas:80": true, "http://nas.local/v1": true,
		"http://172.16.0.1": true, "http://172.32.0.1": false, "http://8.8.8.8": false, "http://[2001:db8::1]/": false, "http://api.example.com": false,
		"http://1270.0.0.1.example.com": false, "ftp://x": false, "https://": false, "https:///v1": false, "https://a b": false, "x": false, "": false,
		"https://user:word@host/": false, "https://host/?key=x": false, "https://host:0/": false, "https://host:99999/": false, "https://-/": true,
		"https://[::1": false, "https://a..b/": false, "https://host\n/": false,
	} {
		if err := endpointURL(address); (err == nil) != ok {
			t.Errorf("%q: %v", address, err)
		}
	}
}

// TestBuiltin: a mesh without a catalogue runs what its devices can.
func TestBuiltin(t *testing.T) {
	c := Builtin("fetch.plain", chain.LLMChat)
	for _, p := range []chain.Primitive{chain.LLMChat, "embed.text", "fetch.plain"} {
		order := []string{LocalEntry, PeerEntry}
		if p == chain.LLMChat {
			order = append(order, string(chain.BuiltinOption)) // the last resort
		}
		d, ok := c.Primitive(p)
		if !ok || !reflect.DeepEqual(d.Default, order) || d.Slots[0].Requires[0] != chain.ExecuteCapability(p) {
			t.Errorf("%s: %+v", p, d)
		}
	}
	if len(c.Primitives) != 3 {
		t.Errorf("%d primitives, want 3", len(c.Primitives))
	}
	if w, known := c.Workspace(chain.DefaultScope); !known || !w.Allows("any") || w.Weights != resolve.DefaultWeights() {
		t.Errorf("workspace home: %+v", w)
	}
	if w, known := c.Workspace("workspace:other"); known || w.Weights != resolve.DefaultWeights() || !w.AnyKey {
		t.Errorf("an unlisted workspace must have the defaults: %+v", w)
	}
}

// FuzzParse: any bytes give a catalogue or faults with a place, never a panic,
// and reading twice gives the same.
func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.yaml")
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := Parse("f", b)
		again, errAgain := Parse("f", b)
		if !reflect.DeepEqual(c, again) || fmt.Sprint(err) != fmt.Sprint(errAgain) {
			t.Fatal("two readings differ")
		}
		var invalid *Invalid
		if err == nil {
			if len(c.Primitives) == 0 {
				t.Fatal("accepted without a primitive")
			}
			return
		}
		if !errors.As(err, &invalid) || len(invalid.Problems) == 0 {
			t.Fatalf("error %v", err)
		}
		for _, p := range invalid.Problems {
			if p.Line < 1 || p.Column < 1 || strings.ContainsAny(p.Message, "\n\r") || p.Message == "" {
				t.Fatalf("problem %+v", p)
			}
		}
	})
}

func BenchmarkParse1000Providers(b *testing.B) {
	var y strings.Builder
	y.WriteString("providers:\n")
	for i := range 1000 {
		fmt.Fprintf(&y, "  - name: p%d\n    adapter: openai\n    endpoint: https://p%d.example/v1\n    keys: [p%d]\n    models:\n      - {name: m, primitives: [llm.chat], price: {input_per_mtok: 0.1, output_per_mtok: 0.4}, prior: {latency_ms: 300, reliability: 0.99, quality: 0.5}}\n", i, i, i)
	}
	y.WriteString("primitives:\n  - name: llm.chat\n    default: [p0/m, peer]\n")
	b.SetBytes(int64(y.Len()))
	for b.Loop() {
		if _, err := Parse("c", []byte(y.String())); err != nil {
			b.Fatal(err)
		}
	}
}

// TestExampleOfTheDocs: the page shows a catalogue that is one.
func TestExampleOfTheDocs(t *testing.T) {
	page, err := os.ReadFile("../../docs/catalogue.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(page), "```yaml\n")
	example, _, ok := strings.Cut(example, "```")
	if !ok {
		t.Fatal("no example")
	}
	if _, err := Parse("docs/catalogue.md", []byte(example)); err != nil {
		t.Error(err)
	}
}

// TestManyModels: what is large but honest is no bomb: a thousand models, on one
// line or on a thousand, and the longest default.
func TestManyModels(t *testing.T) {
	models, defaults := make([]string, maxModels), make([]string, chain.MaxOptions)
	for i := range models {
		models[i] = fmt.Sprintf("{name: m%d, primitives: [p], price: {per_call: 1}, prior: {quality: 0.5}}", i)
	}
	for i := range defaults {
		defaults[i] = fmt.Sprintf("\n      - a/m%d", i)
	}
	text := "providers:\n  - {name: a, adapter: fetch, models: [" + strings.Join(models, ", ") + "]}\n  - name: b\n    adapter: fetch\n    models:\n      - " +
		strings.Join(models, "\n      - ") + "\nprimitives:\n  - name: p\n    default:" + strings.Join(defaults, "") + "\n"
	if _, err := Parse("c", []byte(text)); err != nil {
		t.Errorf("%.300s", err)
	}
	for _, over := range []string{strings.Replace(text, "models: [", "models: [{name: x, primitives: [p]}, ", 1), text + "\n      - b/m0\n"} {
		if _, err := Parse("c", []byte(over)); err == nil || !strings.Contains(err.Error(), "at most") {
			t.Errorf("one over a limit: %.200v", err)
		}
	}
}

// Some editors begin a file with a byte order mark.
func TestAByteOrderMark(t *testing.T) {
	if _, err := Parse("c.yaml", []byte("\ufeffprimitives: [{name: llm.chat, default: [local]}]\n")); err != nil {
		t.Error(err)
	}
}
