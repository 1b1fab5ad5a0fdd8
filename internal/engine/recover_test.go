// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

// A crash after each commit of a run: successors follow from the journal, none is lost
// and no recorded step is repeated (X81, X89). The plan comes from the store; nothing
// is parsed or compiled again.
func TestF02_CrashAfterEveryCommit(t *testing.T) {
	p := planOf(t, fan(3), noop())
	for stop := range 8 {
		st := memory.New(memory.Options{})
		h := newHarness(t, st, Config{}, noop())
		in := h.startInput(acc, p, nil)
		h.handle(in)
		for n := 0; n < stop; n++ {
			if !h.commit() && len(h.tasks) == 0 {
				break
			}
			h.handle()
			if len(h.tasks) > 0 && !h.c.busy() {
				h.handle(success(h.takeTask(), `{}`))
			}
		}
		st = st.Crash(0)
		if _, err := st.Head(context.Background(), in.key); fault.CodeOf(err) == fault.RunNotFound {
			if stop > 0 {
				t.Errorf("after %d commits the run is not stored", stop)
			}
			continue
		}
		before := trace(t, st, p, acc, in.key.Run)
		h = h.reopen(st)
		h.runUntilIdle()
		h.finishTasks()
		h.wantStatus(in.key, "completed")
		lines := h.trace(in.key, p)
		for _, s := range []string{"s0", "s1", "s2", "join"} {
			if n := countPrefix(lines, "node.completed "+s); n != 1 {
				t.Errorf("after %d commits: step %s completed %d times", stop, s, n)
			}
		}
		if got := strings.Join(lines[:len(before)], "\n"); got != strings.Join(before, "\n") {
			t.Errorf("after %d commits: recovery changed earlier events:\n%s", stop, got)
		}
		verify(t, st, in.key)
	}
}

// Two losses of one attempt are one transition and count once; a lost attempt
// is no failure.
func TestF09_LostAttemptCountsOnce(t *testing.T) {
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{}, noop())
	p := planOf(t, chain(1), noop())
	key := h.run(acc, p, nil)
	ef := h.takeTask()
	lost := machine.Input{Kind: machine.InWorkerLost, Ref: ef.id.Ref, Fence: ef.id.Fence}
	h.runUntilIdle(&input{kind: inRun, key: key, m: lost}, &input{kind: inRun, key: key, m: lost}, &input{kind: inRun, key: key, m: lost})
	if len(h.tasks) != 1 {
		t.Fatalf("%d attempts are handed out after one loss", len(h.tasks))
	}
	h.finishTasks()
	lines := h.trace(key, p)
	if n := countPrefix(lines, "node.retried"); n != 1 {
		t.Errorf("%d losses are recorded, want 1:\n%s", n, strings.Join(lines, "\n"))
	}
	h.wantStatus(key, "completed")
}

const waitRecipe = "name: w\nsteps:\n  - {id: w, wait: {duration: 1m}}\n  - {id: a, action: {name: noop}}\n"

// Timers that were due while the process was down all fire once, none early.
func TestF11_TimersDueWhileDown(t *testing.T) {
	const runs = 3_000
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{MaxLoaded: 500}, noop())
	p := planOf(t, waitRecipe, noop())
	var keys []store.Key
	for range runs {
		keys = append(keys, h.run(acc, p, nil))
	}
	h = h.reopen(st.Crash(0))
	h.runUntilIdle()
	h.advanceClock(50_000_000)
	if len(h.tasks) != 0 {
		t.Fatalf("%d timers fired early", len(h.tasks))
	}
	h.now += 3_600_000_000 // down for an hour
	h = h.reopen(h.st.(*memory.Store).Crash(0))
	most := 0
	for range 100 {
		before := len(h.tasks)
		h.handle()
		h.commit()
		most = max(most, len(h.tasks)-before)
		if len(h.tasks) == runs {
			break
		}
		h.now += 1000
	}
	if most > maxTimers {
		t.Errorf("%d timers fired in one pass, want at most %d", most, maxTimers)
	}
	h.advanceClock(1_000_000)
	h.finishTasks()
	for _, key := range keys {
		h.wantStatus(key, "completed")
		if n := countPrefix(h.trace(key, p), "node.completed w"); n != 1 {
			t.Fatalf("run %s: its timer fired %d times", key.Run, n)
		}
	}
}

