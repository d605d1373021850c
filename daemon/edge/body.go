package edge

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"time"
)

// readBody reads the body, of so many bytes at most, into w after the checks that
// need none of it.
//
// The bytes are made anew for each request and never pooled: an HTTP transport
// may go on reading a request's body for a moment after the call was cancelled,
// and would then send another caller's words.
func (x *exchange) readBody(w *Work, most int64) *Refusal {
	r, l := x.r, x.edge.limits
	if refusal := checkContent(r.Header); refusal != nil {
		return refusal
	}
	if r.ContentLength > most {
		return tooLarge(most)
	}
	x.rc.SetReadDeadline(time.Now().Add(l.BodyRead)) // unsupported only in tests
	// Half a promise costs nothing: only who sent 64 KiB gets the rest set aside.
	size := int64(64 << 10)
	if r.ContentLength >= 0 {
		size = min(size, r.ContentLength+1) // one more, to see the end
	}
	b := make([]byte, 0, size)
	for {
		n, err := r.Body.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if int64(len(b)) > most {
			return tooLarge(most)
		}
		if err == io.EOF {
			break
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return invalid("body: it did not arrive within %s", l.BodyRead)
		}
		if err != nil {
			return invalid("body: it ended early, after %d bytes", len(b))
		}
		if len(b) == cap(b) {
			b = grow(b, r.ContentLength)
		}
	}
	x.bodyRead = true
	x.rc.SetReadDeadline(time.Time{})
	x.in = int64(len(b))
	if len(b) == 0 && !x.blank {
		return invalid("body: missing: send a JSON object")
	}
	w.Body = b
	return nil
}

func tooLarge(most int64) *Refusal {
	return Refuse(RequestTooLarge, "the body is over %d bytes", most)
}

// grow makes room: for the whole promised length, or twice as much.
func grow(b []byte, promised int64) []byte {
	size := 2*cap(b) + 512
	if promised > int64(len(b)) {
		size = int(promised) + 1
	}
	return append(make([]byte, 0, size), b...)
}

// checkContent demands JSON as it is. A page of a foreign site can send other
// types without a preflight.
func checkContent(h http.Header) *Refusal {
	if enc := h["Content-Encoding"]; len(enc) > 1 || len(enc) == 1 && !strings.EqualFold(enc[0], "identity") {
		return Refuse(UnsupportedMediaType, "Content-Encoding: the body must not be compressed")
	}
	types := h["Content-Type"]
	if len(types) == 1 {
		if types[0] == "application/json" {
			return nil
		}
		media, params, err := mime.ParseMediaType(types[0])
		charset, given := params["charset"]
		if err == nil && media == "application/json" && (!given || strings.EqualFold(charset, "utf-8")) {
			return nil
		}
	}
	return Refuse(UnsupportedMediaType, "Content-Type: want application/json, in UTF-8")
}
