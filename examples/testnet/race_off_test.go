//go:build !race

package testnet_test

const (
	devices = 20
	stories = 1
	days    = 2
)
