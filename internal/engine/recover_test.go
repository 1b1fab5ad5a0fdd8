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

// A crash after each commit of a run: successors come from the journal, none is
// lost and no recorded step repeats (X81, X89); the plan comes from the store, and
// nothing is parsed or compiled again.
func TestF02_CrashAfterEveryCommit(t *testing.T) {
	p := planOf(t, fan(3), noop())
	for stop := range 8 {
		st := memory.New(memory.Options{})
		r := newRig(t, st, Config{}, noop())
		in := r.start(acc, p, nil)
		r.handle(in)
		for n := 0; n < stop; n++ {
			if !r.commit() && len(r.tasks) == 0 {
				break
			}
			r.handle()
			if len(r.tasks) > 0 && !r.c.busy() {
				r.handle(done(r.pull(), `{}`))
			}
		}
		st = st.Crash(0)
		if _, err := st.Head(context.Background(), in.key); fault.CodeOf(err) == fault.RunNotFound {
			if stop > 0 {
				t.Errorf("after %d commits the run is gone", stop)
			}
			continue
		}
		before := trace(t, st, p, acc, in.key.Run)
		r = r.reopen(st)
		r.settle()
		r.work()
		r.wantStatus(in.key, "completed")
		lines := r.trace(in.key, p)
		for _, s := range []string{"s0", "s1", "s2", "join"} {
			if n := count(lines, "node.completed "+s); n != 1 {
				t.Errorf("after %d commits: step %s completed %d times", stop, s, n)
			}
		}
		if got := strings.Join(lines[:len(before)], "\n"); got != strings.Join(before, "\n") {
			t.Errorf("after %d commits: recovery rewrote history:\n%s", stop, got)
		}
		verify(t, st, in.key)
	}
}

// Two losses of one attempt are one transition and count once; a lost attempt
// is no failure.
func TestF09_LostAttemptCountsOnce(t *testing.T) {
	st := memory.New(memory.Options{})
	r := newRig(t, st, Config{}, noop())
	p := planOf(t, chain(1), noop())
	key := r.run(acc, p, nil)
	ef := r.pull()
	lost := machine.Input{Kind: machine.InWorkerLost, Ref: ef.id.ref, Fence: ef.id.fence}
	r.settle(&input{kind: inRun, key: key, m: lost}, &input{kind: inRun, key: key, m: lost}, &input{kind: inRun, key: key, m: lost})
	if len(r.tasks) != 1 {
		t.Fatalf("%d attempts are handed out after one loss", len(r.tasks))
	}
	r.work()
	lines := r.trace(key, p)
	if n := count(lines, "node.retried"); n != 1 {
		t.Errorf("%d losses are recorded, want 1:\n%s", n, strings.Join(lines, "\n"))
	}
	r.wantStatus(key, "completed")
}

const waitRecipe = "name: w\nsteps:\n  - {id: w, wait: {duration: 1m}}\n  - {id: a, action: {name: noop}}\n"

// Timers that were due while the process was down all fire once, none early.
func TestF11_TimersDueWhileDown(t *testing.T) {
	const runs = 3_000
	st := memory.New(memory.Options{})
	r := newRig(t, st, Config{MaxLoaded: 500}, noop())
	p := planOf(t, waitRecipe, noop())
	var keys []store.Key
	for range runs {
		keys = append(keys, r.run(acc, p, nil))
	}
	r = r.reopen(st.Crash(0))
	r.settle()
	r.pass(50_000_000)
	if len(r.tasks) != 0 {
		t.Fatalf("%d timers fired early", len(r.tasks))
	}
	r.now += 3_600_000_000 // down for an hour
	r = r.reopen(r.st.(*memory.Store).Crash(0))
	most := 0
	for range 100 {
		before := len(r.tasks)
		r.handle()
		r.commit()
		most = max(most, len(r.tasks)-before)
		if len(r.tasks) == runs {
			break
		}
		r.now += 1000
	}
	if most > maxRing {
		t.Errorf("%d timers fired in one pass, want at most %d", most, maxRing)
	}
	r.pass(1_000_000)
	r.work()
	for _, key := range keys {
		r.wantStatus(key, "completed")
		if n := count(r.trace(key, p), "node.completed w"); n != 1 {
			t.Fatalf("run %s: its timer fired %d times", key.Run, n)
		}
	}
}

