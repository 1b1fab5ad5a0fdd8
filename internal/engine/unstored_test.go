// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

const twoTasks = "name: x\norder: none\nsteps:\n  - {id: a, action: {name: remote}}\n  - {id: b, action: {name: remote}}\n"

// changed is Config.Jobs.
func (o *outside) changed(changes []jobs.Change) {
	o.keeper.Changed(changes)
	o.mu.Lock()
	defer o.mu.Unlock()
	for i := range changes {
		c := &changes[i]
		switch id, ok := jobs.IDOf(c.Kind, c.ID, jobs.Workers); {
		case !ok:
		case c.Unstored && !c.Delete:
			o.unstored[id] = c.Job
		default:
			delete(o.unstored, id)
		}
	}
}

// wantTasks checks how many tasks have a record, how many have none, and how many slots they hold.
func (o *outside) wantTasks(when string, stored, unstored, slots int) {
	o.t.Helper()
	n, without := 0, 0
	o.eachWaiting(jobs.Workers, func(_ *jobs.Job, is bool) {
		if is {
			n++
		} else {
			without++
		}
	})
	held := 0
	for _, l := range o.Slots() {
		if l.Of == "action" {
			held = l.InUse
		}
	}
	if n != stored || without != unstored || held != slots {
		o.t.Errorf("%s: %d tasks have a record, %d have none, and they hold %d slots; want %d, %d, %d", when, n, without, held, stored, unstored, slots)
	}
}

// finish ends a task as its worker does, and returns when its slot is free too.
func (o *outside) finish(task *jobs.Job) {
	o.t.Helper()
	err := o.Settle(o.t.Context(), task, journal.FromWorker, func(context.Context, *action.Task) (action.Result, error) {
		return action.Result{Output: []byte(`{"text":"done"}`)}, nil
	})
	if err != nil {
		o.t.Fatal(err)
	}
	synctest.Wait()
}

// task returns a task of a step, which has a record or not.
func (o *outside) task(step string) *jobs.Job {
	o.t.Helper()
	var found *jobs.Job
	o.eachWaiting(jobs.Workers, func(j *jobs.Job, _ bool) {
		if j.Name == step {
			found = j
		}
	})
	if found == nil {
		o.t.Fatalf("step %s has no task", step)
	}
	return found
}

// X128, I22: the task of a remote worker has a record only while its run is not in memory. Whatever ends
// the process, its step waits for it, and it holds its slot.
func TestI22_UnstoredTasks(t *testing.T) {
	tasks := func() *action.Action {
		a := tasks()
		a.Slots = 100 // so many that only their number is kept
		return a
	}
	cfg := Config{JobSlots: map[string]bool{jobs.Workers: true}}
	for name, clean := range map[string]bool{"crashed": false, "stopped": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := memory.New(memory.Options{})
				o := openOutside(t, st, newService(), cfg, tasks())
				start(t, o.Engine, planOf(t, "name: y\nsteps: [{id: c, action: {name: remote}}]\n", tasks()), nil)
				time.Sleep(time.Minute)
				o.wantTasks("another run", 1, 0, 1)
				run := start(t, o.Engine, planOf(t, twoTasks, tasks()), nil)
				restart := func(when string) {
					if clean {
						if _, err := o.Stop(t.Context()); err != nil {
							t.Fatal(err)
						}
						o.stop()
						o = openOutside(t, st.Reopen(), newService(), cfg, tasks())
					} else {
						o.crash()
						o.stop()
						o = openOutside(t, st.Reopen(), newService(), cfg, tasks())
					}
					st = o.st
					synctest.Wait()
				}
				synctest.Wait()
				o.wantTasks("submitted", 1, 2, 3)
				before := o.task("a")
				restart("")
				if clean {
					o.wantTasks("after a clean stop", 3, 0, 3)
				} else {
					o.wantTasks("after a crash", 1, 2, 3)
				}
				if j := o.task("a"); j.ID != before.ID || j.Fence() != before.Fence() || j.Expires != before.Expires || fmt.Sprint(j.Class()) != fmt.Sprint(before.Class()) {
					t.Errorf("after the restart the task is %+v, it was %+v", j, before)
				}
				time.Sleep(time.Minute)
				o.wantTasks("suspended", 3, 0, 3)
				o.finish(o.task("a"))
				o.wantTasks("one has ended", 2, 0, 2)
				restart("")
				o.wantTasks("one has a record of before", 2, 0, 2)
				o.finish(o.task("b"))
				o.wantEnd(run, "completed")
				synctest.Wait()
				o.wantTasks("ended", 1, 0, 1)
			})
		})
	}
}

