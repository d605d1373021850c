package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"
)

// bare is the least that durable lines cost: one file, and one sync for all lines that
// wait.
type bare struct {
	file *os.File
	mu   sync.Mutex
	next *bareBatch
	wake chan struct{}
	done chan error
}

type bareBatch struct {
	buf  []byte
	done chan struct{}
	err  error
}

func newBare(path string) (*bare, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	b := &bare{file: f, next: &bareBatch{done: make(chan struct{})}, wake: make(chan struct{}, 1), done: make(chan error, 1)}
	go b.write()
	return b, nil
}

func (b *bare) write() {
	for range b.wake {
		b.mu.Lock()
		now := b.next
		b.next = &bareBatch{done: make(chan struct{})}
		b.mu.Unlock()
		if _, now.err = b.file.Write(now.buf); now.err == nil {
			now.err = b.file.Sync()
		}
		close(now.done)
	}
	b.done <- b.file.Close()
}

func (b *bare) append(line []byte) error {
	b.mu.Lock()
	batch := b.next
	batch.buf = append(batch.buf, line...)
	select {
	case b.wake <- struct{}{}:
	default:
	}
	b.mu.Unlock()
	<-batch.done
	return batch.err
}

// close ends the writer; nobody appends any more.
func (b *bare) close() error {
	close(b.wake)
	return <-b.done
}

// receiptLine is a line of a receipt's size.
var receiptLine = append(bytes.Repeat([]byte{'h'}, 900), '\n')

// serveBare answers each request when its body was read and a line is synced: what HTTP
// adds to durable lines, without a duty.
func serveBare(ln net.Listener, path string) error {
	b, err := newBare(path)
	if err != nil {
		return err
	}
	return http.Serve(ln, b)
}

func (b *bare) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 32<<20))
	if err == nil {
		err = b.append(receiptLine)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, `{"ack":true}`)
}

// drive lets callers append lines of a receipt's size until more says no.
func (b *bare) drive(ctx context.Context, callers int, more func() bool) figure {
	var mu sync.Mutex
	var took []time.Duration
	var f figure
	var group sync.WaitGroup
	began := time.Now()
	for range callers {
		group.Go(func() {
			var mine []time.Duration
			for ctx.Err() == nil && more() {
				start := time.Now()
				err := b.append(receiptLine)
				if err != nil {
					mu.Lock()
					f.failed, f.last = f.failed+1, err
					mu.Unlock()
					return
				}
				mine = append(mine, time.Since(start))
			}
			mu.Lock()
			took = append(took, mine...)
			mu.Unlock()
		})
	}
	group.Wait()
	slices.Sort(took)
	if n := len(took); n > 0 {
		f.p50 = float64(took[n/2]) / float64(time.Millisecond)
		f.rate = float64(n) / time.Since(began).Seconds()
	}
	return f
}
