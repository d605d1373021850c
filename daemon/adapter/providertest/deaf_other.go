//go:build !unix

package providertest

import "testing"

// deafAddress gives an address that nobody is expected to listen on.
func deafAddress(testing.TB) string { return "127.0.0.1:1" }
