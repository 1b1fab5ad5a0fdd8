// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import (
	"context"
	"syscall"
)

// The signals that stop a process and let it go on: here they do nothing.
const (
	sigStop = syscall.Signal(0)
	sigCont = syscall.Signal(0)
)

// everyFault needs strace and mounts, which only Linux has.
func (b *bench) everyFault(context.Context, string) (problems []string, done int, skipped []string, err error) {
	return nil, 0, []string{"faults of system calls: only on Linux"}, nil
}

// toGroup signals a process group; no process is started in one here.
func toGroup(int) func(syscall.Signal) { return nil }