// Runs in memory whose timers are due at the same moment also fire a bounded number at
// a time.
func TestF11_ManyTimersAtOnce(t *testing.T) {
	const runs = 3 * maxTimers
	h := newHarness(t, memory.New(memory.Options{}), Config{}, noop())
	p := planOf(t, waitRecipe, noop())
	var inputs []*input
	for range runs {
		inputs = append(inputs, h.startInput(acc, p, nil))
	}
	h.runUntilIdle(inputs...)
	h.now += 60_000_000
	for n := 0; len(h.tasks) < min(runs, h.cfg.Concurrency); n++ {
		h.handle()
		if fired := len(h.c.pipeline.building.dirty); fired > maxTimers {
			t.Fatalf("%d timers fired in one pass, want at most %d", fired, maxTimers)
		}
		h.commit()
		if n > 10 {
			t.Fatal("not all timers fire")
		}
	}
	h.runUntilIdle()
	h.finishTasks()
	for _, in := range inputs {
		h.wantStatus(in.key, "completed")
	}
}

// A clock that was turned back while the process was down does not turn the
// journal's time back (I10).
func TestI10_TimeNeverFalls(t *testing.T) {
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{}, noop())
	p := planOf(t, waitRecipe, noop())
	key := h.run(acc, p, nil)
	h.advanceClock(30_000_000)
	h.now -= 20_000_000_000
	h = h.reopen(st.Crash(0))
	h.runUntilIdle()
	var at int64
	check := func(ev *journal.Event) error {
		if ev.At < at {
			return fmt.Errorf("event %d is at %d, the one before at %d", ev.Seq, ev.At, at)
		}
		at = ev.At
		return nil
	}
	h.now = h.c.now
	h.advanceClock(61_000_000)
	h.finishTasks()
	h.wantStatus(key, "completed")
	if err := store.EachEvent(context.Background(), h.st, key, 0, check); err != nil {
		t.Error(err)
	}
}

// A damaged run is quarantined with the reason; the others continue.
func TestF20_DamagedRunIsQuarantined(t *testing.T) {
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{}, noop())
	p := planOf(t, chain(2), noop())
	bad, good := h.run(acc, p, nil), h.run(acc, p, nil)
	h.runUntilIdle()
	st = st.Crash(0)
	st.Damage(bad)
	h = h.reopen(st)
	h.runUntilIdle()
	h.finishTasks()
	h.wantStatus(good, "completed")
	head := h.head(bad)
	if !strings.Contains(head.Quarantine, "checksum") {
		t.Errorf("the damaged run's quarantine is %q", head.Quarantine)
	}
	in := request(bad, machine.Input{Kind: machine.InCancel})
	reply := h.replyOf(in)
	h.runUntilIdle(in)
	if err := reply().err; fault.CodeOf(err) != fault.StoreCorrupt && fault.CodeOf(err) != fault.Quarantined {
		t.Errorf("cancelling the damaged run: %v", err)
	}
}

// panickingPlan returns a plan that makes the machine panic when its second step is to
// start.
func panickingPlan(t *testing.T) *plan.Plan {
	p := planOf(t, "name: bad\nsteps:\n  - {id: a, action: {name: noop}}\n  - {id: b, condition: {expression: 'true', then: [{id: c, action: {name: noop}}]}}\n", noop())
	for i := range p.Steps {
		if p.Steps[i].ID == "b" {
			p.Steps[i].Then = 1 << 20
		}
	}
	if err := p.Freeze(); err != nil {
		t.Fatal(err)
	}
	return p
}

// The text of a panic may contain a value that the recipe marks as writeOnly. Then
// neither the stored reason nor the error of a command may contain it.
func TestI16_PanicShowsNoMarkedValue(t *testing.T) {
	for _, mark := range []string{"", ", writeOnly: true"} {
		p := planOf(t, "name: a\ninputSchema: {type: object, properties: {token: {type: string"+mark+"}}}\n"+
			"steps:\n  - {id: a, action: {name: noop}}\n", noop())
		h := newHarness(t, memory.New(memory.Options{}), Config{}, noop())
		key := h.run(acc, p, map[string]any{"token": "hush-token"})
		got := h.takeTask()
		h.c.observer = panicAlways("no hush-token")
		h.runUntilIdle(success(got, `{}`))
		in := request(key, machine.Input{Kind: machine.InCancel})
		reply := h.replyOf(in)
		h.runUntilIdle(in)
		for _, text := range []string{h.head(key).Quarantine, fault.Message(reply().err)} {
			if !strings.Contains(text, "panicked after event") || strings.Contains(text, "hush") != (mark == "") {
				t.Errorf("with the mark %q the text is: %s", mark, text)
			}
		}
	}
}

