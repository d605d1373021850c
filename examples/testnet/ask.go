package testnet

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"time"

	"github.com/chordwheel/chordwheel/chain"
	"github.com/chordwheel/chordwheel/chain/walk"
	"github.com/chordwheel/chordwheel/daemon/adapter"
)

// Answer is what an application got.
type Answer struct {
	net     *Net
	From    string // the device that was asked
	Status  int
	Text    string // of the assistant; of an error, its message
	Broken  bool   // the stream ended with an error event
	Option  string // of the chain, by the header
	Peer    string // the name of the peer that ran it, by the header
	ID      string // of the request
	Tries   string // attempts, by the header
	Took    time.Duration
	Content string // what only this request's answer holds
}

// WantAnswer fails the test if the question was not answered whole.
func (a Answer) WantAnswer() Answer {
	a.net.t.Helper()
	if a.Status != http.StatusOK || a.Broken || !strings.Contains(a.Text, a.Content) {
		a.net.t.Fatalf("%s got no answer at %s: %+v", a.From, time.Now().Format(time.TimeOnly), a)
	}
	return a
}

// Ask sends a streamed chat to a device's edge and waits for its end. It may be called
// from several goroutines.
func (n *Net) Ask(name string) Answer {
	n.t.Helper()
	d := n.Device(name)
	d.mu.Lock()
	d.asks++
	id := fmt.Sprintf("%s-%06d", d.Name, d.asks)
	d.mu.Unlock()
	r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions",
		strings.NewReader(fmt.Sprintf(`{"model":"auto","stream":true,"messages":[{"role":"user","content":"%s%s"}]}`, promptCanary, id)))
	r.Host = "127.0.0.1:7420"
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("X-Chordwheel-Request-Id", id)
	began := time.Now()
	w := httptest.NewRecorder()
	d.edge.ServeHTTP(w, r)
	a := Answer{net: n, From: name, ID: id, Status: w.Code, Took: time.Since(began), Content: answerCanary + id,
		Option: w.Header().Get("X-Chordwheel-Option"), Peer: w.Header().Get("X-Chordwheel-Peer"), Tries: w.Header().Get("X-Chordwheel-Attempts")}
	if a.Status == http.StatusOK {
		a.Text, a.Broken = events(w.Body.String())
	} else {
		a.Text = w.Body.String()
	}
	n.watch.answered(d, a)
	return a
}

// AskAll asks at every device that runs and is a member, all at once.
func (n *Net) AskAll() []Answer {
	n.t.Helper()
	var all []Answer
	var mu sync.Mutex
	var group sync.WaitGroup
	for _, d := range n.devices {
		if !d.Runs() || !d.Joined {
			continue
		}
		group.Go(func() {
			a := n.Ask(d.Name)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, a)
		})
	}
	group.Wait()
	return all
}

// events puts the text of a stream together.
func events(body string) (text string, broken bool) {
	done := false
	for s := bufio.NewScanner(strings.NewReader(body)); s.Scan(); {
		data, ok := strings.CutPrefix(s.Text(), "data: ")
		var e struct {
			Choices []struct {
				Delta struct {
					Content string `json:"content"`
				} `json:"delta"`
			} `json:"choices"`
			Error *struct{} `json:"error"`
		}
		switch {
		case !ok:
		case data == "[DONE]":
			done = true
		case json.Unmarshal([]byte(data), &e) != nil || e.Error != nil:
			broken = true
		case len(e.Choices) > 0:
			text += e.Choices[0].Delta.Content
		}
	}
	return text, broken || !done
}

// Upstream plays the services behind all options of all devices. Unless told
// otherwise they answer within half a second.
type Upstream struct {
	net *Net

	mu    sync.Mutex
	down  map[chain.OptionID]bool
	pause time.Duration
	calls []Call
}

// Call is one call of a service.
type Call struct {
	Device string // where it ran
	ID     string // of the request, which begins with the name of the device that was asked
	Option chain.OptionID
}

// Foreign reports whether the call was for another device.
func (c Call) Foreign() bool { return !strings.HasPrefix(c.ID, c.Device+"-") }

func newUpstream(n *Net) *Upstream { return &Upstream{net: n, down: map[chain.OptionID]bool{}} }

// Down makes a service fail, or work again.
func (u *Upstream) Down(option chain.OptionID, down bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.down[option] = down
}

// Pause sets how long services think before the first word; 0: up to half a second.
func (u *Upstream) Pause(d time.Duration) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.pause = d
}

// Calls gives all calls so far.
func (u *Upstream) Calls() []Call {
	u.mu.Lock()
	defer u.mu.Unlock()
	return append([]Call(nil), u.calls...)
}

// upstreamOf is the adapter of one device.
type upstreamOf struct {
	*Upstream
	device *Device
}

// Run implements adapter.Adapter.
func (u upstreamOf) Run(ctx context.Context, c adapter.Call, emit func(walk.Chunk) error) walk.Outcome {
	u.net.watch.called(u.device, c)
	u.mu.Lock()
	u.calls = append(u.calls, Call{u.device.Name, c.Request.ID, c.Attempt.Option.ID})
	down, pause := u.down[c.Attempt.Option.ID], u.pause
	if pause == 0 {
		pause = time.Duration(len(u.calls)%10) * 50 * time.Millisecond
	}
	u.mu.Unlock()
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return walk.Outcome{Class: chain.Canceled}
	case <-timer.C:
	}
	if down {
		return walk.Outcome{Class: chain.Status, Status: http.StatusServiceUnavailable}
	}
	for _, words := range []string{answerCanary + c.Request.ID, " from " + string(c.Attempt.Option.ID), ""} {
		finish := "null"
		if words == "" {
			finish = `"stop"`
		}
		data := fmt.Sprintf(`{"id":"c","object":"chat.completion.chunk","created":1,"model":"auto","choices":[{"index":0,"delta":{"content":%q},"finish_reason":%s}]}`, words, finish)
		if err := emit(walk.Chunk{Data: []byte(data), Meaningful: words != ""}); err != nil {
			return walk.Outcome{Class: chain.Canceled}
		}
		time.Sleep(20 * time.Millisecond)
	}
	return walk.Outcome{Class: chain.OK, Status: http.StatusOK, Input: 10, Output: 5}
}
