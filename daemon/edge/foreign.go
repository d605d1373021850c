package edge

import (
	"errors"

	"github.com/chordwheel/chordwheel/chain"
)

// ErrStream says that a request is streamed in one place and plain in another.
var ErrStream = errors.New("the request does not ask for the kind of answer that was said to be wanted")

// foreignLimits are for requests that another device's edge let through, whose
// owner may have set wider limits: only what no edge could allow is refused.
var foreignLimits = Limits{Messages: 1 << 20, Depth: 512}

// CheckForeign checks a request that came from another device, which says that its
// edge let it through: adapters are given nothing that an edge has not read. body is
// what a [Work] of primitive p has, stream what the other device said of it. Errors
// hold places and no content.
func CheckForeign(p chain.Primitive, body []byte, stream bool) error {
	asked := false
	if p.LLM() {
		c, err := readChat(body, foreignLimits)
		if err != nil {
			return err
		}
		asked = c.stream
	} else if _, _, err := readWork(body, p, foreignLimits); err != nil {
		return err
	}
	if asked != stream {
		return ErrStream
	}
	return nil
}
