// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/store/memory"
)

// opened says that an engine is open.
func opened() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}

// I22: of jobs of runs that are not in memory only their number is kept, where that is enough. As
// many hold slots as before when their runs are read again, after a restart, and after a failure.
func TestI22_CountedJobsHoldSlots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const slots, runs = 9, 12                                                       // of limits with fewer slots all holders are known
		s, st := newService(), memory.New(onceAt(jobs.KindJob, true, memory.ReplyLost)) // the first end
		cfg := Config{ProviderSlots: map[string]int{"acme": slots}}
		o := openOutside(t, st, s, cfg)
		var all []string
		for range runs {
			all = append(all, o.begin(submitAndGoOn))
		}
		var done []string
		want := func(when string, submitted, inUse int) {
			t.Helper()
			synctest.Wait()
			use := o.Slots()
			if n := len(s.list()); n != submitted || use[0].Of != "provider" || use[0].InUse != inUse {
				t.Fatalf("%s: %d jobs were submitted, want %d; in use %+v, want %d", when, n, submitted, use, inUse)
			}
		}
		end := func(n int) {
			t.Helper()
			for _, id := range s.list() {
				if n > 0 && !slices.Contains(done, id) {
					o.deliver(id, "d"+id, "hello")
					done = append(done, id)
					n--
				}
			}
		}
		want("at first", 9, 9)
		time.Sleep(time.Minute)
		if n := o.Load().Loaded; n != runs-slots {
			t.Fatalf("%d runs are in memory, want those that wait for a slot", n)
		}
		want("suspended", 9, 9)
		end(1)
		time.Sleep(time.Minute)
		want("after the end of one", 10, 9)
		for range 2 {
			if _, err := o.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			o.stop()
			o = openOutside(t, st.Reopen(), s, cfg)
			want("after a restart", 10, 9)
			time.Sleep(time.Minute)
			want("a minute later", 10, 9)
		}
		end(5)
		time.Sleep(time.Minute)
		want("the others have begun", 12, 6)
		end(12)
		for _, run := range all {
			if head := waitForEnd(t, o.Engine, run); head.Status != "completed" {
				t.Errorf("run %s is %s", run, head.Status)
			}
		}
		time.Sleep(time.Second)
		o.wantFreeSlots()
		if _, err := o.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if away, overdue := o.core.attempts.Away(); away+overdue != 0 {
			t.Errorf("%d attempts are away at the end, %d overdue", away, overdue)
		}
	})
}
