package did

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// ParseURL takes a DID URL apart: the DID, and which version of it the query asks for, one of
// versionId, versionNumber and versionTime. Paths and fragments name something in or
// behind a document and are refused, as any other query is. Errors wrap ErrInvalid.
func ParseURL(text string) (did string, want Want, err error) {
	did, query, ok := strings.Cut(text, "?")
	if strings.ContainsAny(text, "#/") {
		return "", want, fmt.Errorf("%w: %q is more than a DID: want it without path and fragment", ErrInvalid, chain.Clip(text))
	}
	if !ok {
		return did, want, nil
	}
	// A plus stands for itself in a DID URL: times have some.
	q, err := url.ParseQuery(strings.ReplaceAll(query, "+", "%2B"))
	if err == nil {
		err = want.read(q)
	}
	if err == nil && !strings.HasPrefix(did, "did:webvh:") {
		err = errors.New("only a did:webvh has versions")
	}
	if err != nil {
		return "", Want{}, fmt.Errorf("%w: %q: %w", ErrInvalid, chain.Clip(text), err)
	}
	return did, want, nil
}

// read takes the one member of a query.
func (w *Want) read(q url.Values) (err error) {
	for name, values := range q {
		if len(q) > 1 || len(values) > 1 || values[0] == "" {
			return errors.New("want one of versionId, versionNumber and versionTime, once")
		}
		switch v := values[0]; name {
		case "versionId":
			w.VersionID = v
		case "versionNumber":
			if w.Number, err = strconv.Atoi(v); err != nil || w.Number < 1 {
				return errors.New("versionNumber: want 1 or more")
			}
		case "versionTime":
			if w.At, err = time.Parse(time.RFC3339, v); err != nil {
				return errors.New("versionTime: want a time such as 2026-05-01T10:00:00Z")
			}
		default:
			return errors.New("want versionId, versionNumber or versionTime")
		}
	}
	return nil
}
