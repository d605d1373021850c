//go:build race

package testnet_test

// Under the race detector everything takes ten times as long.
const (
	devices = 8
	stories = 1
	days    = 1
)
