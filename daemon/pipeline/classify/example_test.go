package classify_test

import (
	"fmt"

	"github.com/chordwheel/chordwheel/daemon/pipeline/classify"
)

func Example() {
	fmt.Println(classify.Line(classify.Text("What is the capital of Peru?")))
	fmt.Println(classify.Line(classify.Text("Vergleiche drei Heizungen und begründe ausführlich, welche du empfiehlst.")))
	fmt.Println(classify.Line(classify.Text("テストを実行して、結果をメールで送ってください。")))
	// Output:
	// simple: lookup,short
	// complex: analysis,depth
	// agentic: act,tool
}
