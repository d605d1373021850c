package main

import "syscall"

// tied gives the attributes of a process that ends when this one does, however
// this one ends: its own clean-up does not run when it is killed.
func tied() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} }
