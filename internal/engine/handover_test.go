// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// A single attempt is carried out by the loop.
func TestSingleAttemptRunsInline(t *testing.T) {
	inline := 0
	a := newAction("noop", func(context.Context, *action.Task) (action.Result, error) {
		if strings.Contains(string(debug.Stack()), "engine.(*Engine).runInline(") {
			inline++
		}
		return action.Result{}, nil
	})
	e := openEngine(t, memory.New(memory.Options{}), Config{}, a)
	if head := waitForEnd(t, e, start(t, e, planOf(t, chain(50), a), nil)); head.Status != "completed" {
		t.Errorf("run is %s (%s)", head.Status, head.Message)
	}
	// The start, and the wait for the end, may arrive first.
	if inline < 40 {
		t.Errorf("the loop carried out %d of 50 attempts", inline)
	}
}

// An action that occupies the loop's goroutine blocks nothing else: other runs start
// and end, timers fire, its own timeout works, and its result counts, whichever
// goroutine runs the loop by then. It may even call the engine itself and wait.
func TestInlineActionDoesNotBlockTheEngine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		var e *Engine
		quick := noop()
		other := planOf(t, chain(3), quick)
		slow := newAction("slow", func(ctx context.Context, task *action.Task) (action.Result, error) {
			head := waitForEnd(t, e, start(t, e, other, nil))
			<-release
			return action.Result{Output: map[string]any{"other": head.Status}}, nil
		})
		stuck := newAction("stuck", func(ctx context.Context, _ *action.Task) (action.Result, error) {
			<-ctx.Done()
			return action.Result{}, ctx.Err()
		})
		e = openEngine(t, memory.New(memory.Options{}), Config{}, quick, slow, stuck)

		nap := start(t, e, planOf(t, "name: n\nsteps:\n  - {id: n, wait: {duration: 1h}}\n"), nil)
		synctest.Wait()
		alone := start(t, e, planOf(t, "name: s\nsteps:\n  - {id: s, action: {name: slow}, timeout: 2h}\n", slow), nil)
		if head := waitForEnd(t, e, start(t, e, other, nil)); head.Status != "completed" {
			t.Errorf("a run beside it is %s", head.Status)
		}
		began := time.Now()
		if head := waitForEnd(t, e, nap); head.Status != "completed" || time.Since(began) > time.Hour {
			t.Errorf("the timer's run is %s after %s", head.Status, time.Since(began))
		}
		began = time.Now()
		head := releaseAndWait(t, e, alone, release)
		if head.Status != "completed" || time.Since(began) != 0 {
			t.Errorf("the run that kept the loop is %s after %s (%s)", head.Status, time.Since(began), head.Message)
		}

		began = time.Now()
		late := start(t, e, planOf(t, "name: l\nsteps:\n  - {id: s, action: {name: stuck}, timeout: 5s, retryPolicy: {maxAttempts: 1}}\n", stuck), nil)
		if head := waitForEnd(t, e, late); head.Code != fault.StepTimeout || time.Since(began) != 5*time.Second {
			t.Errorf("the run that hung is %s %s after %s", head.Status, head.Code, time.Since(began))
		}
	})
}

// The same holds for inputs that arrive while the loop commits.
func TestInlineActionDoesNotBlockEarlierInputs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		slow := blockedAction(release)
		quick := noop()
		disk := &slowDisk{Store: memory.New(memory.Options{}), takes: time.Second}
		e, err := Open(t.Context(), Config{Store: disk, Actions: catalogue.New(quick, slow), Logger: testLog(t)})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		began := time.Now()
		run := ""
		wg.Go(func() {
			run = start(t, e, planOf(t, "name: s\nsteps:\n  - {id: s, action: {name: slow}}\n", slow), nil)
		})
		synctest.Wait() // the disk takes a second for the start
		start(t, e, planOf(t, "name: n\nsteps:\n  - {id: n, wait: {duration: 1h}}\n"), nil)
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("the second start was answered after %s, want two commits of a second", took)
		}
		close(release)
		wg.Wait()
		waitForEnd(t, e, run)
		if _, err := e.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// releaseAndWait waits for the end of a run whose action waits for release. The wait
// begins before the release, because nothing else must wake the engine.
func releaseAndWait(t *testing.T, e *Engine, run string, release chan struct{}) (head store.Head) {
	var wg sync.WaitGroup
	wg.Go(func() { head = waitForEnd(t, e, run) })
	synctest.Wait()
	close(release)
	wg.Wait()
	return head
}

// An action that ends the loop's goroutine does not end the loop: another goroutine
// continues it.
func TestTheLoopSurvivesGoexit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var release chan struct{}
		a := noop()
		bad := newAction("bad", func(context.Context, *action.Task) (action.Result, error) {
			<-release
			runtime.Goexit()
			return action.Result{}, nil
		})
		e := openEngine(t, memory.New(memory.Options{}), Config{}, a, bad)
		p := planOf(t, "name: b\nsteps:\n  - {id: b, action: {name: bad}, retryPolicy: {maxAttempts: 1}}\n", bad)
		for range 5 {
			release = make(chan struct{})
			began := time.Now()
			if head := releaseAndWait(t, e, start(t, e, p, nil), release); head.Code != fault.StepFailed || time.Since(began) != 0 {
				t.Errorf("run is %s %s after %s", head.Status, head.Code, time.Since(began))
			}
		}
		if head := waitForEnd(t, e, start(t, e, planOf(t, chain(5), a), nil)); head.Status != "completed" {
			t.Errorf("run is %s (%s)", head.Status, head.Message)
		}
	})
}
