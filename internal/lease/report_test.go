// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// A reporter notes deltas.
type reporter struct{ h *fixture }

func (reporter) Progress(float64, string) {}
func (reporter) Log(string, string)       {}
func (reporter) Preview(any)              {}
func (r reporter) Delta(text string) {
	r.h.mu.Lock()
	defer r.h.mu.Unlock()
	r.h.deltas += text
}

// A report that is sent again is passed on once, also if the worker has gone meanwhile. A worker
// that gets the task afterwards counts from 1 again.
func TestReportsAreSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t, nil)
		h.work()
		h.submit("acme", "a", "1.0.0", `{}`)
		report := func(lease string, seq int64, text string) {
			t.Helper()
			ctx, gone := context.WithCancel(t.Context())
			gone()
			if ended := h.Report(ctx, []WorkerReport{{Lease: lease, Seq: seq, Delta: text}}, ""); len(ended) != 0 {
				t.Errorf("%v", ended)
			}
		}
		first := h.lease(Want{})[0].Lease
		for _, r := range []struct {
			seq  int64
			text string
		}{{1, "a"}, {5, "b"}, {1, "x"}, {5, "x"}, {6, "c"}, {0, "d"}, {0, "d"}} {
			report(first, r.seq, r.text)
		}
		time.Sleep(time.Minute)
		report(h.lease(Want{})[0].Lease, 1, "e")
		if h.deltas != "abcdde" {
			t.Errorf("%q", h.deltas)
		}
	})
}