// panicAlways is a turnObserver that makes every turn panic with its text.
type panicAlways string

func (p panicAlways) Before(store.Key, *machine.Run, *machine.Input)             { panic(string(p)) }
func (panicAlways) After(store.Key, *machine.Run, *machine.Input, *machine.Turn) {}

// A panic quarantines one run; the process and the others continue, even if both share
// a batch.
func TestI16_PanicQuarantinesOneRun(t *testing.T) {
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{}, noop())
	good, bad := planOf(t, chain(2), noop()), panickingPlan(t)
	badKey, goodKey := h.run(acc, bad, nil), h.run(acc, good, nil)
	badTask, goodTask := h.takeTask(), h.takeTask()
	h.runUntilIdle(success(badTask, `{}`), success(goodTask, `{}`))
	h.finishTasks()
	h.wantStatus(goodKey, "completed")
	head := h.head(badKey)
	if !strings.Contains(head.Quarantine, "panicked") {
		t.Fatalf("the run's quarantine is %q", head.Quarantine)
	}
	if n := h.c.attempts.Arbiter.InUse(); n != 0 {
		t.Errorf("%d slots are still held", n)
	}
	in := request(badKey, machine.Input{Kind: machine.InCancel})
	reply := h.replyOf(in)
	h.runUntilIdle(in)
	wantCode(t, reply().err, fault.Quarantined)

	// After a restart it stays quarantined; after a release it continues and panics
	// again.
	h = h.reopen(st.Crash(0))
	h.runUntilIdle()
	if len(h.tasks) != 0 {
		t.Error("a quarantined run hands out attempts")
	}
	rel := &input{kind: inRelease, key: badKey, reply: make(chan answer, 1)}
	reply = h.replyOf(rel)
	h.runUntilIdle(rel)
	if err := reply().err; err != nil {
		t.Error(err)
	}
	h.finishTasks()
	if head := h.head(badKey); !strings.Contains(head.Quarantine, "panicked") {
		t.Errorf("after its release the run's quarantine is %q", head.Quarantine)
	}
}

// A run is quarantined if the process crashes three times while only that run is being
// loaded. The load is recorded in the store before each crash.
func TestI16_PoisonedRunIsFound(t *testing.T) {
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{SuspendAfter: time.Hour}, noop())
	p := planOf(t, "name: w\norder: none\nsteps:\n  - {id: w, wait: {signal: go}}\n  - {id: a, action: {name: noop}}\n", noop())
	quiet := h.run(acc, planOf(t, "name: q\nsteps:\n  - {id: w, wait: {signal: go}}\n"), nil)
	first, poison := h.run(acc, p, nil), h.run(acc, p, nil)
	die := func() {
		h.now += 1_000_000
		h = h.reopen(h.st.(*memory.Store).Crash(0))
	}
	die() // both runs load at once
	h.runUntilIdle()
	for n := range 4 {
		die()
		want := 2     // the quiet run is not suspect
		if n+2 >= 5 { // until nothing else helps
			want = 3
		}
		if len(h.c.recovery.suspects) != want {
			t.Fatalf("death %d: %d suspects, want %d", n+2, len(h.c.recovery.suspects), want)
		}
		// The process dies the moment the poisoned run is marked and loaded.
		for h.handle(); h.c.recovery.history.Isolated == nil || h.c.recovery.history.Isolated.Run != poison.Run; h.handle() {
			h.commit()
			h.now += 1000
		}
		if n == 2 {
			break
		}
	}
	die()
	h.advanceClock(5_000_000)
	if head := h.head(poison); !strings.Contains(head.Quarantine, "died 3 times") {
		t.Fatalf("the poisoned run's quarantine is %q", head.Quarantine)
	}
	if head := h.head(first); head.Quarantine != "" {
		t.Errorf("the other run is quarantined too: %q", head.Quarantine)
	}
	if head := h.head(quiet); head.Quarantine != "" || h.c.residency.runs[quiet] == nil {
		t.Errorf("the quiet run is not loaded: %q", head.Quarantine)
	}
	sig := request(quiet, machine.Input{Kind: machine.InSignal, Name: "go", Data: []byte(`1`)})
	reply := h.replyOf(sig)
	h.runUntilIdle(sig)
	if err := reply().err; err != nil {
		t.Error(err)
	}
	h.wantStatus(quiet, "completed")
	if h.c.recovery.history.Isolated != nil {
		t.Error("the last suspect is still marked")
	}
}

