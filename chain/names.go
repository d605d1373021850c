package chain

import (
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/libp2p/go-libp2p/core/crypto"
	"github.com/libp2p/go-libp2p/core/peer"
)

// MeshID names one mesh. The orchestrator makes it once, at random.
type MeshID string

// ScopeID is what policy varies by: "flavour:id", flavour one of workspace,
// session or device.
type ScopeID string

// DefaultScope is the scope of a mesh that nobody divided.
const DefaultScope ScopeID = "workspace:home"

// Primitive is a named kind of work, such as "llm.chat". The set is open.
type Primitive string

// Primitives that the product itself refers to.
const (
	LLMChat Primitive = "llm.chat"
	T1      Primitive = "llm.t1" // executors
	T2      Primitive = "llm.t2" // workers
	T3      Primitive = "llm.t3" // supervisors
)

// TierPrimitive is the work of the models of a tier, 1 to 3.
func TierPrimitive(tier int) Primitive { return [...]Primitive{T1, T2, T3}[tier-1] }

// LLM reports whether work of p is a chat completion: all that is called llm.….
func (p Primitive) LLM() bool { return strings.HasPrefix(string(p), "llm.") }

// Capability is a token that a device declares, such as "execute:llm.chat" or
// "key:groq". The set is open.
type Capability string

// Submit is the capability without which a device may not ask for work.
const Submit Capability = "submit"

// How capabilities begin that name something.
const (
	executePrefix = "execute:"
	devicePrefix  = "device:"
	modelPrefix   = "model:"
)

// ExecuteCapability is what a device declares that can run p.
func ExecuteCapability(p Primitive) Capability { return Capability(executePrefix + string(p)) }

// Executes gives the primitive that a device with c can run; false if c is about
// something else.
func (c Capability) Executes() (Primitive, bool) {
	p, ok := strings.CutPrefix(string(c), executePrefix)
	return Primitive(p), ok
}

// ModelCapability is what a device declares that has the model called name.
func ModelCapability(name string) Capability { return Capability(modelPrefix + name) }

// Model gives the model that a device with c has; false if c is about something
// else.
func (c Capability) Model() (name string, ok bool) { return strings.CutPrefix(string(c), modelPrefix) }

// KeyCapability is what a device declares that holds the key called name.
func KeyCapability(name string) Capability { return Capability("key:" + name) }

// DeviceCapability is what the device called id declares, and no other: a slot that
// requires it means that one.
func DeviceCapability(id DeviceID) Capability { return Capability(devicePrefix + string(id)) }

// Device gives the device that declares c, and no other; false if c is about
// something else.
func (c Capability) Device() (DeviceID, bool) {
	id, ok := strings.CutPrefix(string(c), devicePrefix)
	return DeviceID(id), ok
}

// OptionID is the stable name of an option: "groq/llama-3.3-70b",
// "local/ollama/qwen2.5:7b", "peer" or "peer/NAME".
type OptionID string

// BuiltinOption is the option of the small model that every device has inside. A
// hub and a device must mean the same by it without knowing each other.
const BuiltinOption OptionID = "local/builtin/primer"

// DeviceID is the UUID of a physical device. It is a label; the identity is the PeerID.
type DeviceID string

// PeerID is the identity of a node: the text form of a libp2p peer ID of an
// Ed25519 key. Packages above mesh see identities only in this form.
type PeerID string

// Limits on names, in bytes. A stranger's name longer than this is refused.
const (
	MaxNameBytes = 256
	MaxScopeID   = 128
	MaxDIDBytes  = 512
)

// ParseScope checks s and returns it as a ScopeID.
func ParseScope(s string) (ScopeID, error) {
	flavour, id, ok := strings.Cut(s, ":")
	if !ok || id == "" {
		return "", fmt.Errorf("scope %q: want flavour:id, such as %s", Clip(s), DefaultScope)
	}
	switch flavour {
	case "workspace", "session", "device":
	default:
		return "", fmt.Errorf("scope %q: flavour must be workspace, session or device", Clip(s))
	}
	if len(s) > MaxScopeID || !printable(id) {
		return "", fmt.Errorf("scope %q: want printable characters without spaces, at most %d bytes in all", Clip(s), MaxScopeID)
	}
	return ScopeID(s), nil
}

// ParsePrimitive checks s and returns it as a Primitive: lower-case words
// joined by dots.
func ParsePrimitive(s string) (Primitive, error) {
	ok := len(s) <= 64
	for word := range strings.SplitSeq(s, ".") {
		ok = ok && word != ""
		for _, r := range word {
			ok = ok && (r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '_' || r == '-')
		}
	}
	if !ok {
		return "", fmt.Errorf("primitive %q: want lower-case letters, digits and dots, such as %s", Clip(s), LLMChat)
	}
	return Primitive(s), nil
}

