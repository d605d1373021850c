package edge

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/daemon/job"
)

// Jobs is what the routes for providers over HTTP need. Both fields are required.
type Jobs struct {
	Board *job.Board

	// Admit has the hub judge the invitation that a provider brought. An error that
	// wraps a [*Refusal] decides what the provider is told.
	Admit func(ctx context.Context, invitation chain.Secret, r job.Registration) (job.Grant, error)
}

// Bounds of what providers send, beside the board's own. Each registration costs a
// visit at the hub.
const (
	maxRegistration = 64 << 10
	maxHeartbeat    = 1 << 10
	resultFrame     = 16 << 10 // around an output
	registrations   = 20       // at once
	registerEvery   = time.Second
	maxClaimed      = 4 // jobs of one call
)

func newRegistrations() *rate.Limiter {
	return rate.NewLimiter(rate.Every(registerEvery), registrations)
}

// authenticateProvider finds out which provider calls. Its key is of no use elsewhere, and no
// other key is of any here.
func (x *exchange) authenticateProvider() *Refusal {
	if x.edge.jobs == nil {
		return Refuse(NotFound, "this device takes no providers")
	}
	values := x.r.Header["Authorization"]
	scheme, key, ok := "", "", false
	if len(values) == 1 {
		scheme, key, ok = strings.Cut(values[0], " ")
	}
	if !ok || !strings.EqualFold(scheme, "Bearer") || len(key) > 256 {
		return Refuse(Unauthorized, "send one Authorization header: \"Bearer \" and the key that registering gave")
	}
	id, err := x.edge.jobs.Board.Authenticate(chain.Secret(key))
	switch {
	case errors.Is(err, job.ErrTooMany):
		return Refuse(RateLimited, "this provider calls more often than it may")
	case err != nil:
		return Refuse(Unauthorized, "the key is of no provider of this device: register with an invitation")
	}
	x.provider = id
	return nil
}

// own refuses a path that names another provider than the caller.
func (x *exchange) own(id string) *Refusal {
	if id != x.provider {
		return Refuse(NotFound, "there is no such provider, or the key is another one's")
	}
	return nil
}

// postProvider serves POST /api/v1/providers.
func (x *exchange) postProvider(string) *Refusal {
	jobs := x.edge.jobs
	if jobs == nil {
		return Refuse(NotFound, "this device takes no providers")
	}
	if !x.edge.registrations.Allow() {
		return Refuse(RateLimited, "too many providers register at once")
	}
	w := x.wishes
	return x.inside(w, maxRegistration, func() *Refusal {
		var q ProviderRequest
		if refusal := x.object(w.Body, &q); refusal != nil {
			return refusal
		}
		r := job.Registration{Class: job.Class(q.WorkerClass)}
		for _, c := range q.Capabilities {
			r.Capabilities = append(r.Capabilities, chain.Capability(c))
		}
		if err := r.Validate(); err != nil {
			return refusalOfJob(err)
		}
		if q.Invitation == "" {
			return invalid("invitation: missing: `chordwheel invite` on the hub's machine makes one")
		}
		grant, err := jobs.Admit(x.r.Context(), chain.Secret(q.Invitation), r)
		if err != nil {
			return refusalOf(err)
		}
		id, key, err := jobs.Board.Register(grant, r)
		if err != nil {
			return refusalOfJob(err)
		}
		x.provider = id
		answer := ProviderResponse{ID: id, Key: key.Reveal(), Scope: string(grant.Scope), Capabilities: []string{}}
		for _, c := range grant.Counts(r) {
			answer.Capabilities = append(answer.Capabilities, string(c))
		}
		return x.reply(http.StatusOK, answer)
	})
}

// watchJobs serves GET /api/v1/providers/{id}/events: notices as they come, and a
// comment while there is none. It takes no place among the requests in work.
func (x *exchange) watchJobs(id string) *Refusal {
	if refusal := x.own(id); refusal != nil {
		return refusal
	}
	stream, err := x.edge.jobs.Board.Watch(id)
	if err != nil {
		return refusalOfJob(err)
	}
	defer stream.Close()
	h := x.w.Header()
	h["Content-Type"], h["Cache-Control"], h["X-Accel-Buffering"], h["X-Content-Type-Options"] = streamType, noStore, noBuffering, noSniff
	x.status, x.wrote = http.StatusOK, true
	x.w.WriteHeader(http.StatusOK)
	silence := time.NewTicker(x.edge.limits.KeepAlive)
	defer silence.Stop()
	for err = x.write([]byte(": connected\n\n")); err == nil; {
		select {
		case <-x.r.Context().Done():
			return nil
		case <-x.edge.places.ending:
			return nil
		case <-silence.C:
			err = x.write(keepAliveMsg)
		case n, open := <-stream.Notices():
			if !open {
				return nil
			}
			data, bad := json.Marshal(n)
			if bad != nil {
				return nil
			}
			err = x.write([]byte("event: " + string(n.Kind) + "\ndata: " + string(data) + "\n\n"))
		}
	}
	return nil
}

