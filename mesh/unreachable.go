package mesh

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/libp2p/go-libp2p/core/sec"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"

	"github.com/chordwheel/chordwheel/chain"
)

// ErrWrongPeer is wrapped by an Unreachable when somebody answered who is not
// the pinned hub.
var ErrWrongPeer = errors.New("another node than the pinned hub answers there")

// Unreachable says why the hub could not be reached: every address that was
// tried, and what happened there. Its text is one line.
type Unreachable struct {
	Hub      chain.PeerID
	Attempts []Attempt
	Retry    time.Duration // how long the device will not dial again; such calls fail at once with the same attempts
	wrong    bool
}

// Attempt is what happened at one address.
type Attempt struct {
	Address string
	Reason  string
}

// Error implements error.
func (u *Unreachable) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "hub %s not reachable", u.Hub)
	for i, a := range u.Attempts {
		b.WriteString([]string{": ", "; "}[min(i, 1)])
		if a.Address != "" {
			b.WriteString(a.Address + ": ")
		}
		b.WriteString(a.Reason)
	}
	return b.String()
}

// Unwrap gives ErrWrongPeer where that is the case.
func (u *Unreachable) Unwrap() error {
	if u.wrong {
		return ErrWrongPeer
	}
	return nil
}

// unreachable sorts the library's error by the addresses that were to be tried.
func unreachable(hub chain.PeerID, addresses []string, err error) *Unreachable {
	u := &Unreachable{Hub: hub}
	reasons := map[string]string{}
	var dial *swarm.DialError
	if errors.As(err, &dial) {
		for _, e := range dial.DialErrors {
			u.note(reasons, e.Address.String(), e.Cause)
		}
		err = dial.Cause
	}
	for _, a := range addresses {
		reason, tried := reasons[a]
		if !tried {
			// A name resolves to other addresses; they stand on their own.
			if err == nil && len(reasons) > 0 {
				continue
			}
			reason = "not tried"
			if err != nil {
				reason = why(err)
			}
		}
		u.Attempts = append(u.Attempts, Attempt{a, reason})
		delete(reasons, a)
	}
	for a, reason := range reasons {
		u.Attempts = append(u.Attempts, Attempt{a, reason})
	}
	return u
}

func (u *Unreachable) note(reasons map[string]string, address string, err error) {
	var mismatch sec.ErrPeerIDMismatch
	switch {
	case errors.As(err, &mismatch):
		u.wrong = true
		reasons[address] = fmt.Sprintf("%s answers there, not the pinned hub: was the hub set up anew? Then join with a new invitation", mismatch.Actual)
	case strings.Contains(err.Error(), "peer id mismatch"):
		u.wrong = true
		reasons[address] = "another node answers there, not the pinned hub: was the hub set up anew? Then join with a new invitation"
	default:
		reasons[address] = why(err)
	}
}

// why puts the usual causes into few words.
func why(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time"
	case errors.Is(err, context.Canceled):
		return "given up"
	}
	return flat(err)
}
