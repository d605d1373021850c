package main

import (
	"bytes"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// killsOf says how often processes are killed: CHORDWHEEL_KILLS, else few where a start is
// slow.
func killsOf(t *testing.T, few int) int {
	if s := os.Getenv("CHORDWHEEL_KILLS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			t.Fatalf("CHORDWHEEL_KILLS=%q: want a number", s)
		}
		return n
	}
	return few
}

// reporters send outlets to a device as fast as it takes them, and keep the transactions
// whose receipt it acknowledged.
type reporters struct {
	mu    sync.Mutex
	acked map[string]bool
	group sync.WaitGroup
}

func (r *reporters) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.acked)
}

// begin lets n of them work until the device is gone.
func (r *reporters) begin(d deviceReady, n int) {
	base := strings.TrimSuffix(d.Edge, "/v1")
	for range n {
		r.group.Go(func() {
			client := &http.Client{Transport: &http.Transport{}, Timeout: patience}
			defer client.CloseIdleConnections()
			for {
				answer, err := client.Post(base+"/v1/outlet", "application/json", strings.NewReader(`{"response":"words","request_hash":"sha256:`+strings.Repeat("0", 64)+`","agent_model_id":"alpha/small","token_id":"","status":"ok"}`))
				if err != nil {
					return
				}
				b, err := io.ReadAll(answer.Body)
				answer.Body.Close()
				var ack struct {
					Ack         bool   `json:"ack"`
					Transaction string `json:"transaction_id"`
				}
				if err != nil || answer.StatusCode != http.StatusOK || json.Unmarshal(b, &ack) != nil || !ack.Ack {
					continue
				}
				r.mu.Lock()
				r.acked[ack.Transaction] = true
				r.mu.Unlock()
			}
		})
	}
	r.group.Go(func() { // and chats, whose receipts come behind the reply
		client := &http.Client{Transport: &http.Transport{}, Timeout: patience}
		defer client.CloseIdleConnections()
		for {
			answer, err := client.Post(base+"/v1/chat/completions", "application/json", strings.NewReader(`{"model":"auto","messages":[{"role":"user","content":"hi"}]}`))
			if err != nil {
				return
			}
			_, _ = io.Copy(io.Discard, answer.Body)
			answer.Body.Close()
		}
	})
}

// Device and hub are killed at random moments under load. Every receipt that was
// acknowledged is in the ledger, and the ledger has each once.
func TestReceiptsSurviveKills(t *testing.T) {
	kills := killsOf(t, 5)
	w := newWorld(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	all := &reporters{acked: map[string]bool{}}
	for n := range kills {
		all.begin(w.device.ready.Device, 6)
		<-time.After(time.Duration(random.IntN(150)) * time.Millisecond) // the moment is the point
		// A slow machine may have acknowledged next to nothing in all these lives.
		if n == kills-1 {
			until(t, "receipts were acknowledged", func() bool { return all.count() >= kills })
		}
		if n%4 == 3 {
			w.hub.kill()
			w.startHub()
		}
		w.device.kill()
		all.group.Wait()
		w.startDevice()
	}
	// Hundreds of lives leave more than goes out within a test's patience: it waits while some goes out.
	for now := fares(t, w.deviceDir); now.Waiting > 0 || now.Pending > 0; now = fares(t, w.deviceDir) {
		until(t, "the ledger takes what waits", func() bool { r := fares(t, w.deviceDir); return r.Sent > now.Sent || r.Waiting == 0 && r.Pending == 0 })
	}
	if r := fares(t, w.deviceDir); r.Rejected != 0 {
		t.Errorf("%d were set aside", r.Rejected)
	}

	files, err := filepath.Glob(filepath.Join(w.deviceDir, "spool*.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]bool{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for line := range bytes.Lines(b) {
			var r struct {
				Transaction string `json:"transaction_id"`
			}
			if err := json.Unmarshal(line, &r); err != nil {
				t.Fatalf("%s: %q", file, line)
			}
			lines[r.Transaction] = true
		}
	}
	for transaction := range all.acked {
		if !lines[transaction] {
			t.Errorf("%s was acknowledged and is gone", transaction)
		}
	}
	// All that the spool has was taken, each once: the log has as many leaves.
	found, code := findingsWithin(t, patience+time.Duration(kills)*time.Second, "--dir", w.deviceDir)
	if code != 0 || len(found) == 0 {
		t.Fatalf("verify ended with %d, %d findings", code, len(found))
	}
	size, places := int64(0), map[int64]bool{}
	for _, f := range found {
		if !f.OK || f.Inclusion != "ok" || places[f.Index] {
			t.Fatalf("%+v", f)
		}
		places[f.Index], size = true, max(size, f.Size)
	}
	if size != int64(len(lines)) {
		t.Errorf("the ledger has %d receipts of %d", size, len(lines))
	}
	t.Logf("%d kills, %d acknowledged, %d in the ledger", kills, len(all.acked), size)
}
