package catalog_test

import (
	"strings"
	"testing"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/chordwheel/chordwheel/orchestrator/catalog"
)

func node(t *testing.T, text string) ast.Node {
	t.Helper()
	f, err := parser.ParseBytes([]byte(text), 0)
	if err != nil {
		t.Fatal(err)
	}
	return f.Docs[0].Body.(*ast.MappingNode).Values[1].Value
}

func TestServicesAreReadInTheCataloguesForm(t *testing.T) {
	services, err := catalog.Services("config.yaml", node(t, `
name: laptop
adapters:
  - name: ollama
    adapter: openai
    endpoint: http://127.0.0.1:11434/v1
    models: [{name: "qwen2.5:7b", primitives: [llm.chat]}]
`))
	if err != nil || len(services) != 1 || services[0].Name != "ollama" || services[0].Models[0].Name != "qwen2.5:7b" {
		t.Fatalf("services %+v, error %v", services, err)
	}
}

func TestAServiceWithAFaultNamesItsPlaceInTheWholeFile(t *testing.T) {
	_, err := catalog.Services("config.yaml", node(t, `
name: laptop
adapters:
  - name: ollama
    adapter: openai
    models: [{name: a, primitives: [llm.chat], price: {input_per_mtok: -1}}]
`))
	if err == nil || !strings.Contains(err.Error(), "config.yaml:6:") {
		t.Fatalf("error %v: want the place of the negative price, line 6", err)
	}
}
