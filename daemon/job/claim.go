package job

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/chordwheel/chordwheel/chain"
)

// What the board says to results and heartbeats that do not count. All are counted.
var (
	ErrNotYours  = errors.New("the job is not leased to this provider")
	ErrOver      = errors.New("the job has ended, or its lease was lost")
	ErrDifferent = errors.New("another result of this job was taken")
)

// Lease is a job that a provider took.
type Lease struct {
	Job       string
	Primitive chain.Primitive
	Request   json.RawMessage // as Work.Body; nobody changes it
	Stream    bool            // parts are wanted
	Until     time.Time       // it must say something before
}

// Result is what a provider says of its job: a part of the answer while it runs, or
// how it ended.
type Result struct {
	State  State           // Running, Done or Failed
	Text   string          // of a running one: the next part of the text
	Output json.RawMessage // of a done one
	Reason string          // of a failed one; neither shown nor logged as it is
}

// maxReason bounds what a provider may say of a failure, in bytes.
const maxReason = 1_024

// maxWaiting bounds the parts that wait for a slow caller, in bytes.
const maxWaiting = 1 << 20

// LongestWait is how long [Board.Claim] waits for work at most.
const LongestWait = 30 * time.Second

// Claim takes up to n jobs for a provider, the oldest first. Without one it waits
// for as long as wait says, at most [LongestWait]. None is no error.
func (b *Board) Claim(ctx context.Context, id string, n int, wait time.Duration) ([]Lease, error) {
	timer := time.NewTimer(min(wait, LongestWait))
	defer timer.Stop()
	for {
		leases, more, err := b.claim(id, n, time.Now())
		if err != nil || len(leases) > 0 {
			return leases, err
		}
		select {
		case <-ctx.Done():
			return nil, nil
		case <-timer.C:
			return nil, nil
		case <-more:
		}
	}
}

func (b *Board) claim(id string, n int, now time.Time) (leases []Lease, more <-chan struct{}, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.providers[id]
	if p == nil || p.over(now) {
		return nil, nil, ErrProvider
	}
	p.heard = now
	for _, o := range b.offers {
		if len(leases) >= n || p.leases >= maxLeases {
			break
		}
		if o.taker != nil || o.tried[id] || o.taken >= maxTries || !p.can(o.work, now) {
			continue
		}
		o.taker, o.lease = p, now.Add(LeaseTime)
		o.taken++
		p.leases++
		o.wake()
		leases = append(leases, Lease{Job: o.id, Primitive: o.work.Primitive, Request: o.work.Body, Stream: o.work.Stream, Until: o.lease.UTC()})
	}
	return leases, b.wanted, nil
}

// Heartbeat renews the lease of a job and says until when.
func (b *Board) Heartbeat(id, job string) (until time.Time, err error) {
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	o, _, err := b.held(id, job, now)
	if err != nil {
		return time.Time{}, err
	}
	o.lease = now.Add(LeaseTime)
	return o.lease.UTC(), nil
}

// held gives the job if it is open and leased to the provider; of one that is over
// what is remembered of it. The caller holds mu.
func (b *Board) held(id, job string, now time.Time) (*offer, *ended, error) {
	if i := slices.IndexFunc(b.offers, func(o *offer) bool { return o.id == job }); i >= 0 {
		o := b.offers[i]
		switch {
		case o.taker != nil && o.taker.ID == id && o.result != nil:
			return nil, &ended{provider: id, hash: o.result.hash()}, ErrOver // it waits to be picked up
		case o.taker != nil && o.taker.ID == id && now.Before(o.lease):
			return o, nil, nil
		case o.tried[id], o.taker != nil && o.taker.ID == id:
			b.counts.Over++
			return nil, nil, ErrOver
		}
		b.counts.NotYours++
		return nil, nil, ErrNotYours
	}
	e := b.recent[job]
	switch {
	case e == nil:
		b.counts.Unknown++
		return nil, nil, ErrUnknown
	case e.provider == id:
		return nil, e, ErrOver
	case e.lost[id]:
		b.counts.Over++
		return nil, nil, ErrOver
	}
	b.counts.NotYours++
	return nil, nil, ErrNotYours
}

// Result takes what a provider says of its job. Only the first end from the
// provider that holds the lease counts; an equal repeat is acknowledged and changes
// nothing. Errors are [ErrInvalid], [ErrTooMany] for parts that nobody takes off
// fast enough, and those above.
func (b *Board) Result(id, job string, r Result) error {
	if err := r.check(); err != nil {
		return err
	}
	now := time.Now()
	b.mu.Lock()
	defer b.mu.Unlock()
	o, was, err := b.held(id, job, now)
	switch {
	case was != nil && r.State != Running && was.hash == r.hash():
		b.counts.Repeated++
		return nil
	case was != nil && r.State != Running:
		b.counts.Different++
		return ErrDifferent
	case was != nil:
		b.counts.Over++
		return err
	case err != nil:
		return err
	}
	switch r.State {
	case Running:
		return b.takePart(o, r.Text, now)
	case Done:
		if o.work.Primitive.LLM() {
			if _, err := ReadChat(r.Output); err != nil {
				return err // it may say it better while its lease lasts
			}
		}
		o.taker.done++
		o.taker.failures = 0
		o.result = &r
		o.result.Output = bytes.Clone(r.Output)
	case Failed:
		b.lose(o, now) // the next one may do it
	}
	o.wake()
	return nil
}

// takePart keeps a part for whoever waits, and renews the lease.
func (b *Board) takePart(o *offer, text string, now time.Time) error {
	switch {
	case o.partly+len(text) > MaxResult:
		return fmt.Errorf("%w: the parts have more than %d bytes", ErrInvalid, MaxResult)
	case o.waiting+len(text) > maxWaiting:
		b.counts.Limited++
		return ErrTooMany
	}
	o.lease = now.Add(LeaseTime)
	if text == "" || !o.work.Stream {
		return nil
	}
	o.parts = append(o.parts, text)
	o.partly += len(text)
	o.waiting += len(text)
	o.wake()
	return nil
}

// check says what is wrong with the form of a result.
func (r *Result) check() error {
	switch {
	case r.State != Running && r.State != Done && r.State != Failed:
		return fmt.Errorf("%w: state: want running, done or failed", ErrInvalid)
	case r.State != Running && r.Text != "", r.State != Done && r.Output != nil, r.State != Failed && r.Reason != "":
		return fmt.Errorf("%w: text goes with running, output with done, reason with failed", ErrInvalid)
	case len(r.Output) > MaxResult || len(r.Text) > MaxResult || len(r.Reason) > maxReason:
		return fmt.Errorf("%w: it is too large", ErrInvalid)
	case r.State == Done && (!json.Valid(r.Output) || bytes.Equal(bytes.TrimSpace(r.Output), []byte("null"))):
		return fmt.Errorf("%w: output: want one JSON value, and not null", ErrInvalid)
	}
	return nil
}
