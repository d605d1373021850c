//go:build !race

package receipt

const underRace = false