// ParseAccount refuses what cannot be the name of a ceiling: words of printable
// characters with single spaces between them, at most MaxNameBytes in all.
func ParseAccount(s string) error {
	ok := len(s) <= MaxNameBytes
	for word := range strings.SplitSeq(s, " ") {
		ok = ok && word != "" && printable(word)
	}
	if !ok {
		return fmt.Errorf("account %q: want printable words, at most %d bytes", Clip(s), MaxNameBytes)
	}
	return nil
}

// ParsePeerID checks that s is a text form of the libp2p peer ID of an Ed25519
// key, and returns its usual form.
func ParsePeerID(s string) (PeerID, error) {
	id, err := peer.Decode(s)
	if err != nil {
		return "", fmt.Errorf("peer ID %q: not a libp2p peer ID, such as 12D3KooW…", Clip(s))
	}
	key, err := id.ExtractPublicKey()
	if err != nil || key.Type() != crypto.Ed25519 {
		return "", fmt.Errorf("peer ID %q: want one of an Ed25519 key, such as 12D3KooW…", Clip(s))
	}
	return PeerID(id.String()), nil
}

// Instant is a moment as it stands in signed bytes: Unix milliseconds.
type Instant int64

// InstantOf cuts t to milliseconds.
func InstantOf(t time.Time) Instant { return Instant(t.UnixMilli()) }

// Time gives the moment as a time in UTC.
func (i Instant) Time() time.Time { return time.UnixMilli(int64(i)).UTC() }

// Millis is a duration as it stands in signed bytes: milliseconds.
type Millis int64

// MillisOf rounds d down to milliseconds.
func MillisOf(d time.Duration) Millis { return Millis(d / time.Millisecond) }

// maxMillis is the longest duration that an object may name: a leap year.
const maxMillis Millis = 366 * 24 * 3600 * 1000

// Duration gives m as a duration; what a duration cannot hold becomes the
// longest one of that sign.
func (m Millis) Duration() time.Duration {
	const most = math.MaxInt64 / int64(time.Millisecond)
	switch {
	case int64(m) > most:
		return math.MaxInt64
	case int64(m) < -most:
		return math.MinInt64
	}
	return time.Duration(m) * time.Millisecond
}

// MicroUSD is money: millionths of a US dollar.
type MicroUSD int64

// PPM is a share in parts per million, 0 to 1,000,000.
type PPM int64

// PPMOf rounds a share between 0 and 1 to parts per million.
func PPMOf(share float64) PPM { return PPM(share*1e6 + 0.5) }

// Share gives p as a number between 0 and 1.
func (p PPM) Share() float64 { return float64(p) / 1e6 }

// printable reports whether a name can stand in a log, a header and on a screen
// without misleading anybody: no controls, spaces, invisible or direction-changing
// characters. The list is spelled out so that it does not depend on a version of
// Unicode; docs/chain.md repeats it.
func printable(s string) bool {
	for _, r := range s {
		switch {
		case r <= ' ', r >= 0x7f && r <= 0xa0, r == 0xad, r == 0x61c, r == 0x1680, r == 0x180e, r >= 0x2000 && r <= 0x200f, r >= 0x2028 && r <= 0x202f,
			r >= 0x205f && r <= 0x206f, r == 0x3000, r == 0xfeff, r == utf8.RuneError, r >= 0xe0000 && r <= 0xe0fff:
			return false
		}
	}
	return true
}

// Clip keeps foreign text short enough to be repeated in an error: 64 bytes and
// a sign that there was more. %q around it keeps it harmless as well.
func Clip[S ~string](s S) string { return ClipTo(s, 64) }

// ClipTo is Clip for another number of bytes. It breaks no character.
func ClipTo[S ~string](s S, most int) string {
	if len(s) > most {
		return strings.ToValidUTF8(string(s[:most]), "") + "…"
	}
	return string(s)
}

// Match reports whether s fits a pattern, in which each "*" stands for any run of
// characters, also none, and every other character for itself. Its work is bounded
// by len(pattern)·len(s).
func Match(pattern, s string) bool {
	parts := strings.Split(pattern, "*")
	first, rest := parts[0], parts[1:]
	s, ok := strings.CutPrefix(s, first)
	if !ok || len(rest) == 0 {
		return ok && s == ""
	}
	last := len(rest) - 1
	for _, part := range rest[:last] { // each where it first fits: that leaves the most to the others
		if _, s, ok = strings.Cut(s, part); !ok {
			return false
		}
	}
	return strings.HasSuffix(s, rest[last])
}
