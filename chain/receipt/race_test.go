//go:build race

package receipt

const underRace = true
