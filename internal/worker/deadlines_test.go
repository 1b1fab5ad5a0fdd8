// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

// X115: one timer serves attempts with many timeouts, and each ends at its own deadline,
// also when the attempt that the timer was set for has returned before.
func TestX115_ManyDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &recorder{}
		p := New(w.config())
		began := time.Now()
		slow := func(ctx context.Context, _ *action.Task) (action.Result, error) {
			<-ctx.Done()
			return action.Result{}, ctx.Err()
		}
		quick := func(context.Context, *action.Task) (action.Result, error) { return action.Result{}, nil }
		begin := func(name string, ms int64, fn action.Func) {
			tk := task(name, fn)
			tk.TimeoutMS = ms
			if err := p.Run(tk); err != nil {
				t.Fatal(err)
			}
		}
		begin("returns", 1_000, quick) // the timer is set for it
		begin("five", 5_000, slow)
		begin("three", 3_000, slow)
		time.Sleep(500 * time.Millisecond)
		begin("three and a half", 3_000, slow)
		begin("one and a half", 1_000, slow)
		if r := <-w.done; r.ID.Run != "returns" || r.Err != nil {
			t.Errorf("first: %+v", r)
		}
		for i := range 3 * maxLists { // empty lists are not kept for ever
			begin(fmt.Sprint("timeout ", i), int64(60_000+i), quick)
			if r := <-w.done; r.Err != nil {
				t.Errorf("%s: %v", r.ID.Run, r.Err)
			}
			synctest.Wait()
		}
		for _, want := range []struct {
			name string
			at   time.Duration
		}{{"one and a half", 1_500}, {"three", 3_000}, {"three and a half", 3_500}, {"five", 5_000}} {
			r := <-w.done
			if at := time.Since(began); r.ID.Run != want.name || codeOf(r.Err) != fault.StepTimeout || at != want.at*time.Millisecond {
				t.Errorf("after %v: %s, %v; want %s after %v", at, r.ID.Run, r.Err, want.name, want.at*time.Millisecond)
			}
		}
		p.mu.Lock()
		if n := len(p.deadlines.byTimeout); n > maxLists+1 {
			t.Errorf("%d lists are kept", n)
		}
		p.mu.Unlock()
		p.Stop(context.Background())
	})
}

// A stopped pool reports no deadlines: abandoned attempts belong to the next
// process.
func TestStoppedPoolHasNoDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &recorder{}
		p := New(w.config())
		release := make(chan struct{})
		tk := task("stubborn", func(context.Context, *action.Task) (action.Result, error) {
			<-release
			return action.Result{}, nil
		})
		tk.TimeoutMS = 10_000
		if err := p.Run(tk); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if n := p.Stop(ctx); n != 1 {
			t.Errorf("%d attempts were given up, want 1", n)
		}
		time.Sleep(time.Hour)
		p.mu.Lock()
		if p.abandoned != 0 || len(p.attempts) != 1 {
			t.Errorf("an hour later %d attempts count as abandoned, and %d as running", p.abandoned, len(p.attempts))
		}
		p.mu.Unlock()
		close(release)
	})
}

// A stopped pool can be garbage collected although its deadlines are hours away, because
// a program may open and close many engines.
func TestStoppedPoolIsNotHeld(t *testing.T) {
	gone := make(chan struct{})
	func() {
		w := &recorder{}
		p := New(w.config())
		tk := task("quick", func(context.Context, *action.Task) (action.Result, error) { return action.Result{}, nil })
		tk.TimeoutMS = 10 * time.Hour.Milliseconds()
		if err := p.Run(tk); err != nil {
			t.Fatal(err)
		}
		runtime.AddCleanup(p, func(int) { close(gone) }, 0)
		if n := p.Stop(t.Context()); n != 0 {
			t.Errorf("%d attempts were given up", n)
		}
	}()
	for range 10_000 {
		runtime.GC()
		select {
		case <-gone:
			return
		default:
		}
	}
	t.Fatal("the pool is still held")
}
