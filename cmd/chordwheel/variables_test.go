package main

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

func TestUnknownVariablesAreNamed(t *testing.T) {
	for _, c := range []struct{ environ, want string }{
		{"CHORDWHEEL_LGO=debug", "CHORDWHEEL_LGO (did you mean CHORDWHEEL_LOG?)"},
		{"CHORDWHEEL_PIPLINE=1", "CHORDWHEEL_PIPLINE (did you mean CHORDWHEEL_PIPELINE?)"},
		{"CHORDWHEEL_ORIGIN=https://a.example", "CHORDWHEEL_ORIGIN (did you mean CHORDWHEEL_ORIGINS?)"},
		{"CHORDWHEEL_COLOUR_OF_THE_SKY=secret", "CHORDWHEEL_COLOUR_OF_THE_SKY"},
		{"CHORDWHEEL_WEBB=1 CHORDWHEEL_LGO=1 CHORDWHEEL_LGO=2", "CHORDWHEEL_LGO (did you mean CHORDWHEEL_LOG?), CHORDWHEEL_WEBB (did you mean CHORDWHEEL_WEB?)"},
		{"CHORDWHEEL_DIR=/data CHORDWHEEL_LOG=debug CHORDWHEEL_SHARING=off CHORDWHEEL_PIPELINE=true CHORDWHEEL_LEDGER_TOKEN=t CHORDWHEEL_INVITE=i CHORDWHEEL_SNAPSHOT_INTERVAL=30s", ""},
		{"CHORDWHEEL_KEY_GROQ=k CHORDWHEEL_TEST_AS_PROGRAM=1", ""},
		{"CHORDWHEEL_PORT=tcp://10.0.0.1:7420 CHORDWHEEL_PORT_7420_TCP_ADDR=10.0.0.1 CHORDWHEEL_SERVICE_HOST=10.0.0.1 CHORDWHEEL_SERVICE_PORT_EDGE=7420", ""},
		{"CHORDWHEEL_HUB_SERVICE_HOST=10.0.0.1 CHORDWHEEL_HUB_PORT=tcp://10.0.0.1:7443 CHORDWHEEL_HUB_PORT_7443_TCP=x CHORDWHEEL_ENV_PATH=/bin", ""},
		{"PATH=/bin CHORD=1", ""},
	} {
		if got := strings.Join(unknownVariables(strings.Fields(c.environ)), ", "); got != c.want {
			t.Errorf("%s: %q, want %q", c.environ, got, c.want)
		}
	}
	var many []string
	for i := range 20 {
		many = append(many, fmt.Sprintf("CHORDWHEEL_SOMETHING_%02d=%s", i, strings.Repeat("v", 1<<16)))
	}
	many = append(many, "CHORDWHEEL_"+strings.Repeat("A", 1<<16)+"=1")
	if got := unknownVariables(many); len(got) != maxVariables+1 || got[maxVariables] != "and 13 more" || len(strings.Join(got, "")) > 1024 {
		t.Errorf("%.2000q", got)
	}
}

// The start of a node warns of them in its log, and goes on.
func TestAStartWarnsOfUnknownVariables(t *testing.T) {
	for environ, want := range map[string]int{"CHORDWHEEL_LGO=hush CHORDWHEEL_WEBB=hush": 1, "CHORDWHEEL_LOG=info": 0} {
		var said bytes.Buffer
		a := &app{dir: t.TempDir(), environ: strings.Fields(environ), err: &said}
		if _, err := a.deviceOptions(); err != nil {
			t.Fatal(err)
		}
		if lines := strings.Count(said.String(), "\n"); lines != want || want == 1 && !strings.Contains(said.String(), "did you mean CHORDWHEEL_LOG?") || strings.Contains(said.String(), "hush") {
			t.Errorf("%s: %q", environ, said.String())
		}
	}
}