// claimJobs serves GET /api/v1/providers/{id}/jobs.
func (x *exchange) claimJobs(id string) *Refusal {
	if refusal := x.own(id); refusal != nil {
		return refusal
	}
	query, err := url.ParseQuery(x.r.URL.RawQuery)
	if err != nil {
		return invalid("the query cannot be read")
	}
	most, refusal := wholeNumber(query, "max", 1, 1, maxClaimed)
	if refusal != nil {
		return refusal
	}
	wait, refusal := wholeNumber(query, "wait", 0, 0, int(job.LongestWait/time.Second))
	if refusal != nil {
		return refusal
	}
	ctx, cancel := context.WithCancel(x.r.Context())
	defer cancel()
	done := make(chan struct{})
	defer close(done)
	go func() { // ends with the call
		select {
		case <-x.edge.places.ending:
			cancel()
		case <-done:
		}
	}()
	leases, err := x.edge.jobs.Board.Claim(ctx, id, most, time.Duration(wait)*time.Second)
	if err != nil {
		return refusalOfJob(err)
	}
	list := JobList{Jobs: []LeasedJob{}}
	for _, l := range leases {
		list.Jobs = append(list.Jobs, LeasedJob{ID: l.Job, Primitive: string(l.Primitive), Request: l.Request, Stream: l.Stream, LeaseUntil: l.Until})
	}
	return x.reply(http.StatusOK, list)
}

// wholeNumber reads a whole number of the query.
func wholeNumber(query url.Values, name string, otherwise, least, most int) (int, *Refusal) {
	text := query.Get(name)
	if text == "" {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < least || n > most {
		return 0, invalid("%s: want a whole number from %d to %d", name, least, most)
	}
	return n, nil
}

// postHeartbeat serves POST /api/v1/jobs/{id}/heartbeat. Its body may be empty.
func (x *exchange) postHeartbeat(id string) *Refusal {
	beat := func() *Refusal {
		until, err := x.edge.jobs.Board.Heartbeat(x.provider, id)
		if err != nil {
			return refusalOfJob(err)
		}
		return x.reply(http.StatusOK, JobLease{LeaseUntil: until})
	}
	if x.r.ContentLength == 0 {
		return beat()
	}
	return x.inside(x.wishes, maxHeartbeat, beat)
}

// postResult serves POST /api/v1/jobs/{id}/result.
func (x *exchange) postResult(id string) *Refusal {
	w := x.wishes
	return x.inside(w, job.MaxResult+resultFrame, func() *Refusal {
		var q JobResult
		if refusal := x.object(w.Body, &q); refusal != nil {
			return refusal
		}
		r := job.Result{State: job.State(q.State), Text: q.Text, Output: q.Output, Reason: q.Reason}
		if err := x.edge.jobs.Board.Result(x.provider, id, r); err != nil {
			return refusalOfJob(err)
		}
		return x.reply(http.StatusOK, JobAck{Ack: true})
	})
}

// object reads a body of a form of ours. What it names besides is ignored.
func (x *exchange) object(body []byte, into any) *Refusal {
	s := scan(body, x.edge.limits.Depth)
	defer s.done()
	s.space()
	err := s.value()
	if err == nil {
		err = s.end()
	}
	if err != nil {
		return asRefusal(err)
	}
	var wrong *json.UnmarshalTypeError
	if err := json.Unmarshal(body, into); errors.As(err, &wrong) {
		return invalid("%s: want another type", chain.ClipTo(wrong.Field, 64))
	} else if err != nil {
		return invalid("body: it cannot be read")
	}
	return nil
}

// refusalOfJob says what the board's no is in HTTP.
func refusalOfJob(err error) *Refusal {
	switch {
	case errors.Is(err, job.ErrInvalid):
		return invalid("%s", chain.ClipTo(strings.TrimPrefix(err.Error(), job.ErrInvalid.Error()+": "), 256))
	case errors.Is(err, job.ErrFull):
		return Refuse(Overloaded, "%s: try later", chain.ClipTo(err.Error(), 256))
	case errors.Is(err, job.ErrTooMany):
		return Refuse(RateLimited, "whoever asked does not take the parts that fast")
	case errors.Is(err, job.ErrProvider):
		return Refuse(Unauthorized, "this provider's time is over: register with an invitation")
	case errors.Is(err, job.ErrUnknown), errors.Is(err, job.ErrNotYours):
		return Refuse(NotFound, "there is no such job, or it is not this provider's")
	case errors.Is(err, job.ErrOver), errors.Is(err, job.ErrDifferent):
		return Refuse(Conflict, "%s", err)
	}
	return Refuse(InternalError, "an error of the edge itself")
}
