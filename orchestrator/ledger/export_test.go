package ledger

import "runtime"

// Wait returns when n lines are in line for the next commit and, for 0, when one is
// under way.
func Wait(l *Log, n int) {
	for {
		l.mu.Lock()
		busy := l.last != nil && (n == 0 && l.next == nil || l.next != nil && len(l.next.lines) == n)
		l.mu.Unlock()
		if busy {
			return
		}
		runtime.Gosched()
	}
}
