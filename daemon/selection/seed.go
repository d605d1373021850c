// Package selection owns the choice behind the model `auto`: which capability a
// request asks for, and which options of a chain may serve it. It reads the seed
// file's taxonomy, matches words against it and filters options. It is pure: no
// model is asked, nothing is fetched, and what an agent's standing is comes in
// through [Agents]. It keeps no text of a request and must not know HTTP, tokens or
// how an option is run. docs/selection.md has the rules and their figures.
package selection

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Bounds of a seed file. They keep the index small enough that matching stays far
// below a millisecond.
const (
	MaxSeedBytes    = 4 << 20
	maxCapabilities = 256
	maxPhrases      = 2000 // keywords or examples of one capability
	maxPhraseBytes  = 1024
	maxWrong        = 8 // mistakes named in one error
)

// ErrSeed is wrapped by every refusal of a seed file.
var ErrSeed = errors.New("seed file")

// Capability is one entry of a taxonomy.
type Capability struct {
	ID        string          // what agents and tokens name
	Primitive chain.Primitive // whose chain serves it
}

// seed is the file. Its agents are the snapshot's matter.
type seed struct {
	Date         string `json:"date"`
	Capabilities []struct {
		ID          string   `json:"id"`
		Primitive   string   `json:"primitive"` // absent: the ID is the primitive's name
		Description string   `json:"description"`
		Keywords    []string `json:"keywords"`
		Examples    []string `json:"examples"`
	} `json:"capabilities"`
}

// Parse reads a seed file:
//
//	{"date": "2026-11-30", "agents": […],
//	 "capabilities": [{"id": "translate", "primitive": "llm.t2", "description": "…",
//	                   "keywords": ["translat*", "into french"], "examples": ["say this in Spanish"]}]}
//
// A keyword is a word, several words in a row, or the beginning of one with a star
// behind it; case and accents do not count. date is a day or an RFC 3339 time. The
// error wraps [ErrSeed] and names what is wrong, several mistakes at once.
func Parse(b []byte) (*Taxonomy, error) {
	if len(b) > MaxSeedBytes {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrSeed, len(b), MaxSeedBytes)
	}
	var s seed
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("%w: not the JSON of one: %s", ErrSeed, chain.ClipTo(err.Error(), 200))
	}
	date, err := parseDate(s.Date)
	var wrong []string
	if err != nil {
		wrong = append(wrong, err.Error())
	}
	if len(s.Capabilities) > maxCapabilities {
		return nil, fmt.Errorf("%w: %d capabilities, at most %d", ErrSeed, len(s.Capabilities), maxCapabilities)
	}
	t := &Taxonomy{date: date}
	for i, c := range s.Capabilities {
		place := fmt.Sprintf("capabilities[%d]", i)
		primitive := c.Primitive
		if primitive == "" {
			primitive = c.ID
		}
		p, err := chain.ParsePrimitive(primitive)
		switch {
		case c.ID == "" || len(c.ID) > 128 || strings.ContainsAny(c.ID, " \t\r\n"):
			wrong = append(wrong, place+".id: want 1 to 128 bytes without spaces")
		case slices.ContainsFunc(t.capabilities, func(have Capability) bool { return have.ID == c.ID }):
			wrong = append(wrong, fmt.Sprintf("%s.id: %q stands there twice", place, chain.Clip(c.ID)))
		case err != nil:
			wrong = append(wrong, fmt.Sprintf("%s.primitive: %s; name one, such as llm.chat", place, err))
		case len(c.Keywords) == 0 && len(c.Examples) == 0:
			wrong = append(wrong, place+": neither keywords nor examples: nothing can match it")
		}
		wrong = append(wrong, wrongPhrases(place+".keywords", c.Keywords)...)
		wrong = append(wrong, wrongPhrases(place+".examples", c.Examples)...)
		t.capabilities = append(t.capabilities, Capability{c.ID, p})
	}
	if len(wrong) > maxWrong {
		wrong = append(wrong[:maxWrong], fmt.Sprintf("and %d more", len(wrong)-maxWrong))
	}
	if len(wrong) > 0 {
		return nil, fmt.Errorf("%w: %s", ErrSeed, strings.Join(wrong, "; "))
	}
	t.build(s)
	return t, nil
}

func parseDate(s string) (time.Time, error) {
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if d, err := time.Parse(layout, s); err == nil {
			return d, nil
		}
	}
	return time.Time{}, fmt.Errorf("date: %q is no date: write it as in 2026-11-30", chain.Clip(s))
}

func wrongPhrases(place string, phrases []string) (wrong []string) {
	if len(phrases) > maxPhrases {
		return []string{fmt.Sprintf("%s: %d, at most %d", place, len(phrases), maxPhrases)}
	}
	var buf scratch
	for i, p := range phrases {
		buf.fold([]byte(p))
		if len(buf.words) == 0 || len(p) > maxPhraseBytes {
			wrong = append(wrong, fmt.Sprintf("%s[%d]: want 1 to %d bytes with a letter or digit in them", place, i, maxPhraseBytes))
		}
	}
	return wrong
}

// Date is the day that the seed file says it is of.
func (t *Taxonomy) Date() time.Time { return t.date }

// Capabilities gives the entries in the file's order.
func (t *Taxonomy) Capabilities() []Capability { return slices.Clone(t.capabilities) }
