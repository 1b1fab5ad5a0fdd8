// SPDX-License-Identifier: Apache-2.0

//go:build unix

package api_test

// socketOf returns what package syscall takes for a socket.
func socketOf(fd uintptr) int { return int(fd) }
