package edge

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/chordwheel/chordwheel/chain/walk"
)

// Ten times as much as it can do for a minute: an edge does all that it can, refuses the rest at
// once and before a body is read, with the time to come back, and stays alive for who asks. The
// second after, everybody is served.
func TestTenTimesTheCapacityForAMinute(t *testing.T) {
	const capacity, minute = 4, 60 // requests a second
	// Ten milliseconds before a request comes a place is free, or none.
	const work = time.Second - 10*time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(_ context.Context, _ *Work, deliver walk.Deliver) (walk.Result, error) {
			time.Sleep(work)
			if err := deliver(attempt(1), event(whole)); err != nil {
				t.Error(err)
			}
			return answered()
		}, func(c *Config) { c.Limits.InFlight = capacity })
		defer r.close()
		var done, shed atomic.Int64
		var wg sync.WaitGroup
		ask := func() {
			began := time.Now()
			res, err := r.post(t.Context(), helloReq)
			if err != nil {
				t.Error(err)
				return
			}
			body, err := io.ReadAll(res.Body)
			res.Body.Close()
			switch took := time.Since(began); {
			case err == nil && res.StatusCode == http.StatusOK && string(body) == whole && took == work:
				done.Add(1)
			case err == nil && res.StatusCode == http.StatusServiceUnavailable && took == 0 && res.Header.Get("Retry-After") != "" && strings.Contains(string(body), `"code":"overloaded"`):
				shed.Add(1)
			default:
				t.Errorf("%d %s after %s, %v", res.StatusCode, body, took, err)
			}
		}
		alive := func() {
			began := time.Now()
			for _, path := range []string{"/healthz", "/readyz"} {
				res, err := r.client.Get("http://localhost" + path)
				if err != nil {
					t.Error(err)
					continue
				}
				res.Body.Close()
				if res.StatusCode != http.StatusOK || time.Since(began) != 0 {
					t.Errorf("%s under load: %d after %s", path, res.StatusCode, time.Since(began))
				}
			}
		}
		bodiless := func() {
			time.Sleep(5 * time.Millisecond) // all places are taken
			conn := r.raw("POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer " + testKey + "\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n")
			defer conn.Close()
			if got, err := http.ReadResponse(bufio.NewReader(conn), nil); err != nil || got.StatusCode != http.StatusServiceUnavailable {
				t.Errorf("before its body came: %v, %v", got, err)
			}
		}
		for n := range minute * 10 * capacity {
			wg.Go(ask)
			time.Sleep(time.Second / (10 * capacity))
			if n%(10*capacity) != capacity*5 {
				continue
			}
			alive() // once a second
			wg.Go(bodiless)
		}
		wg.Wait()
		if n := done.Load(); n < minute*capacity*9/10 || n > (minute+1)*capacity || n+shed.Load() != minute*10*capacity {
			t.Errorf("%d requests done, %d refused; it can do %d", n, shed.Load(), minute*capacity)
		}
		before := shed.Load()
		for range 5 * capacity / 2 {
			wg.Go(ask)
			time.Sleep(2 * time.Second / capacity)
		}
		wg.Wait()
		synctest.Wait()
		if n := shed.Load() - before; n != 0 || r.edge.places.inside() != 0 {
			t.Errorf("in the five seconds after: %d refused, %d places still taken", n, r.edge.places.inside())
		}
	})
}
