// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

// An executor does not keep finished jobs, and its list does not grow beyond
// the waiting jobs.
func TestExecutorForgetsJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Executor
		for range 100 {
			c.Add(jobFunc(func() {}), jobFunc(func() {}), jobFunc(func() {}))
			synctest.Wait()
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if cap(c.jobs) > 16 {
			t.Errorf("room for %d jobs after three at a time", cap(c.jobs))
		}
		for i, j := range c.jobs[:cap(c.jobs)] {
			if j != nil {
				t.Errorf("job %d of %d is still held", i, cap(c.jobs))
			}
		}
	})
}

// A job that is moved to the front of the list is cleared at its old position.
func TestExecutorMovesJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var c Executor
		c.ready = 1 // as if a goroutine were ready: no job is taken
		c.Add(make([]Job, 10)...)
		c.jobs[9] = jobFunc(func() {})
		c.head = 9
		c.Add(jobFunc(func() {}))
		if c.head != 0 || len(c.jobs) != 2 || c.jobs[0] == nil || c.jobs[1] == nil {
			t.Fatalf("head %d of %d jobs", c.head, len(c.jobs))
		}
		for i, j := range c.jobs[2:cap(c.jobs)] {
			if j != nil {
				t.Errorf("place %d still holds a job", i+2)
			}
		}
	})
}

// One deadline after another: the timer is set again after the list was empty.
func TestX115_DeadlineAfterDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &recorder{}
		p := New(w.config())
		for i := range 3 {
			began := time.Now()
			tk := task(fmt.Sprint(i), func(ctx context.Context, _ *action.Task) (action.Result, error) {
				<-ctx.Done()
				return action.Result{}, ctx.Err()
			})
			tk.TimeoutMS = 1_000
			if r := run(t, p, w, tk); codeOf(r.Err) != fault.StepTimeout || time.Since(began) != time.Second {
				t.Errorf("attempt %d: %v after %s", i, r.Err, time.Since(began))
			}
			time.Sleep(time.Minute)
		}
		p.Stop(context.Background())
	})
}

// The number of empty deadline lists is bounded.
func TestX115_EmptyLanesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &recorder{}
		p := New(w.config())
		for i := range 3 * maxLists {
			tk := task(fmt.Sprint(i), func(context.Context, *action.Task) (action.Result, error) { return action.Result{}, nil })
			tk.TimeoutMS = int64(1_000 + i)
			run(t, p, w, tk)
			synctest.Wait()
			p.mu.Lock()
			if n := len(p.deadlines.byTimeout); n > maxLists {
				t.Errorf("%d lists", n)
			}
			p.mu.Unlock()
		}
		p.Stop(context.Background())
	})
}

// A stopped pool leaves no timer running, neither that of its deadlines nor that of a
// grace period. A timer that fires all the same does nothing.
func TestStopStopsTimers(t *testing.T) {
	for _, patient := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			w := &recorder{}
			p := New(w.config())
			release := make(chan struct{})
			tk := task("x", func(context.Context, *action.Task) (action.Result, error) {
				<-release
				return action.Result{}, nil
			})
			tk.TimeoutMS = 3_600_000
			if err := p.Run(tk); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			a := p.attempts[tk.ID]
			ctx, cancel := context.WithCancel(t.Context())
			if patient {
				close(release)
			} else {
				p.Cancel(tk.ID) // its grace begins
				cancel()
			}
			p.Stop(ctx)
			cancel()
			if p.deadlines.timer.Stop() {
				t.Error("the timer of the deadlines still runs")
			}
			if grace := a.grace.Load(); grace != nil && grace.Stop() {
				t.Error("the timer of the grace still runs")
			}
			p.expireDue()
			if p.mu.TryLock() {
				p.mu.Unlock()
			} else {
				t.Error("a deadline that came too late holds the lock")
			}
			if !patient {
				close(release)
			}
		})
	}
}

// Stop waits for a running callback, also when it abandons attempts.
func TestStopWaitsForCallbacks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &recorder{}
		cfg := w.config()
		inside, release := make(chan struct{}), make(chan struct{})
		cfg.Done = func(Result) {
			close(inside)
			<-release
		}
		p := New(cfg)
		if err := p.Run(task("x", func(context.Context, *action.Task) (action.Result, error) { return action.Result{}, nil })); err != nil {
			t.Fatal(err)
		}
		<-inside
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		stopped := false
		go func() {
			p.Stop(ctx)
			stopped = true
		}()
		synctest.Wait()
		if stopped {
			t.Error("Stop returned while a callback was under way")
		}
		close(release)
		synctest.Wait()
		if !stopped {
			t.Error("Stop did not return after the last callback")
		}
		p.Running() // takes the lock
	})
}

