package openai

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

// all reads every event of a stream.
func all(r io.Reader) (list []string, err error) {
	e := newEvents(r)
	defer e.free()
	for {
		data, err := e.next()
		if err == io.EOF {
			return list, nil
		}
		if err != nil {
			return list, err
		}
		list = append(list, string(data))
	}
}

// slowly is the same by the letter of the standard, without a thought for speed.
func slowly(text string) (list []string) {
	text = strings.TrimPrefix(text, "\ufeff")
	text = strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\r", "\n")
	var data []string
	give := func() {
		if s := strings.Join(data, "\n"); s != "" {
			list = append(list, s)
		}
		data = nil
	}
	for _, line := range strings.Split(text, "\n") {
		if line == "" {
			give()
			continue
		}
		field, value, _ := strings.Cut(line, ":")
		if field == "data" {
			data = append(data, strings.TrimPrefix(value, " "))
		}
	}
	give()
	return list
}

var streams = []string{
	"", "\n", "data: a\n\n", "data: a\r\n\r\n", "data: a\r\r", "data: a\n\r\n", "data: a\r\n\n", "data:a\n\n", "data:  a\n\n", "data: a", "data: a\n", "data: a\r",
	"data: a\ndata: b\n\n", "data: a\n\ndata: b", ": x\n\ndata: a\n\n", "event: x\nid: 1\nretry: 5\ndata: a\nfoo\n\n", "data\n\n", "data:\n\n", "data:\ndata: a\n\n", "data: a\ndata:\n\n",
	"\ufeffdata: a\n\n", "data: \ufeff\n\n", "data: é世界\n\n", "dat: a\n\ndata : b\n\n", "data: a:b: c\n\n", "\r\n\r\ndata: a\n\n", "data: a\n\n\n\ndata: b\n\n",
}

func TestStreamsAreReadByTheStandard(t *testing.T) {
	for _, s := range streams {
		want := slowly(s)
		for name, r := range map[string]io.Reader{"whole": strings.NewReader(s), "by the byte": iotest.OneByteReader(strings.NewReader(s)), "with the end": iotest.DataErrReader(strings.NewReader(s))} {
			if got, err := all(r); err != nil || !slices.Equal(got, want) {
				t.Errorf("%q, %s: %q (%v), want %q", s, name, got, err, want)
			}
		}
	}
}

// pieces reads text in the given sizes, again and again.
type pieces struct {
	text  []byte
	sizes []int
	next  int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.text) == 0 {
		return 0, io.EOF
	}
	n := min(p.sizes[p.next%len(p.sizes)], len(p.text), len(b))
	p.next++
	copy(b, p.text[:n])
	p.text = p.text[n:]
	return n, nil
}

func TestSplitsDoNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		line := rapid.SampledFrom([]string{"data: ", "data:", ": ", "event: ", "", "id:", "x"})
		end := rapid.SampledFrom([]string{"\n", "\r\n", "\r"})
		word := rapid.OneOf(rapid.StringMatching(`[a-zé世:" ]{0,20}`), rapid.Just(strings.Repeat("long", 9000)))
		var b bytes.Buffer
		for range rapid.IntRange(0, 30).Draw(t, "lines") {
			if rapid.Bool().Draw(t, "blank") {
				b.WriteString(end.Draw(t, "end"))
				continue
			}
			b.WriteString(line.Draw(t, "field") + word.Draw(t, "value") + end.Draw(t, "end"))
		}
		sizes := rapid.SliceOfN(rapid.IntRange(1, 5000), 1, 5).Draw(t, "sizes")
		got, err := all(&pieces{text: b.Bytes(), sizes: sizes})
		if want := slowly(b.String()); err != nil || !slices.Equal(got, want) {
			t.Fatalf("%q (%v), want %q", got, err, want)
		}
	})
}

func FuzzEvents(f *testing.F) {
	for _, s := range streams {
		f.Add([]byte(s), 1)
		f.Add([]byte(s), 7)
	}
	f.Fuzz(func(t *testing.T, text []byte, size int) {
		got, err := all(&pieces{text: text, sizes: []int{max(size%100, 1)}})
		if want := slowly(string(text)); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %q (%v), want %q", text, got, err, want)
		}
	})
}

func TestLinesAreBounded(t *testing.T) {
	line := func(n int) io.Reader { // a line of n bytes
		return io.MultiReader(strings.NewReader("data: "), io.LimitReader(zeroes{}, int64(n-6)), strings.NewReader("\n\n"))
	}
	if got, err := all(line(maxLine)); err != nil || len(got) != 1 || len(got[0]) != maxLine-6 {
		t.Errorf("at the limit: %d events, %v", len(got), err)
	}
	if _, err := all(line(maxLine + 1)); !errors.Is(err, errLine) {
		t.Errorf("one over: %v", err)
	}
	if _, err := all(line(64 << 20)); !errors.Is(err, errLine) {
		t.Errorf("far over: %v", err)
	}
	joined := strings.NewReader(strings.Repeat("data: "+strings.Repeat("0", 1<<20)+"\n", 17))
	if _, err := all(joined); !errors.Is(err, errLine) {
		t.Errorf("joined over the limit: %v", err)
	}
}

type zeroes struct{}

func (zeroes) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = '0'
	}
	return len(p), nil
}

func TestABrokenStreamGivesNoHalfEvent(t *testing.T) {
	broken := errors.New("reset")
	got, err := all(io.MultiReader(strings.NewReader("data: a\n\ndata: b\n"), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) || !slices.Equal(got, []string{"a"}) {
		t.Errorf("%q, %v", got, err)
	}
	if _, err := all(stuck{}); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("a reader that gives nothing for ever: %v", err)
	}
}

type stuck struct{}

func (stuck) Read([]byte) (int, error) { return 0, nil }