// Late and repeated requests to runs that have ended are refused and change nothing;
// the loop continues (F18).
func TestF18_RequestsToAnEndedRun(t *testing.T) {
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{}, noop())
	p := planOf(t, chain(1), noop())
	key := h.run(acc, p, nil)
	ef := h.takeTask()
	h.runUntilIdle(success(ef, `{}`))
	before := len(h.trace(key, p))
	for _, m := range []machine.Input{
		{Kind: machine.InCancel}, {Kind: machine.InSignal, Name: "x"}, {Kind: machine.InRetry},
		{Kind: machine.InEdit, Data: []byte(`7`)}, {Kind: machine.InRetry, Name: "nosuch"},
	} {
		in := request(key, m)
		reply := h.replyOf(in)
		h.runUntilIdle(in)
		if reply().err == nil {
			t.Errorf("input %d to an ended run was accepted", m.Kind)
		}
	}
	h.runUntilIdle(success(ef, `"late"`))
	if after := len(h.trace(key, p)); after != before {
		t.Errorf("the journal grew from %d to %d events", before, after)
	}
	for _, k := range []store.Key{{Account: acc, Run: "run_none"}, {Account: "other", Run: key.Run}} {
		in := request(k, machine.Input{Kind: machine.InCancel})
		reply := h.replyOf(in)
		h.runUntilIdle(in)
		wantCode(t, reply().err, fault.RunNotFound)
	}
	h.run(acc, p, nil)
}

// Two retries at once open one generation; reports of the old one change nothing (I7).
func TestF43_PartialRetryTwiceAtOnce(t *testing.T) {
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{}, noop())
	p := planOf(t, fan(2), noop())
	key := h.run(acc, p, nil)
	a, b := h.takeTask(), h.takeTask()
	h.runUntilIdle(success(a, `{}`), failure(b, fault.StepFailed))
	h.wantStatus(key, "failed")
	first, second := request(key, machine.Input{Kind: machine.InRetry}), request(key, machine.Input{Kind: machine.InRetry})
	firstReply, secondReply := h.replyOf(first), h.replyOf(second)
	h.runUntilIdle(first, second)
	if firstReply().err != nil {
		t.Error(firstReply().err)
	}
	wantCode(t, secondReply().err, fault.Conflict)
	h.runUntilIdle(success(b, `"late"`))
	if len(h.tasks) != 1 || h.tasks[0].id.Ref != b.id.Ref {
		t.Fatalf("%d tasks are handed out, want only the failed step's", len(h.tasks))
	}
	h.finishTasks()
	h.wantStatus(key, "completed")
	lines := h.trace(key, p)
	if n := countPrefix(lines, "run.retried"); n != 1 {
		t.Errorf("%d generations were opened", n)
	}
	if n := countPrefix(lines, "node.completed s0"); n != 1 {
		t.Errorf("a completed step ran again (%d times)", n)
	}
}

// An answer in a batch that a panic takes back is not sent, because it was never
// durable.
func TestI1_PanicTakesBackItsAnswers(t *testing.T) {
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{}, noop())
	p := panickingPlan(t)
	key := h.run(acc, p, nil)
	before := len(h.trace(key, p))
	sig := request(key, machine.Input{Kind: machine.InSignal, Name: "hello"})
	reply := h.replyOf(sig)
	h.runUntilIdle(sig, success(h.takeTask(), `{}`))
	wantCode(t, reply().err, fault.Quarantined)
	if after := len(h.trace(key, p)); after != before {
		t.Errorf("%d events were written with a turn that panicked", after-before)
	}
}
