package openai

import (
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

	"github.com/chordwheel/chordwheel/chain"
)

// Limits on answers, after decompression.
const (
	maxErrorBody = 1 << 20 // of an answer that is an error
	ratioFrom    = 8 << 20 // bytes from which on the ratio counts
	maxRatio     = 100     // of decompressed to compressed bytes
)

// Faults of a body that are the server's doing, not the connection's.
var (
	errTooLarge = errors.New("the answer is larger than allowed")
	errRatio    = errors.New("the answer is compressed beyond belief")
	errEncoding = errors.New("the answer has a content encoding that was not asked for")
)

// counted counts bytes on their way and stops after limit of them.
type counted struct {
	r     io.Reader
	n     int64
	limit int64
}

// Read implements [io.Reader].
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if c.n += int64(n); c.n > c.limit {
		return 0, errTooLarge
	}
	return n, err
}

// unzipped is a gzip body that was not asked for but came all the same.
type unzipped struct {
	packed counted
	zip    *gzip.Reader
	n      int64
}

// Read implements [io.Reader]. The header is read with the first call, so that
// making one never waits for the network.
func (u *unzipped) Read(p []byte) (int, error) {
	if u.zip == nil {
		var err error
		if u.zip, err = gzip.NewReader(&u.packed); err != nil {
			return 0, err
		}
	}
	n, err := u.zip.Read(p)
	if u.n += int64(n); u.n > ratioFrom && u.n > maxRatio*u.packed.n {
		return 0, errRatio
	}
	return n, err
}

// body gives resp's body, decompressed, limited to so many bytes.
func body(resp *http.Response, limit int64) (io.Reader, error) {
	switch encoding := strings.ToLower(strings.TrimSpace(resp.Header.Get("Content-Encoding"))); encoding {
	case "", "identity":
		return &counted{r: resp.Body, limit: limit}, nil
	case "gzip", "x-gzip":
		return &counted{r: &unzipped{packed: counted{r: resp.Body, limit: limit}}, limit: limit}, nil
	default:
		return nil, fmt.Errorf("%q: %w", chain.Clip(encoding), errEncoding)
	}
}

// isType reports whether h declares one of the media types want, in UTF-8.
// A server that declares none is believed to have sent what was asked for.
func isType(h http.Header, want ...string) bool {
	declared := h.Get("Content-Type")
	if declared == "" {
		return true
	}
	for _, w := range want { // without a parse where it is written as usual
		if declared == w {
			return true
		}
	}
	media, params, err := mime.ParseMediaType(declared)
	if err != nil {
		return false
	}
	switch strings.ToLower(params["charset"]) {
	case "", "utf-8", "utf8", "us-ascii", "ascii":
	default:
		return false
	}
	for _, w := range want {
		if media == w {
			return true
		}
	}
	return false
}
