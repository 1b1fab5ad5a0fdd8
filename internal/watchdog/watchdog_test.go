// SPDX-License-Identifier: Apache-2.0

package watchdog

import "testing"

// F32, F35: a process that was stopped for an hour in the middle of a commit has not
// lost its disk: what counts is how often the disk could have returned.
func TestF32_StoppedProcessIsNotAHungDisk(t *testing.T) {
	const second = 1_000_000
	w := Watchdog{Sent: 1}
	now := int64(0)
	look := func(flying bool, want bool) {
		t.Helper()
		if got := w.Hangs(flying, now); got != want {
			t.Fatalf("at %d s: Hangs = %t, want %t", now/second, got, want)
		}
	}
	look(true, false)
	now += 3600 * second // SIGSTOP, SIGCONT
	look(true, false)
	look(true, false)
	for range Checks - 2 {
		now += second
		look(true, false)
	}
	now += second
	look(true, true)
	w.Sent = 2 // it returned, and another commit is running
	look(true, false)
	look(false, false)
}
