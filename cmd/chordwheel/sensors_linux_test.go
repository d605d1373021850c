package main

import (
	"testing"
	"testing/fstest"

	"github.com/chordwheel/chordwheel/daemon/sharing"
)

func TestMainsPower(t *testing.T) {
	supply := func(files ...string) fstest.MapFS {
		m := fstest.MapFS{}
		for i := 0; i < len(files); i += 2 {
			m[files[i]] = &fstest.MapFile{Data: []byte(files[i+1] + "\n")}
		}
		return m
	}
	for name, c := range map[string]struct {
		supplies fstest.MapFS
		want     sharing.Reading
	}{
		"a desktop":                {supply("hid/type", "Battery", "hid/scope", "Device"), sharing.Yes},
		"a server":                 {supply(), sharing.Yes},
		"a laptop on its battery":  {supply("BAT0/type", "Battery", "AC/type", "Mains", "AC/online", "0"), sharing.No},
		"a laptop that is plugged": {supply("BAT0/type", "Battery", "AC/type", "Mains", "AC/online", "1"), sharing.Yes},
		"charged by USB":           {supply("BAT0/type", "Battery", "ucsi/type", "USB", "ucsi/online", "1"), sharing.Yes},
		"a battery and no adapter": {supply("BAT0/type", "Battery"), sharing.No},
	} {
		if got := mainsIn(c.supplies); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

func TestQuiet(t *testing.T) {
	for text, want := range map[string]sharing.Reading{
		"0.10 2.00 3.00 1/100 5\n": sharing.Yes, "2.00 0.00 0.00 1/100 5\n": sharing.Yes, "2.01 0.00 0.00 1/100 5\n": sharing.No, "": sharing.Unknown, "x": sharing.Unknown,
	} {
		if got := quietIn(fstest.MapFS{"loadavg": {Data: []byte(text)}}, 4); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
	if got := quietIn(fstest.MapFS{}, 4); got != sharing.Unknown {
		t.Errorf("without a file: %v", got)
	}
}
