//go:build !linux

package main

import "syscall"

// tied gives the attributes of a process that ends when this one does. Here the
// system cannot promise it: the roles see that their standard input ends.
func tied() *syscall.SysProcAttr { return nil }
