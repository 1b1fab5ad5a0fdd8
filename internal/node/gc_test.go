// SPDX-License-Identifier: Apache-2.0

package node

import (
	"runtime/debug"
	"testing"
)

// The user's GOGC stays; without it Roux's own value is set.
func TestSetGC(t *testing.T) {
	before := debug.SetGCPercent(70)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	SetGC("70")
	if got := debug.SetGCPercent(70); got != 70 {
		t.Errorf("with GOGC=70 the collector is set to %d", got)
	}
	SetGC("")
	if got := debug.SetGCPercent(70); got != gcPercent {
		t.Errorf("without GOGC the collector is set to %d, want %d", got, gcPercent)
	}
}
