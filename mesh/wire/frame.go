package wire

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/chordwheel/chordwheel/chain"
)

// Errors of frames and messages. Whoever sent the bytes is to blame; the
// reader gives up the stream they came on.
var (
	ErrFrame    = errors.New("not a frame")               // the length is no shortest varint
	ErrTooLarge = errors.New("larger than allowed here")  // refused before anything was allocated
	ErrMessage  = errors.New("the message breaks a rule") // well encoded, but out of range or unknown
)

// Message is anything in this package that travels as a frame or as the
// payload of gossip. Validate says whether it is within its limits; the error
// wraps ErrMessage.
type Message interface{ Validate() error }

// Encode validates m and gives its bytes. A message that its reader would
// refuse is not sent.
func Encode(m Message) ([]byte, error) {
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return chain.Marshal(m)
}

// Decode reads b into m, which is a pointer to a zero message, and validates
// it. Errors wrap chain.ErrEncoding or ErrMessage.
func Decode(b []byte, m Message) error {
	if err := chain.Unmarshal(b, m); err != nil {
		return err
	}
	return m.Validate()
}

// Write sends m as one frame, in one call of w.Write.
func Write(w io.Writer, m Message) error {
	b, err := Encode(m)
	if err != nil {
		return err
	}
	return WriteFrame(w, b)
}

// Read reads one frame of at most limit bytes into m.
func Read(r Reader, limit int, m Message) error {
	b, err := ReadFrame(r, limit)
	if err != nil {
		return err
	}
	return Decode(b, m)
}

// WriteFrame sends payload with its length before it. Payloads over MaxControl
// are refused with ErrTooLarge and nothing is written.
func WriteFrame(w io.Writer, payload []byte) error {
	if len(payload) > MaxControl {
		return fmt.Errorf("%w: frame of %d bytes, at most %d", ErrTooLarge, len(payload), MaxControl)
	}
	b := make([]byte, 0, len(payload)+binary.MaxVarintLen32)
	b = binary.AppendUvarint(b, uint64(len(payload)))
	if _, err := w.Write(append(b, payload...)); err != nil {
		return fmt.Errorf("write frame: %w", err)
	}
	return nil
}

// Reader is what frames are read from; a *bufio.Reader is one.
type Reader interface {
	io.Reader
	io.ByteReader
}

// step is how much is allocated ahead of the bytes that arrive: a peer that
// announces a megabyte and sends nothing costs this much.
const step = 16 << 10

// ReadFrame reads one frame and gives its payload. The end of r before the
// first byte is io.EOF; later it is io.ErrUnexpectedEOF. A length over limit is
// ErrTooLarge and nothing more is read.
func ReadFrame(r Reader, limit int) ([]byte, error) {
	n, err := readLength(r)
	if err != nil {
		return nil, err
	}
	if n > uint64(limit) {
		return nil, fmt.Errorf("%w: frame of %d bytes, at most %d", ErrTooLarge, n, limit)
	}
	size := int(n)
	b := make([]byte, 0, min(size, step))
	for len(b) < size {
		if len(b) == cap(b) {
			grown := make([]byte, len(b), min(2*cap(b), size))
			copy(grown, b)
			b = grown
		}
		got, err := r.Read(b[len(b):min(cap(b), size)])
		b = b[:len(b)+got]
		if err != nil && len(b) < size {
			return nil, fmt.Errorf("read frame: %w", unexpected(err))
		}
	}
	return b, nil
}

// readLength reads a varint of at most 5 bytes in its shortest form.
func readLength(r io.ByteReader) (uint64, error) {
	var n uint64
	for i := range binary.MaxVarintLen32 {
		c, err := r.ReadByte()
		if err != nil {
			if i > 0 {
				err = unexpected(err)
			}
			return 0, err
		}
		n |= uint64(c&0x7f) << (7 * i)
		if c < 0x80 {
			if c == 0 && i > 0 {
				return 0, fmt.Errorf("%w: its length is not in the shortest form", ErrFrame)
			}
			return n, nil
		}
	}
	return 0, fmt.Errorf("%w: its length has over %d bytes", ErrFrame, binary.MaxVarintLen32)
}

func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
