package authority

import (
	"reflect"
	"slices"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
)

// The generated types are those of openapi.yaml: a change of one without the
// other fails here, also where the generator is not at hand (`make drift` runs it).
// That requests and answers are what the document says is shown where all services are
// at hand, in the command.
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