// A second cancel does not restart the grace period.
func TestX96_CancelTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &recorder{}
		p := New(w.config())
		deaf := task("deaf", func(context.Context, *action.Task) (action.Result, error) {
			time.Sleep(time.Minute)
			return action.Result{}, nil
		})
		if err := p.Run(deaf); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		began := time.Now()
		a := p.attempts[deaf.ID]
		p.Cancel(deaf.ID)
		first := a.grace.Load()
		time.Sleep(3 * time.Second)
		p.Cancel(deaf.ID)
		if a.grace.Load() != first {
			t.Error("the second cancel set a timer of its own")
		}
		if r := <-w.done; codeOf(r.Err) != fault.ExecutionCancelled || time.Since(began) != 5*time.Second {
			t.Errorf("%v after %s", r.Err, time.Since(began))
		}
		if !strings.Contains(w.log.String(), "action did not return after it was cancelled") || !strings.Contains(w.log.String(), "action=deaf") {
			t.Errorf("the log says %q", w.log.String())
		}
		time.Sleep(time.Minute)
		p.Stop(context.Background())
	})
}

// Events after an attempt has ended (the end of its grace period, a second
// return) change nothing.
func TestAttemptsEndOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &recorder{}
		p := New(w.config())
		var a *attempt
		tk := task("x", func(context.Context, *action.Task) (action.Result, error) {
			p.mu.Lock()
			defer p.mu.Unlock()
			for _, a = range p.attempts {
			}
			return action.Result{}, nil
		})
		run(t, p, w, tk)
		synctest.Wait()
		a.giveUp()
		a.finish(&Result{})
		a.expire()
		a.abort()
		synctest.Wait()
		if !a.mu.TryLock() {
			t.Fatal("the attempt is locked")
		}
		a.mu.Unlock()
		if order, _ := w.recorded(); fmt.Sprint(order) != "[done x]" || p.abandoned != 0 || w.log.Len() != 0 || a.grace.Load() != nil {
			t.Errorf("%v, %d abandoned, log %q", order, p.abandoned, w.log.String())
		}
		p.Stop(context.Background())
	})
}

// Reports are valid UTF-8, and other spellings of log levels are understood.
func TestReportsAreText(t *testing.T) {
	w := &recorder{}
	p := New(w.config())
	run(t, p, w, task("x", func(_ context.Context, task *action.Task) (action.Result, error) {
		task.Report.Log("WARNING", "a\xffb")
		task.Report.Log("Error", "ü")
		task.Report.Log("loud", "c")
		task.Report.Delta("d\xff")
		return action.Result{}, nil
	}))
	p.Stop(context.Background())
	var got []string
	_, reports := w.recorded()
	for _, r := range reports {
		got = append(got, r.Level+":"+r.Text)
	}
	if want := "warn:a\uFFFDb error:ü info:c :d\uFFFD"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A message of the maximum length is kept; a longer one is cut and marked.
func TestMessagesSayThatTheyWereCut(t *testing.T) {
	same := func(f *fault.Error) *fault.Error { return f }
	for n, want := range map[int]string{maxMessage: text(maxMessage), maxMessage + 1: text(maxMessage) + " …"} {
		if got := failure(errors.New(text(n)), same).Msg; got != want {
			t.Errorf("%d bytes become %d: …%s", n, len(got), got[max(0, len(got)-8):])
		}
	}
	if got := failure(errors.New("a\xff"), same).Msg; got != "a\uFFFD" {
		t.Errorf("got %q", got)
	}
}

// Texts and lists of exactly the minimum size are stored in files, up to exactly the
// maximum number of files.
func TestSpillAtItsBounds(t *testing.T) {
	files := newFiles(t)
	fields := func(n, each int, v func(n int) any) map[string]any {
		m := map[string]any{}
		for i := range n {
			m[fmt.Sprintf("k%05d", i)] = v(each)
		}
		return m
	}
	quoted := func(n int) any { return text(n - len(`""`)) }
	listed := func(n int) any { return []any{text(n - len(`[""]`))} }
	const each = minSpilled
	for name, v := range map[string]func(n int) any{"texts": quoted, "lists": listed} {
		files.put = nil
		if r := runAction(t, files, fields(300, each, v)); r.Err != nil || len(files.put) == 0 {
			t.Errorf("%s of %d bytes: %v, %d files", name, each, r.Err, len(files.put))
		}
		if r := runAction(t, files, fields(300, each-1, v)); codeOf(r.Err) != fault.OutputTooLarge {
			t.Errorf("%s of %d bytes: %v", name, each-1, r.Err)
		}
	}
	// Each field takes key, colon, comma and its value; a stored value leaves a reference.
	// A small text that stays inline fills the rest.
	most := (MaxOutput + maxSpilled*(each-refLength) - 1) / (each + len(`"k00000":,`))
	left := MaxOutput + maxSpilled*(each-refLength) - 1 - most*(each+len(`"k00000":,`)) - len(`"f":"",`)
	for more, want := range []int{maxSpilled, 0} {
		files.put = nil
		out := with(fields(most, each, quoted), "f", text(left+more))
		if r := runAction(t, files, out); (r.Err == nil) != (want > 0) || len(files.put) != want {
			t.Errorf("%d bytes more: %v, %d files, want %d", more, r.Err, len(files.put), want)
		}
	}
}
