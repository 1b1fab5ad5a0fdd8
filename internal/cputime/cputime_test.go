// SPDX-License-Identifier: Apache-2.0

package cputime

import (
	"testing"
	"time"
)

var sink uint64

// TestUsed: work adds to the time, and waiting does not.
func TestUsed(t *testing.T) {
	work := func() {
		for i := range uint64(50_000_000) {
			sink += i * i
		}
	}
	if took := Of(1, work); took < time.Millisecond {
		t.Errorf("work took %v", took)
	}
	if took := Of(3, func() { <-time.After(300 * time.Millisecond) }); took > 150*time.Millisecond {
		t.Errorf("waiting took %v", took)
	}
}
