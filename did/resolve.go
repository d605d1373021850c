package did

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// Fetcher gets what stands at an https address. It has to bound the time, to refuse more than
// limit bytes, redirects and addresses of its own network, and to return an error that
// wraps ErrNotFound for what does not exist.
type Fetcher interface {
	Fetch(ctx context.Context, url string, limit int64) ([]byte, error)
}

// Keeper is a Fetcher that remembers what it fetched. Resolve tells it how long that
// may be used.
type Keeper interface {
	Fetcher
	// Keep bounds how long the answers for urls are remembered: for atMost from when each of
	// them was fetched, and none of them for longer than another. Of some there may be no answer.
	Keep(atMost time.Duration, urls ...string)
}

// brokenFor is how long a log that did not hold is remembered: its owner may mend it, and
// whoever has it read often costs his host little.
const brokenFor = 10 * time.Second

// Want says which version of a did:webvh is wanted, by one of its members; the zero value
// is the newest.
type Want struct {
	VersionID string
	Number    int       // from 1 on
	At        time.Time // the one in force then
}

// Resolve gives what a DID stands for. did:key needs no fetcher. An error wraps
// ErrInvalid, ErrNotFound, or is the fetcher's or ErrRewritten: then nothing is known about the
// DID, and asking again later is right. A log of which one entry does not hold is refused as a whole.
// If f is a Keeper, a log is remembered no longer than its ttl says, together with the
// approvals of its witnesses, which are of the same moment.
func Resolve(ctx context.Context, f Fetcher, did string, want Want, now time.Time) (Resolution, error) {
	if strings.HasPrefix(did, "did:key:") {
		return resolveKey(did)
	}
	w, err := realWebVH(did)
	if err != nil {
		return Resolution{}, err
	}
	if f == nil {
		return Resolution{}, fmt.Errorf("resolve %s: this device resolves did:key only", chain.Clip(did))
	}
	r, err := resolveLog(ctx, f, w, did, want, now)
	if k, ok := f.(Keeper); ok {
		switch {
		case errors.Is(err, ErrInvalid), errors.Is(err, ErrRewritten):
			k.Keep(brokenFor, w.url(LogFile), w.url(WitnessFile))
		case err == nil:
			k.Keep(r.TTL, w.url(LogFile), w.url(WitnessFile))
		}
	}
	return r, err
}

// resolveLog fetches and checks.
func resolveLog(ctx context.Context, f Fetcher, w webvh, did string, want Want, now time.Time) (Resolution, error) {
	log, err := f.Fetch(ctx, w.url(LogFile), MaxLog)
	if err != nil {
		return Resolution{}, fmt.Errorf("resolve %s: %w", chain.Clip(did), err)
	}
	all, err := readLog(log, now)
	if err != nil {
		return Resolution{}, err
	}
	var approvals []byte
	if slices.ContainsFunc(all, func(v version) bool { return v.witness.active() }) {
		if approvals, err = f.Fetch(ctx, w.url(WitnessFile), MaxLog); err != nil {
			return Resolution{}, fmt.Errorf("resolve %s: approvals: %w", chain.Clip(did), err)
		}
	}
	r, err := pick(all, approvals, did, want)
	if m, ok := f.(*Memory); ok && (err == nil || errors.Is(err, ErrNotFound)) {
		if err := m.grew(w, all, now); err != nil {
			return Resolution{}, fmt.Errorf("resolve %s: %w", chain.Clip(did), err)
		}
	}
	return r, err
}

// Verify checks a log that came in another way, from a file say, with the approvals of its
// witnesses if it has any, and gives what did stands for. Errors wrap ErrInvalid or
// ErrNotFound.
func Verify(log, approvals []byte, did string, want Want, now time.Time) (Resolution, error) {
	if _, err := parseWebVH(did); err != nil {
		return Resolution{}, err
	}
	all, err := readLog(log, now)
	if err != nil {
		return Resolution{}, err
	}
	return pick(all, approvals, did, want)
}

// Names gives the DIDs that the versions of a log call themselves by, the first one first:
// several if it moved. Errors wrap ErrInvalid.
func Names(log []byte, now time.Time) ([]string, error) {
	all, err := readLog(log, now)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, v := range all {
		if !slices.Contains(names, v.did) {
			names = append(names, v.did)
		}
	}
	return names, nil
}

// pick gives the wanted version of a log whose entries hold.
func pick(all []version, approvals []byte, did string, want Want) (Resolution, error) {
	if err := errors.Join(theirs(all, did), checkWitnesses(all, approvals)); err != nil {
		return Resolution{}, err
	}
	v := want.among(all)
	if v.id == "" {
		return Resolution{}, fmt.Errorf("%w: no such version of %s", ErrNotFound, chain.Clip(did))
	}
	last := all[len(all)-1]
	return Resolution{
		DID: v.did, Document: v.state, VersionID: v.id, VersionTime: v.time, Created: all[0].time, Updated: last.time,
		SCID: last.after.scid, Portable: last.after.portable, Deactivated: last.after.deactivated, TTL: time.Duration(last.after.ttl) * time.Second,
		Witnesses: last.after.witness.names(), Threshold: last.after.witness.Threshold, Watchers: last.after.watchers,
	}, nil
}

// among gives the wanted version, the zero one if there is none.
func (w Want) among(all []version) version {
	v := all[len(all)-1]
	switch {
	case w.VersionID != "":
		v = version{}
		for _, x := range all {
			if x.id == w.VersionID {
				v = x
			}
		}
	case w.Number != 0:
		v = version{}
		if w.Number > 0 && w.Number <= len(all) {
			v = all[w.Number-1]
		}
	case !w.At.IsZero():
		v = version{}
		for _, x := range all {
			if !x.time.After(w.At) {
				v = x
			}
		}
	}
	return v
}
