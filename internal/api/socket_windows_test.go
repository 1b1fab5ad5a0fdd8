// SPDX-License-Identifier: Apache-2.0

package api_test

import "syscall"

// socketOf returns what package syscall takes for a socket.
func socketOf(fd uintptr) syscall.Handle { return syscall.Handle(fd) }
