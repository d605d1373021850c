package catalog

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/chordwheel/chordwheel/chain"
)

// The checks of single words. Each error says what would be right.

func printableName(s string) error {
	if s == "" || len(s) > chain.MaxNameBytes {
		return fmt.Errorf("%q: want 1 to %d bytes", clip(s), chain.MaxNameBytes)
	}
	if strings.ContainsFunc(s, func(c rune) bool { return c <= ' ' || c == 0x7f || c == 0xfffd || c >= 0x80 && c < 0xa0 }) {
		return fmt.Errorf("%q: want printable text without spaces", clip(s))
	}
	return nil
}

// providerName is the first half of option ids, so it has no slash and is none of the reserved words.
func providerName(s string) error {
	switch {
	case s == LocalEntry || s == PeerEntry:
		return fmt.Errorf("%q is reserved", s)
	case strings.ContainsAny(s, "/*"):
		return fmt.Errorf("%q: no slash or star in a provider's name", clip(s))
	case len(s) > 64:
		return fmt.Errorf("%q: at most 64 bytes", clip(s))
	}
	return printableName(s)
}

// word is a lower-case identifier.
func word(s string) error {
	ok := s != "" && len(s) <= 64
	for _, c := range s {
		ok = ok && (c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.')
	}
	if !ok {
		return fmt.Errorf("%q: want a word of lower-case letters, digits, - and _", clip(s))
	}
	return nil
}

// keyName must fit into the name of an environment variable.
func keyName(s string) error {
	ok := s != "" && len(s) <= 64
	for _, c := range s {
		ok = ok && (c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-')
	}
	if !ok {
		return errors.New("want the name of a key, in letters, digits, - and _; a key itself never stands here") // it may be one: not repeated
	}
	return nil
}

func primitiveName(s string) error {
	_, err := chain.ParsePrimitive(s)
	return err
}

func oneOf(words ...string) func(string) error {
	return func(s string) error {
		if !slices.Contains(words, s) {
			return fmt.Errorf("%q: want %s", clip(s), strings.Join(words, " or "))
		}
		return nil
	}
}

// geo is a country, or a country and its subdivision.
func geo(s string) error {
	country, rest, divided := strings.Cut(s, "-")
	ok := len(country) == 2 && upper(country, false) && (!divided || len(rest) >= 1 && len(rest) <= 3 && upper(rest, true))
	if !ok {
		return fmt.Errorf("%q: want a country such as IN, or a subdivision such as IN-KA", clip(s))
	}
	return nil
}

func upper(s string, digits bool) bool {
	for _, c := range s {
		if (c < 'A' || c > 'Z') && (!digits || c < '0' || c > '9') {
			return false
		}
	}
	return true
}

// endpointURL is an http or https address without secrets in it. Plain http goes
// to this machine or its LAN only.
func endpointURL(s string) error {
	scheme, rest, ok := strings.Cut(s, "://")
	authority, path, _ := strings.Cut(rest, "/")
	host, port := splitPort(authority)
	switch {
	case strings.ContainsAny(s, "@?#"):
		return errors.New("no user, query or fragment in an address: secrets belong into the key ring")
	case !ok || scheme != "http" && scheme != "https" || printableName(s) != nil || strings.ContainsAny(path, "\\\"<>") || !hostName(host) || !portNumber(port):
		return errors.New("want an address such as https://api.example.com/v1")
	case scheme == "http" && !nearby(host):
		return fmt.Errorf("plain http only to this machine or its LAN: write https://%s", clip(authority))
	}
	return nil
}

// splitPort takes the port off; an IPv6 address keeps its brackets.
func splitPort(authority string) (host, port string) {
	i := strings.LastIndexByte(authority, ':')
	if i < 0 || strings.HasSuffix(authority, "]") {
		return authority, "80"
	}
	return authority[:i], authority[i+1:]
}

func portNumber(s string) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n > 0 && n < 1<<16 && s[0] != '+'
}

func hostName(s string) bool {
	if inner, ok := strings.CutPrefix(s, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		return ok && strings.Count(inner, ":") >= 2 && strings.Trim(strings.ToLower(inner), "0123456789abcdef:.") == ""
	}
	for _, label := range strings.Split(strings.TrimSuffix(s, "."), ".") {
		if label == "" || len(label) > 63 || strings.Trim(strings.ToLower(label), "0123456789abcdefghijklmnopqrstuvwxyz-_") != "" {
			return false
		}
	}
	return len(s) <= 253
}

// nearby reports whether a host is this machine or in its LAN, as far as its
// name tells: loopback, private and link-local addresses, and names that no public
// server answers for. The device checks again what it really dials.
func nearby(host string) bool {
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if strings.HasPrefix(host, "[") {
		inner := strings.Trim(host, "[]")
		return inner == "::1" || strings.HasPrefix(inner, "fc") || strings.HasPrefix(inner, "fd") || strings.HasPrefix(inner, "fe8") ||
			strings.HasPrefix(inner, "fe9") || strings.HasPrefix(inner, "fea") || strings.HasPrefix(inner, "feb")
	}
	if q, ok := quad(host); ok {
		return q[0] == 127 || q[0] == 10 || q[0] == 192 && q[1] == 168 || q[0] == 172 && q[1]>>4 == 1 || q[0] == 169 && q[1] == 254
	}
	for _, suffix := range []string{".localhost", ".local", ".lan", ".internal", ".home.arpa"} {
		if strings.HasSuffix(host, suffix) {
			return true
		}
	}
	return !strings.Contains(host, ".")
}

// quad reads a dotted IPv4 address.
func quad(host string) (q [4]int, ok bool) {
	parts := strings.Split(host, ".")
	if len(parts) != 4 {
		return q, false
	}
	for i, p := range parts {
		n, err := strconv.Atoi(p)
		if err != nil || n < 0 || n > 255 || len(p) > 3 {
			return q, false
		}
		q[i] = n
	}
	return q, true
}
