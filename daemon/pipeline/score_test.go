package pipeline

import (
	"math"
	"strings"
	"testing"
)

func TestScoresInScorersText(t *testing.T) {
	for name, c := range map[string]struct {
		text   string
		score  float64
		issues string // joined by |
		read   bool
	}{
		"bare":                  {`{"score":0.4,"issues":["too long","no source"]}`, 0.4, "too long|no source", true},
		"in a fence":            {"```\n{\"score\":0.4}\n```", 0.4, "", true},
		"in prose":              {`I'd say {"score": 0.25, "issues": []} [sic].`, 0.25, "", true},
		"in quotes":             {`{"score":" 0.5 "}`, 0.5, "", true},
		"above 1":               {`{"score":7}`, 1, "", true},
		"below 0":               {`{"score":-0.1,"issues":["x"]}`, 0, "x", true},
		"issues as objects":     {`{"score":0,"issues":[{"issue":"a"},{"description":"b","n":1},{"x":"y"},3,null]}`, 0, "a|b", true},
		"one issue, no list":    {`{"score":0.3,"issues":"too long"}`, 0.3, "too long", true},
		"issues are a number":   {`{"score":0.3,"issues":7}`, 0.3, "", true},
		"the same issue twice":  {`{"score":0,"issues":["The second paragraph has no source","the  second PARAGRAPH has none at all","  "]}`, 0, "The second paragraph has no source", true},
		"lines in an issue":     {`{"score":0,"issues":["a\n\tb"]}`, 0, "a b", true},
		"not a number":          {`{"score":"NaN"}`, 1, "", false},
		"infinite":              {`{"score":"-Inf"}`, 1, "", false},
		"beyond all numbers":    {`{"score":1e999}`, 1, "", false},
		"a word":                {`{"score":"good"}`, 1, "", false},
		"null":                  {`{"score":null,"issues":["x"]}`, 1, "", false},
		"no score":              {`{"issues":["x"]}`, 1, "", false},
		"a list":                {`[0.3]`, 1, "", false},
		"rubbish":               {"\x00\xff%%%", 1, "", false},
		"nothing":               {"", 1, "", false},
		"the second one counts": {`{"a":1} {"score":0.3}`, 0.3, "", true},
	} {
		t.Run(name, func(t *testing.T) {
			v := parseScore(c.text)
			if v.score != c.score || strings.Join(v.issues, "|") != c.issues || v.read != c.read {
				t.Errorf("%+v, want %+v", v, c)
			}
		})
	}
}

func TestIssuesAreCapped(t *testing.T) {
	var many []string
	for i := range 1000 {
		many = append(many, `"`+strings.Repeat(string(rune('a'+i%26)), 1+i)+`"`)
	}
	v := parseScore(`{"score":0,"issues":[` + strings.Join(many[:200], ",") + `]}`)
	if len(v.issues) != maxIssues {
		t.Errorf("%d issues, want %d", len(v.issues), maxIssues)
	}
	v = parseScore(`{"score":0,"issues":["` + strings.Repeat("é", 10000) + `"]}`)
	if len(v.issues) != 1 || len(v.issues[0]) > maxIssue+len("…") {
		t.Errorf("an issue of %d bytes, want %d", len(v.issues[0]), maxIssue)
	}
}

func TestIssuesAreTheSameByHowTheyBegin(t *testing.T) {
	before := []string{"The conclusion does not follow from the data", "No source for the second claim", "Übergänge fehlen"}
	now := []string{"the conclusion  does not FOLLOW at all", "ÜBERGÄNGE fehlen", "Too long"}
	fixed, fresh := compare(before, now)
	if strings.Join(fixed, "|") != "No source for the second claim" || fresh != 1 {
		t.Errorf("fixed %q, %d new", fixed, fresh)
	}
	if issueKey("123456789012345678901234A") != issueKey("123456789012345678901234B") || issueKey("12345678901234567890123A") == issueKey("12345678901234567890123B") {
		t.Error("want 24 characters to count, no more and no fewer")
	}
}

func FuzzScore(f *testing.F) {
	f.Add(`{"score":0.4,"issues":["too long",{"issue":"no source"}]}`)
	f.Add(`x {"score":"1e400"} {"score":-3}`)
	f.Add(`{"score":0.1,"issues":["` + strings.Repeat("é", 300) + `"]}`)
	f.Fuzz(func(t *testing.T, text string) {
		v := parseScore(text)
		if math.IsNaN(v.score) || v.score < 0 || v.score > 1 || !v.read && (v.score != 1 || v.issues != nil) || len(v.issues) > maxIssues {
			t.Fatalf("%+v", v)
		}
		for _, s := range v.issues {
			if blank(s) || len(s) > maxIssue+len("…") {
				t.Errorf("issue %q", s)
			}
		}
		if fixed, fresh := compare(v.issues, v.issues); len(fixed) != 0 || fresh != 0 {
			t.Errorf("%d fixed and %d new of the same issues %q", len(fixed), fresh, v.issues)
		}
	})
}
