// SPDX-License-Identifier: Apache-2.0

package node

import "runtime/debug"

// gcPercent lets the heap grow to three times the live data before it is collected. A
// busy engine allocates much that is short-lived: starting and ending runs costs a
// quarter less than with Go's default of 100, for a third more resident memory.
const gcPercent = 200

// SetGC configures the garbage collector of a process that runs little else than an
// engine. gogc is the value of the environment variable GOGC; if it is set, SetGC does
// nothing. Opening a node does not call SetGC, because a program that embeds an engine decides
// for itself.
func SetGC(gogc string) {
	if gogc == "" {
		debug.SetGCPercent(gcPercent)
	}
}
