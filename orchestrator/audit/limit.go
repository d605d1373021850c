package audit

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// What one sender, and one address, may cost the ledger.
const (
	senderEvery  = 2 * time.Millisecond // a receipt, in the long run
	senderBurst  = 5000                 // receipts at once, after a pause
	refusalEvery = 500 * time.Millisecond
	refusalBurst = 120 // of an address, before nothing more is taken from it
	maxTracked   = 1 << 16
)

// pace bounds how often something happens for each of many. It keeps one time for
// each: when it would be due if it had kept to the pace. Its methods may be called at
// once from several goroutines.
type pace[K comparable] struct {
	every time.Duration
	ahead time.Duration // how far ahead of the pace one may be

	mu  sync.Mutex
	due map[K]time.Time
}

func newPace[K comparable](every time.Duration, burst int) *pace[K] {
	return &pace[K]{every: every, ahead: every * time.Duration(burst), due: map[K]time.Time{}}
}

// wait tells how long k has to wait before the next one; 0: it need not.
func (p *pace[K]) wait(k K, now time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, wait := p.at(k, now)
	return wait
}

func (p *pace[K]) at(k K, now time.Time) (due time.Time, wait time.Duration) {
	if due = p.due[k]; due.Before(now) {
		due = now
	}
	return due, max(0, due.Sub(now)-p.ahead+p.every)
}

// count counts one, unless k has to wait.
func (p *pace[K]) count(k K, now time.Time) (wait time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	due, wait := p.at(k, now)
	if wait > 0 {
		return wait
	}
	if _, known := p.due[k]; !known && len(p.due) >= maxTracked {
		for k, due := range p.due {
			if !due.After(now) {
				delete(p.due, k)
			}
		}
		if len(p.due) >= maxTracked {
			return p.every // so many are not at rest that one more has to wait
		}
	}
	p.due[k] = due.Add(p.every)
	return 0
}

// remoteOf gives whom an address counts for: an IPv4 address, or a /64.
func remoteOf(r *http.Request) netip.Prefix {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return netip.Prefix{}
	}
	ip, err := netip.ParseAddr(host)
	if err != nil {
		return netip.Prefix{}
	}
	bits := 64
	if ip = ip.Unmap().WithZone(""); ip.Is4() {
		bits = 32
	}
	p, _ := ip.Prefix(bits)
	return p
}
