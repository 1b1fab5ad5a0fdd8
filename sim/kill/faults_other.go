// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package main

import "context"

// everyFault needs strace and mounts, which only Linux has.
func (b *bench) everyFault(context.Context) (problems []string, done int, skipped []string, err error) {
	return nil, 0, []string{"faults of system calls: only on Linux"}, nil
}
