package spoke

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"github.com/chordwheel/chordwheel/mesh/wire"
)

// What can happen to a session beside refusals and broken streams.
var (
	ErrClosed = errors.New("the session with the hub has ended")
	ErrSilent = errors.New("the hub did not answer in time")
)

// Client is the device's half of one session. Its methods may be called from
// many goroutines; requests go out one after the other. A *Refusal is an answer
// and leaves the session usable; after any other error it is over.
type Client struct {
	stream network.Stream
	in     *bufio.Reader
	turn   chan struct{} // holds one token: whoever has it talks
	over   bool          // guarded by turn
}

// NewClient takes stream over. Nothing is sent before the first call, which
// must be Hello.
func NewClient(stream network.Stream) *Client {
	c := &Client{stream: stream, in: bufio.NewReaderSize(stream, 4096), turn: make(chan struct{}, 1)}
	c.turn <- struct{}{}
	return c
}

// Hello opens the session, or renews what the hub knows in an open one.
func (c *Client) Hello(ctx context.Context, h wire.Hello) (wire.Welcome, error) {
	reply, err := c.call(ctx, wire.Request{Hello: &h})
	if err == nil && reply.Welcome == nil {
		err = c.abort("hello")
	}
	if err != nil {
		return wire.Welcome{}, fmt.Errorf("hello: %w", err)
	}
	return *reply.Welcome, nil
}

// Report sends one report.
func (c *Client) Report(ctx context.Context, r wire.Report) (wire.ReportReply, error) {
	reply, err := c.call(ctx, wire.Request{Report: &r})
	if err == nil && reply.Report == nil {
		err = c.abort("report")
	}
	if err != nil {
		return wire.ReportReply{}, fmt.Errorf("report: %w", err)
	}
	return *reply.Report, nil
}

// Fetch asks for the chain of a slot. What comes back is not verified.
func (c *Client) Fetch(ctx context.Context, f wire.Fetch) (wire.FetchReply, error) {
	reply, err := c.call(ctx, wire.Request{Fetch: &f})
	if err == nil && reply.Fetch == nil {
		err = c.abort("fetch")
	}
	if err != nil {
		return wire.FetchReply{}, fmt.Errorf("fetch chain of %s: %w", f.Slot, err)
	}
	return *reply.Fetch, nil
}

// Protest asks for an extension. What comes back is not verified.
func (c *Client) Protest(ctx context.Context, p wire.Protest) (wire.ProtestReply, error) {
	reply, err := c.call(ctx, wire.Request{Protest: &p})
	if err == nil && reply.Protest == nil {
		err = c.abort("protest")
	}
	if err != nil {
		return wire.ProtestReply{}, fmt.Errorf("protest for %s: %w", p.Slot, err)
	}
	return *reply.Protest, nil
}

// Lease asks for blocks of ceilings.
func (c *Client) Lease(ctx context.Context, l wire.Lease) (wire.LeaseReply, error) {
	reply, err := c.call(ctx, wire.Request{Lease: &l})
	if err == nil && reply.Lease == nil {
		err = c.abort("lease")
	}
	if err != nil {
		return wire.LeaseReply{}, fmt.Errorf("lease: %w", err)
	}
	return *reply.Lease, nil
}

// Provider asks for a provider to be admitted.
func (c *Client) Provider(ctx context.Context, p wire.Provider) (wire.ProviderReply, error) {
	reply, err := c.call(ctx, wire.Request{Provider: &p})
	if err == nil && reply.Provider == nil {
		err = c.abort("provider")
	}
	if err != nil {
		return wire.ProviderReply{}, fmt.Errorf("admit a provider: %w", err)
	}
	return *reply.Provider, nil
}

// abort ends the session because the hub answered another question.
func (c *Client) abort(asked string) error {
	_ = c.stream.ResetWithError(network.StreamProtocolViolation)
	return fmt.Errorf("%w: the reply does not answer a %s", wire.ErrMessage, asked)
}

// call sends one request and reads its reply.
func (c *Client) call(ctx context.Context, request wire.Request) (wire.Reply, error) {
	select {
	case <-c.turn:
	case <-ctx.Done():
		return wire.Reply{}, ctx.Err()
	}
	defer func() { c.turn <- struct{}{} }()
	if c.over {
		return wire.Reply{}, ErrClosed
	}
	if err := request.Validate(); err != nil {
		return wire.Reply{}, err // ours to mend; the session is untouched
	}
	reply, err := c.exchange(ctx, request)
	if err != nil {
		c.over = true
		_ = c.stream.Reset()
		switch {
		case ctx.Err() != nil: // the reset was ours
			err = context.Cause(ctx)
		case timedOut(err):
			err = ErrSilent
		}
		return wire.Reply{}, resetError(err)
	}
	if reply.Refusal != nil {
		return wire.Reply{}, refusalOf(reply.Refusal)
	}
	return reply, nil
}

func (c *Client) exchange(ctx context.Context, request wire.Request) (wire.Reply, error) {
	_ = c.stream.SetDeadline(time.Now().Add(callTimeout)) // an earlier end of ctx resets the stream
	stop := context.AfterFunc(ctx, func() { _ = c.stream.Reset() })
	defer stop()
	var reply wire.Reply
	if err := wire.Write(c.stream, &request); err != nil {
		return reply, err
	}
	return reply, wire.Read(c.in, wire.MaxControl, &reply)
}

// Close ends the session: politely if nobody is talking, else by a reset that
// ends their call too.
func (c *Client) Close() {
	select {
	case <-c.turn:
		if !c.over {
			c.over = true
			// Close can wait for a lazy handshake; the deadline bounds it.
			_ = c.stream.SetDeadline(time.Now().Add(time.Second))
			if c.stream.CloseWrite() != nil || c.stream.Close() != nil {
				_ = c.stream.Reset()
			}
		}
		c.turn <- struct{}{}
	default:
		_ = c.stream.Reset()
	}
}
