//go:build unix

package main

import "syscall"

// leaveNoCore sees to it that a crash writes no memory to the disk: what is on its way
// through this process is nobody's to keep. Where that is not allowed, the system's own limit
// stands.
func leaveNoCore() { _ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{}) }
