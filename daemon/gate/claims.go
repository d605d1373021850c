package gate

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"
)

// MaxLifetime is the longest a token may live, from iat to exp.
const MaxLifetime = time.Hour

// Leeway is how far a clock may be behind the issuer's: it holds for iat and nbf.
// There is none for exp.
const Leeway = 60 * time.Second

// Claims are what a token says.
type Claims struct {
	ID           string    // jti: the token ID of logs and receipts
	Issuer       string    // iss
	Subject      string    // sub: the DID of whoever asked for the token
	Audience     string    // aud: the DID of the agent that it is for
	Capability   string    // what may be asked of the agent
	Issued       time.Time // iat
	NotBefore    time.Time // nbf; iat without one
	Expires      time.Time // exp
	Confirmation string    // cnf.kid: the did:key of the key that the token is bound to; "" without one
}

// claimsOf reads the payload of a token.
func claimsOf(payload []byte) (Claims, error) {
	m, err := object(payload, errClaimsJSON, errClaimsDeep, errClaimsKind)
	if err != nil {
		return Claims{}, err
	}
	var c Claims
	for _, t := range []struct {
		name string
		to   *string
		no   *Denial
	}{{"iss", &c.Issuer, errIssuer}, {"sub", &c.Subject, errSubject}, {"capability", &c.Capability, errCapability}, {"jti", &c.ID, errID}} {
		var ok bool
		if *t.to, ok = text(m[t.name]); !ok || *t.to == "" || len(*t.to) > maxClaim {
			return Claims{}, t.no
		}
	}
	if !word(c.ID) {
		return Claims{}, errID
	}
	var ok bool
	if c.Audience, ok = audience(m["aud"]); !ok {
		return Claims{}, errAudience
	}
	if c.Issued, ok = seconds(m["iat"]); !ok {
		return Claims{}, errIssuedAt
	}
	if c.Expires, ok = seconds(m["exp"]); !ok {
		return Claims{}, errExpires
	}
	c.NotBefore = c.Issued
	if raw, there := m["nbf"]; there {
		if c.NotBefore, ok = seconds(raw); !ok {
			return Claims{}, errNotBefore
		}
	}
	if raw, there := m["cnf"]; there {
		if c.Confirmation, ok = confirmation(raw); !ok {
			return Claims{}, errConfirm
		}
	}
	return c, nil
}

// word reports whether s can stand in a log or a receipt as it is.
func word(s string) bool {
	return len(s) <= maxID && strings.IndexFunc(s, func(r rune) bool { return r <= ' ' || r > '~' }) < 0
}

// audience reads one text, alone or as an array of one.
func audience(raw json.RawMessage) (string, bool) {
	if len(raw) > 0 && raw[0] == '[' {
		var list []json.RawMessage
		if json.Unmarshal(raw, &list) != nil || len(list) != 1 {
			return "", false
		}
		raw = list[0]
	}
	s, ok := text(raw)
	return s, ok && s != "" && len(s) <= maxClaim
}

// seconds reads a time as whole seconds in plain digits, up to the year 9999.
func seconds(raw json.RawMessage) (time.Time, bool) {
	const most = 253402300799
	if len(raw) == 0 || len(raw) > 12 || strings.Trim(string(raw), "0123456789") != "" {
		return time.Time{}, false
	}
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return time.Unix(n, 0), err == nil && n <= most
}

// confirmation reads cnf. A kind of it that is not known here binds to nothing.
func confirmation(raw json.RawMessage) (string, bool) {
	var m map[string]json.RawMessage
	if json.Unmarshal(raw, &m) != nil || m == nil {
		return "", false
	}
	kid, there := m["kid"]
	if !there {
		return "", true
	}
	s, ok := text(kid)
	return s, ok && s != "" && len(s) <= maxClaim
}

// inForce checks the times of a token against the clock. Lifetime and order come
// first: they do not depend on it.
func (c Claims) inForce(now time.Time) error {
	switch {
	case !c.Expires.After(c.Issued):
		return errBackwards
	case c.Expires.Sub(c.Issued) > MaxLifetime:
		return errLifetime
	case !now.Before(c.Expires):
		return errExpired
	case c.Issued.After(now.Add(Leeway)):
		return errFuture
	case c.NotBefore.After(now.Add(Leeway)):
		return errEarly
	}
	return nil
}
