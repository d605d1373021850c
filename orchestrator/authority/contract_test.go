package authority

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// The generated types are those of openapi.yaml: a change of one without the
// other fails here, also where the generator is not at hand. That requests and
// answers are what the document says is shown where all services are at hand, in the
// command.
func TestTypesAreTheDocuments(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromFile("openapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, v := range doc.Components.Schemas["Code"].Value.Enum {
		if !Code(v.(string)).Valid() {
			t.Errorf("code %v is not in types.gen.go", v)
		}
	}
	for status, kind := range kinds {
		if !slices.Contains(doc.Components.Schemas["ErrorType"].Value.Enum, any(string(kind))) {
			t.Errorf("%d: type %s is not in openapi.yaml", status, kind)
		}
	}
	for name, v := range map[string]any{"ErrorResponse": ErrorResponse{}, "ErrorDetail": ErrorDetail{}, "ChallengeRequest": ChallengeRequest{}, "Challenge": Challenge{},
		"TokenRequest": TokenRequest{}, "Token": Token{}, "Accepted": Accepted{}, "Proof": Proof{}, "LedgerKey": LedgerKey{}} {
		var got []string
		for i := range reflect.TypeOf(v).NumField() {
			got = append(got, reflect.TypeOf(v).Field(i).Tag.Get("json"))
		}
		want := slices.Clone(doc.Components.Schemas[name].Value.Required)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%s: types.gen.go has %v, openapi.yaml %v", name, got, want)
		}
	}
}

// The generator makes types.gen.go as it is, byte for byte.
func TestGeneratedFileIsCurrent(t *testing.T) {
	if testing.Short() {
		t.Skip("builds and runs the generator: not in short mode")
	}
	config, err := os.ReadFile("oapi.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	out, in := filepath.Join(dir, "types.go"), filepath.Join(dir, "oapi.yaml")
	if err := os.WriteFile(in, []byte(strings.Replace(string(config), "output: types.gen.go", "output: "+out, 1)), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "tool", "-modfile=../../tools/go.mod", "oapi-codegen", "--config", in, "openapi.yaml")
	if msg, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the generator of tools/go.mod: %v: %.500s", err, msg)
	}
	want, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile("types.gen.go"); err != nil || string(got) != string(want) {
		t.Errorf("types.gen.go is not what openapi.yaml gives: run go generate ./orchestrator/authority (%v)", err)
	}
}