// Runs in memory whose timers are due at the same moment fire a bounded number
// at a time too.
func TestF11_ManyTimersAtOnce(t *testing.T) {
	const runs = 3 * maxRing
	r := newRig(t, memory.New(memory.Options{}), Config{}, noop())
	p := planOf(t, waitRecipe, noop())
	var ins []*input
	for range runs {
		ins = append(ins, r.start(acc, p, nil))
	}
	r.settle(ins...)
	r.now += 60_000_000
	for n := 0; len(r.tasks) < min(runs, r.cfg.Concurrency); n++ {
		r.handle()
		if fired := len(r.c.pipeline.building.dirty); fired > maxRing {
			t.Fatalf("%d timers fired in one pass, want at most %d", fired, maxRing)
		}
		r.commit()
		if n > 10 {
			t.Fatal("not all timers fire")
		}
	}
	r.settle()
	r.work()
	for _, in := range ins {
		r.wantStatus(in.key, "completed")
	}
}

// A clock that was turned back while the process was down does not turn the
// journal's time back (I10).
func TestI10_TimeNeverFalls(t *testing.T) {
	st := memory.New(memory.Options{})
	r := newRig(t, st, Config{}, noop())
	p := planOf(t, waitRecipe, noop())
	key := r.run(acc, p, nil)
	r.pass(30_000_000)
	r.now -= 20_000_000_000
	r = r.reopen(st.Crash(0))
	r.settle()
	var at int64
	check := func(ev *journal.Event) error {
		if ev.At < at {
			return fmt.Errorf("event %d is at %d, the one before at %d", ev.Seq, ev.At, at)
		}
		at = ev.At
		return nil
	}
	r.now = r.c.now
	r.pass(61_000_000)
	r.work()
	r.wantStatus(key, "completed")
	if err := store.EachEvent(context.Background(), r.st, key, 0, check); err != nil {
		t.Error(err)
	}
}

// A damaged run is quarantined with its reason; the others go on.
func TestF20_DamagedRunIsQuarantined(t *testing.T) {
	st := memory.New(memory.Options{})
	r := newRig(t, st, Config{}, noop())
	p := planOf(t, chain(2), noop())
	bad, good := r.run(acc, p, nil), r.run(acc, p, nil)
	r.settle()
	st = st.Crash(0)
	st.Damage(bad)
	r = r.reopen(st)
	r.settle()
	r.work()
	r.wantStatus(good, "completed")
	head := r.head(bad)
	if !strings.Contains(head.Quarantine, "checksum") {
		t.Errorf("the damaged run's quarantine says %q", head.Quarantine)
	}
	in := request(bad, machine.Input{Kind: machine.InCancel})
	reply := r.asked(in)
	r.settle(in)
	if err := reply().err; fault.CodeOf(err) != fault.StoreCorrupt && fault.CodeOf(err) != fault.Quarantined {
		t.Errorf("cancelling the damaged run: %v", err)
	}
}

// badPlan makes the machine panic when its second step is to begin.
func badPlan(t *testing.T) *plan.Plan {
	p := planOf(t, "name: bad\nsteps:\n  - {id: a, action: {name: noop}}\n  - {id: b, condition: {expression: 'true', then: [{id: c, action: {name: noop}}]}}\n", noop())
	for i := range p.Steps {
		if p.Steps[i].ID == "b" {
			p.Steps[i].Then = 1 << 20
		}
	}
	if err := p.Seal(); err != nil {
		t.Fatal(err)
	}
	return p
}

// What a panic says may hold a value that the recipe marks as writeOnly: neither the
// reason that is stored nor the error of a command has it then.
func TestI16_PanicShowsNoMarkedValue(t *testing.T) {
	for _, mark := range []string{"", ", writeOnly: true"} {
		p := planOf(t, "name: a\ninputSchema: {type: object, properties: {token: {type: string"+mark+"}}}\n"+
			"steps:\n  - {id: a, action: {name: noop}}\n", noop())
		r := newRig(t, memory.New(memory.Options{}), Config{}, noop())
		key := r.run(acc, p, map[string]any{"token": "hush-token"})
		got := r.pull()
		r.c.watch = panics("no hush-token")
		r.settle(done(got, `{}`))
		in := request(key, machine.Input{Kind: machine.InCancel})
		reply := r.asked(in)
		r.settle(in)
		for _, text := range []string{r.head(key).Quarantine, fault.Message(reply().err)} {
			if !strings.Contains(text, "panicked after event") || strings.Contains(text, "hush") != (mark == "") {
				t.Errorf("with the mark %q it says: %s", mark, text)
			}
		}
	}
}

