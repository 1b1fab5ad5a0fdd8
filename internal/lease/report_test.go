// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/journal"
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

// The results of a request count each once, also those that come just after what their workers have said,
// which are tried again together; one without a lease changes nothing.
func TestFinishAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture(t, nil)
		var results []WorkerResult
		for i := range 200 {
			h.submit("x", "a", "1.0.0", fmt.Sprintf(`{"n":%d}`, i))
		}
		for _, task := range h.lease(Want{Max: 256}) {
			results = append(results, *output(task.Lease, string(task.Input)))
		}
		results = append(results, *output("none", `1`), results[0])
		h.busy = 350 // all of them once, and 150 of them again
		began := time.Now()
		errs := h.FinishAll(t.Context(), results, "x")
		if took := time.Since(began); took > 100*time.Millisecond {
			t.Errorf("it has taken %s: one waits for another", took)
		}
		for i, err := range errs {
			if stale := i >= 200; stale != errors.Is(err, ErrStale) || !stale && err != nil {
				t.Errorf("result %d: %v", i, err)
			}
		}
		got := h.all()
		slices.Sort(got)
		if len(got) != 200 || len(slices.Compact(got)) != 200 {
			t.Errorf("%d results", len(got))
		}
	})
}

func (h *fixture) begin(ctx context.Context, j *jobs.Job, from journal.Source, fn action.Func) (wait func() error) {
	return func() error { return h.settle(ctx, j, from, fn) }
}

func (h *fixture) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.results)
}

func output(lease, text string) *WorkerResult {
	return &WorkerResult{Lease: lease, Output: json.RawMessage(text)}
}
