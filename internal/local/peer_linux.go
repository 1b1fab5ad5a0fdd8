// SPDX-License-Identifier: Apache-2.0

package local

import (
	"net"
	"syscall"
)

// peerOf returns the user at the other end of a socket according to the kernel;
// ok is false when the kernel does not tell.
func peerOf(c net.Conn) (uid int, ok bool) {
	s, isSocket := c.(*net.UnixConn)
	if !isSocket {
		return 0, false
	}
	raw, err := s.SyscallConn()
	if err != nil {
		return 0, false
	}
	err = raw.Control(func(fd uintptr) {
		if cred, err := syscall.GetsockoptUcred(int(fd), syscall.SOL_SOCKET, syscall.SO_PEERCRED); err == nil {
			uid, ok = int(cred.Uid), true
		}
	})
	return uid, ok && err == nil
}