// panics is a watch under which every turn panics with a text.
type panics string

func (p panics) Before(store.Key, *machine.Run, *machine.Input)             { panic(string(p)) }
func (panics) After(store.Key, *machine.Run, *machine.Input, *machine.Turn) {}

// A panic ends the part of one run; the process and the others go on, also when
// both share a batch.
func TestI16_PanicQuarantinesOneRun(t *testing.T) {
	st := memory.New(memory.Options{})
	r := newRig(t, st, Config{}, noop())
	good, bad := planOf(t, chain(2), noop()), badPlan(t)
	kb, kg := r.run(acc, bad, nil), r.run(acc, good, nil)
	b, g := r.pull(), r.pull()
	r.settle(done(b, `{}`), done(g, `{}`))
	r.work()
	r.wantStatus(kg, "completed")
	head := r.head(kb)
	if !strings.Contains(head.Quarantine, "panicked") {
		t.Fatalf("the run's quarantine says %q", head.Quarantine)
	}
	if n := r.c.attempts.arbiter.InUse(); n != 0 {
		t.Errorf("%d slots are still held", n)
	}
	in := request(kb, machine.Input{Kind: machine.InCancel})
	reply := r.asked(in)
	r.settle(in)
	wantCode(t, reply().err, fault.Quarantined)

	// A restart leaves it alone; release lets it go on, into the same wall.
	r = r.reopen(st.Crash(0))
	r.settle()
	if len(r.tasks) != 0 {
		t.Error("a run that is quarantined hands out work")
	}
	rel := &input{kind: inRelease, key: kb, reply: make(chan answer, 1)}
	reply = r.asked(rel)
	r.settle(rel)
	if err := reply().err; err != nil {
		t.Error(err)
	}
	r.work()
	if head := r.head(kb); !strings.Contains(head.Quarantine, "panicked") {
		t.Errorf("after its release the run's quarantine says %q", head.Quarantine)
	}
}

// A run whose lone load kills the process three times is quarantined. The deaths
// are counted before they happen, in the store.
func TestI16_PoisonedRunIsFound(t *testing.T) {
	st := memory.New(memory.Options{})
	r := newRig(t, st, Config{SuspendAfter: time.Hour}, noop())
	p := planOf(t, "name: w\norder: none\nsteps:\n  - {id: w, wait: {signal: go}}\n  - {id: a, action: {name: noop}}\n", noop())
	quiet := r.run(acc, planOf(t, "name: q\nsteps:\n  - {id: w, wait: {signal: go}}\n"), nil)
	first, poison := r.run(acc, p, nil), r.run(acc, p, nil)
	die := func() {
		r.now += 1_000_000
		r = r.reopen(r.st.(*memory.Store).Crash(0))
	}
	die() // both runs load at once
	r.settle()
	for n := range 4 {
		die()
		want := 2 // the quiet one is above suspicion
		if n+2 >= desperate {
			want = 3
		}
		if len(r.c.recovery.suspects) != want {
			t.Fatalf("death %d: %d suspects, want %d", n+2, len(r.c.recovery.suspects), want)
		}
		// The process dies the moment the poisoned run is marked and loaded.
		for r.handle(); r.c.recovery.history.Alone == nil || r.c.recovery.history.Alone.Run != poison.Run; r.handle() {
			r.commit()
			r.now += 1000
		}
		if n == 2 {
			break
		}
	}
	die()
	r.pass(5_000_000)
	if head := r.head(poison); !strings.Contains(head.Quarantine, "died 3 times") {
		t.Fatalf("the poisoned run's quarantine says %q", head.Quarantine)
	}
	if head := r.head(first); head.Quarantine != "" {
		t.Errorf("the other run is quarantined too: %q", head.Quarantine)
	}
	if head := r.head(quiet); head.Quarantine != "" || r.c.residency.runs[quiet] == nil {
		t.Errorf("the quiet run is not loaded: %q", head.Quarantine)
	}
	sig := request(quiet, machine.Input{Kind: machine.InSignal, Name: "go", Data: []byte(`1`)})
	reply := r.asked(sig)
	r.settle(sig)
	if err := reply().err; err != nil {
		t.Error(err)
	}
	r.wantStatus(quiet, "completed")
	if r.c.recovery.history.Alone != nil {
		t.Error("the last suspect is still marked")
	}
}

