//go:build !race

package spool_test

const underRace = false
