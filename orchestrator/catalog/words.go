package catalog

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"slices"
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
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || u.Hostname() == "" || u.Scheme != "http" && u.Scheme != "https" || len(s) > 2048:
		return errors.New("want an address such as https://api.example.com/v1")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return errors.New("no user, query or fragment in an address: secrets belong into the key ring")
	case u.Scheme == "http" && !nearby(u.Hostname()):
		return fmt.Errorf("plain http only to this machine or its LAN: write https://%s", clip(u.Host))
	}
	return nil
}

func nearby(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.IsLoopback() || ip.IsPrivate() || ip.IsLinkLocalUnicast()
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	for _, suffix := range []string{"localhost", ".localhost", ".local", ".lan", ".internal", ".home.arpa"} {
		if host == suffix || strings.HasPrefix(suffix, ".") && strings.HasSuffix(host, suffix) {
			return true
		}
	}
	return !strings.Contains(host, ".")
}