// Late and repeated requests about runs that have ended are refused and change
// nothing; the loop goes on (F18).
func TestF18_RequestsToAnEndedRun(t *testing.T) {
	st := memory.New(memory.Options{})
	r := newRig(t, st, Config{}, noop())
	p := planOf(t, chain(1), noop())
	key := r.run(acc, p, nil)
	ef := r.pull()
	r.settle(done(ef, `{}`))
	before := len(r.trace(key, p))
	for _, m := range []machine.Input{
		{Kind: machine.InCancel}, {Kind: machine.InSignal, Name: "x"}, {Kind: machine.InRetry},
		{Kind: machine.InEdit, Data: []byte(`7`)}, {Kind: machine.InRetry, Name: "nosuch"},
	} {
		in := request(key, m)
		reply := r.asked(in)
		r.settle(in)
		if reply().err == nil {
			t.Errorf("input %d to an ended run was accepted", m.Kind)
		}
	}
	r.settle(done(ef, `"late"`))
	if after := len(r.trace(key, p)); after != before {
		t.Errorf("the journal grew from %d to %d events", before, after)
	}
	for _, k := range []store.Key{{Account: acc, Run: "run_none"}, {Account: "other", Run: key.Run}} {
		in := request(k, machine.Input{Kind: machine.InCancel})
		reply := r.asked(in)
		r.settle(in)
		wantCode(t, reply().err, fault.RunNotFound)
	}
	r.run(acc, p, nil)
}

// Two retries at once open one generation; what the old one still reports
// changes nothing (I7).
func TestF43_PartialRetryTwiceAtOnce(t *testing.T) {
	st := memory.New(memory.Options{})
	r := newRig(t, st, Config{}, noop())
	p := planOf(t, fan(2), noop())
	key := r.run(acc, p, nil)
	a, b := r.pull(), r.pull()
	r.settle(done(a, `{}`), broken(b, fault.StepFailed))
	r.wantStatus(key, "failed")
	one, two := request(key, machine.Input{Kind: machine.InRetry}), request(key, machine.Input{Kind: machine.InRetry})
	ra, rb := r.asked(one), r.asked(two)
	r.settle(one, two)
	if ra().err != nil {
		t.Error(ra().err)
	}
	wantCode(t, rb().err, fault.Conflict)
	r.settle(done(b, `"late"`))
	if len(r.tasks) != 1 || r.tasks[0].id.ref != b.id.ref {
		t.Fatalf("%d tasks are handed out, want only the failed step's", len(r.tasks))
	}
	r.work()
	r.wantStatus(key, "completed")
	lines := r.trace(key, p)
	if n := count(lines, "run.retried"); n != 1 {
		t.Errorf("%d generations were opened", n)
	}
	if n := count(lines, "node.completed s0"); n != 1 {
		t.Errorf("what had completed ran again (%d times)", n)
	}
}

// What a run was told in a batch that a panic takes back was never durable, so
// it is not told.
func TestI1_PanicTakesBackItsAnswers(t *testing.T) {
	st := memory.New(memory.Options{})
	r := newRig(t, st, Config{}, noop())
	p := badPlan(t)
	key := r.run(acc, p, nil)
	before := len(r.trace(key, p))
	sig := request(key, machine.Input{Kind: machine.InSignal, Name: "hello"})
	reply := r.asked(sig)
	r.settle(sig, done(r.pull(), `{}`))
	wantCode(t, reply().err, fault.Quarantined)
	if after := len(r.trace(key, p)); after != before {
		t.Errorf("%d events were written with a turn that panicked", after-before)
	}
}
