// SPDX-License-Identifier: Apache-2.0

package handover

import (
	"sync"
	"testing"
)

// TestOneOwner: of the owner that returns and the goroutine that takes over, one claims an absence, and what it
// owns is changed by one goroutine at a time.
func TestOneOwner(t *testing.T) {
	var h Handover
	h.Open()
	owned, taken := 0, 0
	var wg sync.WaitGroup
	for range 2000 {
		owned++
		absence := h.Leave(Acting)
		wg.Go(func() {
			select {
			case <-h.Calls():
			default:
			}
			if at, ok := h.Away(Acting); ok && at == absence && h.Claim(at) {
				owned++ // the race detector sees it if the owner goes on
				taken++
			}
		})
		h.Wake()
		mine := h.Claim(absence)
		if mine {
			owned++
		}
		wg.Wait()
		if mine && h.Claim(absence) {
			t.Fatal("an absence was claimed twice")
		}
	}
	if owned != 4000 {
		t.Errorf("%d changes, want one of the owner and one of who claims, for each absence", owned)
	}
	t.Logf("%d of 2000 were taken over", taken)
}

// TestWake: what arrives before the owner leaves is recorded, and what arrives while it acts calls; in a call that
// others only watch nobody is called.
func TestWake(t *testing.T) {
	var h Handover
	h.Open()
	h.Wake()
	if !h.Woken() || len(h.Calls()) > 0 {
		t.Error("what arrives while the owner is there is not recorded, or calls")
	}
	h.Rested()
	absence := h.Leave(Committing)
	if h.Wake(); len(h.Calls()) > 0 || !h.Claim(absence) {
		t.Error("the owner was called out of a commit")
	}
	h.Rested()
	absence = h.Leave(Acting)
	h.Wake()
	if h.Wake(); len(h.Calls()) != 1 || !h.Woken() {
		t.Error("nobody is called")
	}
	if at, ok := h.Away(Acting); !ok || at != absence {
		t.Error("the owner is not away")
	}
	if _, ok := h.Away(Committing); ok {
		t.Error("the owner is at two places")
	}
}
