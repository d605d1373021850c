package chain

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
)

// Secret is a provider key, a bearer key or a token in memory. Every way of
// printing it gives "***"; [Secret.Reveal] is the one way to its value, so that a
// search for that name finds each place that sends a secret somewhere.
type Secret string

// Reveal gives the value. It must go on the wire to its owner and nowhere else.
func (s Secret) Reveal() string { return string(s) }

// String hides the value.
func (Secret) String() string { return "***" }

// Format hides the value from every verb of package fmt, also from one that does
// not fit a string, which would print it in the complaint.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "***") }

// GoString hides the value from %#v.
func (Secret) GoString() string { return "***" }

// LogValue hides the value from structured logs.
func (Secret) LogValue() slog.Value { return slog.StringValue("***") }

// MarshalJSON hides the value from JSON.
func (Secret) MarshalJSON() ([]byte, error) { return json.Marshal("***") }

// MarshalText hides the value from text encodings, YAML among them.
func (Secret) MarshalText() ([]byte, error) { return []byte("***"), nil }

// MarshalCBOR hides the value from CBOR.
func (Secret) MarshalCBOR() ([]byte, error) { return Marshal("***") }
