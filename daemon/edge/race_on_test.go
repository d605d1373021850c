//go:build race

package edge

// raceOn: sync.Pool drops things at random under the race detector.
const raceOn = true