// A task without a record that is cancelled leaves nothing behind: no service has to be told.
func TestUnstoredTaskIsCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := openOutside(t, memory.New(memory.Options{}), newService(), remoteSlots, tasks())
		run := start(t, o.Engine, planOf(t, remoteThenNoop, tasks(), noop()), nil)
		synctest.Wait()
		o.wantTasks("submitted", 0, 1, 1)
		if err := o.Cancel(t.Context(), acc, run, "enough"); err != nil {
			t.Fatal(err)
		}
		waitForEnd(t, o.Engine, run)
		synctest.Wait()
		o.wantTasks("cancelled", 0, 0, 0)
		o.wantRecords("")
	})
}

// The second attempt of a step has a record from the beginning, because it may have the same task as the
// first, of which there may be records.
func TestSecondAttemptHasARecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := openOutside(t, memory.New(memory.Options{}), newService(), remoteSlots, tasks())
		run := start(t, o.Engine, planOf(t, "name: x\nsteps:\n  - {id: a, action: {name: remote}, retryPolicy: {maxAttempts: 2, initialDelay: 1s, jitter: 0, retryableErrors: [timeout]}}\n", tasks()), nil)
		time.Sleep(time.Minute)
		o.wantTasks("suspended", 1, 0, 1)
		o.stop() // the record of the first attempt stays
		first := o.task("a")
		time.Sleep(59*time.Minute + 1500*time.Millisecond)
		synctest.Wait()
		o.wantTasks("tried again", 1, 0, 1)
		second := o.task("a")
		if second.ID != first.ID || second.Attempt != 2 {
			t.Errorf("the second attempt has the task %+v, the first had %+v", second, first)
		}
		o.finish(second)
		o.wantEnd(run, "completed")
		o.wantTasks("ended", 0, 0, 0)
	})
}

// I22: the task of a run that is quarantined has a record, because the run is not read at the next start: its
// slot is held until the run is released and the task has ended.
func TestI22_TaskOfQuarantinedRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := memory.New(memory.Options{})
		o := openOutside(t, st, newService(), remoteSlots, tasks())
		p := planOf(t, "name: x\nsteps: [{id: a, action: {name: remote}}]\n", tasks())
		run := start(t, o.Engine, p, nil)
		synctest.Wait()
		in := &input{kind: inLook, key: store.Key{Account: acc, Run: run}}
		in.look = func(c *core) { _ = c.protect(c.residency.runs[in.key], func() { panic("on purpose") }) }
		if err := o.request(t.Context(), in).err; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		o.crash()
		o.stop()
		o = openOutside(t, st.Reopen(), newService(), remoteSlots, tasks())
		o.wantTasks("quarantined", 1, 0, 1)
		start(t, o.Engine, p, nil)
		synctest.Wait()
		o.wantTasks("another run waits for the slot", 1, 0, 1)
		if err := o.Release(t.Context(), acc, run); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		o.wantTasks("released", 1, 0, 1)
		o.finish(o.task("a"))
		o.wantEnd(run, "completed")
		synctest.Wait()
		o.wantTasks("the other run has the slot", 0, 1, 1)
	})
}
