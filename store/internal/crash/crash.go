// Package crash names the steps of durable operations, so that tests can end
// the process at each of them. It owns nothing else, and outside of tests does
// nothing.
package crash

var hook = func(step string) {}

// Point marks that a step is done: "wrote" (content handed to the system),
// "synced" (content on disk), "renamed" (under its name), "dir-synced" (the
// name on disk), and others that say themselves.
func Point(step string) { hook(step) }

// At makes f the hook of all points of this process. It is for tests, before
// any goroutine that may pass a point is started.
func At(f func(step string)) { hook = f }
