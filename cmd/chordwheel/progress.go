package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

// progress is one line for a person who waits, written over itself. Its methods may be
// called from many goroutines, and those of nil say nothing.
type progress struct {
	out io.Writer
	now func() time.Time

	mu    sync.Mutex
	what  string
	parts []float64 // how far each is, 0 to 1
	said  time.Time
}

// progressEvery is how often the line changes at most.
const progressEvery = 200 * time.Millisecond

// progress gives a line on the error output, or nil where nobody would see it.
func (a *app) progress() *progress {
	f, ok := a.err.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) || a.getenv("TERM") == "dumb" {
		return nil
	}
	return &progress{out: f, now: time.Now}
}

// begin starts something that has n parts of about the same work.
func (p *progress) begin(what string, n int) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.what, p.parts, p.said = what, make([]float64, n), time.Time{}
	p.write()
}

// reached notes how far part i is, 0 to 1.
func (p *progress) reached(i int, share float64) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.parts[i] = share
	p.write()
}

func (p *progress) write() {
	now := p.now()
	if now.Sub(p.said) < progressEvery {
		return
	}
	p.said = now
	sum := 0.0
	for _, share := range p.parts {
		sum += share
	}
	fmt.Fprintf(p.out, "\r\x1b[K%s  %.0f %%", p.what, 100*sum/float64(max(len(p.parts), 1)))
}

// end takes the line away.
func (p *progress) end() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	fmt.Fprint(p.out, "\r\x1b[K")
}
