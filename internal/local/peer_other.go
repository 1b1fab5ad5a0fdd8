// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package local

import "net"

// peerOf returns nothing here; the rights of the socket and of its directory
// decide who can connect.
func peerOf(net.Conn) (uid int, ok bool) { return 0, false }
