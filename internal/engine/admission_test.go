// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/admission"
	"github.com/roux-engine/roux/internal/ledger"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
	"github.com/roux-engine/roux/internal/terms"
)

// limited returns rules by which every account may have n live runs and does not pay.
func limited(n int) func(string) AccountRules {
	return func(string) AccountRules { return AccountRules{Unmetered: true, MaxLiveRuns: n} }
}

// wantUnended compares the runs of the account as stored, and as the queues know them.
func (h *harness) wantUnended(account string, live, queued int) {
	h.t.Helper()
	got, err := h.st.Unended(context.Background(), account)
	if err != nil || got != (store.Unended{Live: live, Queued: queued}) {
		h.t.Errorf("account %s has %+v, %v; want %d live and %d queued", account, got, err, live, queued)
	}
}

// startMany starts n runs in one pass.
func (h *harness) startMany(account string, n int) (keys []store.Key) {
	h.t.Helper()
	p := planOf(h.t, once, costing(1, nil))
	inputs := make([]*input, n)
	for i := range inputs {
		inputs[i] = h.startInput(account, p, nil)
		keys = append(keys, inputs[i].key)
	}
	h.runUntilIdle(inputs...)
	for _, in := range inputs {
		if out := h.answer(in); out.err != nil {
			h.t.Fatal(out.err)
		}
	}
	return keys
}

// neverAbove returns a store that fails the test if more than n runs of an account are
// live after a commit.
func neverAbove(t *testing.T, n int) *memory.Store {
	live := map[store.Key]bool{}
	return memory.New(memory.Options{OnCommit: func(_ int, batch []store.Transition) memory.Outcome {
		for i := range batch {
			if h := batch[i].Head; h != nil {
				live[batch[i].Key] = admission.ClassOf(h) == admission.Live
			}
		}
		count := map[string]int{}
		for key, is := range live {
			if is {
				count[key.Account]++
			}
		}
		for account, got := range count {
			if got > n {
				t.Errorf("X206: account %s has %d live runs after a commit, its limit is %d", account, got, n)
			}
		}
		return memory.OK
	}})
}

// Of 250 starts at a limit of 100, 150 are queued. They begin in the order in which they
// came, each in the commit of the end that makes room, also after a crash, and those that
// wait are not in memory (X206).
func TestX206_RunsAboveTheLimitAreQueued(t *testing.T) {
	h := newHarness(t, neverAbove(t, 100), Config{Accounts: limited(100)}, costing(1, nil))
	keys := h.startMany(acc, 250)
	h.wantUnended(acc, 100, 150)
	if len(h.tasks) != 100 {
		t.Fatalf("%d attempts are handed out", len(h.tasks))
	}
	var begun []string
	finish := func(n int) {
		var inputs []*input
		for range n {
			ef := h.takeTask()
			begun = append(begun, ef.id.Key.Run)
			inputs = append(inputs, success(ef, `{}`))
		}
		h.runUntilIdle(inputs...)
	}
	finish(60)
	h.wantUnended(acc, 100, 90)
	h.advanceClock(3_000_000) // the queued runs leave memory
	if n := len(h.c.residency.runs); n > 100 {
		t.Errorf("%d runs are in memory", n)
	}

	h = h.reopen(h.st.(*memory.Store).Crash(1))
	if n := len(h.c.residency.runs); n != 100 {
		t.Errorf("%d runs are loaded after a crash", n)
	}
	h.runUntilIdle()
	h.wantUnended(acc, 100, 90)
	slices.SortFunc(h.tasks, func(a, b effect) int { return strings.Compare(a.id.Key.Run, b.id.Key.Run) })
	for len(h.tasks) > 0 {
		finish(1)
	}
	h.wantUnended(acc, 0, 0)
	for i, key := range keys {
		if begun[i] != key.Run {
			t.Fatalf("X206: run %d to begin is %s, want %s", i, begun[i], key.Run)
		}
		h.wantStatus(key, "completed")
		verify(t, h.st, key)
	}
}

// The end of a live run and the beginning of the next one are one commit.
func TestX206_AdmittedWithTheEnd(t *testing.T) {
	var together bool
	st := memory.New(memory.Options{OnCommit: func(_ int, batch []store.Transition) memory.Outcome {
		ended, admitted := false, false
		for i := range batch {
			if h := batch[i].Head; h != nil {
				ended, admitted = ended || h.Status == "completed", admitted || h.Status == "running"
			}
		}
		together = together || ended && admitted
		return memory.OK
	}})
	h := newHarness(t, st, Config{Accounts: limited(1)}, costing(1, nil))
	keys := h.startMany(acc, 2)
	h.runUntilIdle(success(h.takeTask(), `{}`))
	if h.wantStatus(keys[1], "running"); !together {
		t.Error("the end and the admission are two commits")
	}
}

// Users do with queued runs what they do with others (X206).
func TestX206_QueuedRunsAreSteered(t *testing.T) {
	h := newHarness(t, neverAbove(t, 1), Config{Accounts: limited(1)}, costing(1, nil))
	keys := h.startMany(acc, 5)
	live, cancelled, paused, signalled, expired := keys[0], keys[1], keys[2], keys[3], keys[4]
	h.runUntilIdle(
		request(cancelled, machine.Input{Kind: machine.InCancel, Text: "no"}),
		request(paused, machine.Input{Kind: machine.InPause}),
		request(signalled, machine.Input{Kind: machine.InSignal, Name: "go", Data: []byte("1")}))
	h.wantStatus(cancelled, "cancelled")
	h.wantStatus(paused, "queued")
	h.wantUnended(acc, 1, 3)
	// A paused run keeps its place, and takes it: it is live although nothing of it begins.
	h.runUntilIdle(success(h.takeTask(), `{}`))
	h.wantStatus(live, "completed")
	h.wantStatus(paused, "dispatching")
	h.wantUnended(acc, 1, 2)
	h.advanceClock(49 * hour) // its ttl goes on, and so do those of queued runs
	for _, key := range []store.Key{paused, signalled, expired} {
		h.wantStatus(key, "expired")
	}
	h.wantUnended(acc, 0, 0)
}

// Queued and live runs together are at most 10 times the limit. A start that is repeated
// gets its first run all the same (X206, I13).
func TestX206_MoreIsRefused(t *testing.T) {
	h := newHarness(t, memory.New(memory.Options{}), Config{Accounts: limited(2)}, costing(1, nil))
	p := planOf(t, once, costing(1, nil))
	keyed := func(key string) *input {
		in := h.startInput(acc, p, nil)
		in.start.idem = &store.Idempotency{Key: key, BodyHash: "body", Until: h.now + hour}
		return in
	}
	first := keyed("k")
	h.runUntilIdle(first)
	h.startMany(acc, 19)
	h.wantUnended(acc, 2, 18)
	plain, again, other := h.startInput(acc, p, nil), keyed("k"), keyed("l")
	h.runUntilIdle(plain, again, other)
	for _, in := range []*input{plain, other} {
		err := h.answer(in).err
		wantCode(t, err, fault.QuotaExceeded)
		var f *fault.Error
		if !errors.As(err, &f) || f.RetryAfterMS == 0 ||
			!strings.Contains(f.Msg, "has 2 live runs of at most 2, and 18 are queued") || !strings.Contains(f.Msg, "limitSource account") {
			t.Errorf("the refusal says %v", err)
		}
	}
	if out := h.answer(again); out.err != nil || out.run != first.key.Run || !out.existing {
		t.Errorf("the repeated start is answered %+v", out)
	}
	h.wantUnended(acc, 2, 18)
	h.runUntilIdle(success(h.takeTask(), `{}`))
	h.startMany(acc, 1) // into the place of the one that has ended
	h.wantUnended(acc, 2, 18)
}

// A start that the store refuses makes room for a queued one.
func TestX206_RefusedStartsDoNotCount(t *testing.T) {
	h := newHarness(t, memory.New(memory.Options{}), Config{Accounts: limited(2)}, costing(1, nil))
	p := planOf(t, once, costing(1, nil))
	var inputs []*input
	for range 3 {
		in := h.startInput(acc, p, nil)
		in.start.idem = &store.Idempotency{Key: "k", BodyHash: "body", Until: h.now + hour}
		inputs = append(inputs, in)
	}
	inputs = append(inputs, h.startInput(acc, p, nil))
	h.runUntilIdle(inputs...)
	h.wantUnended(acc, 2, 0)
	if len(h.tasks) != 2 {
		t.Errorf("%d attempts are handed out", len(h.tasks))
	}
}

// The limit of one account holds up no other, and accounts with room take turns.
func TestX206_AccountsDoNotHoldUpEachOther(t *testing.T) {
	h := newHarness(t, neverAbove(t, 3), Config{Accounts: limited(3), Concurrency: 1}, costing(1, nil))
	h.startMany("busy", 30)
	h.startMany("calm", 4)
	h.wantUnended("busy", 3, 27)
	h.wantUnended("calm", 3, 1)
	n := map[string]int{}
	for range 8 {
		ef := h.takeTask()
		n[ef.id.Key.Account]++
		h.runUntilIdle(success(ef, `{}`))
	}
	if n["calm"] != 4 {
		t.Errorf("of the first 8 attempts %v", n)
	}
	h.finishTasks()
	h.wantUnended("busy", 0, 0)
}

// A retry above the limit is queued, behind those that wait already (X206).
func TestX206_RetriesAreQueued(t *testing.T) {
	h := newHarness(t, neverAbove(t, 1), Config{Accounts: limited(1)}, costing(1, nil))
	keys := h.startMany(acc, 3)
	h.runUntilIdle(failure(h.takeTask(), fault.FileInvalid))
	h.wantStatus(keys[0], "failed")
	h.now++
	h.runUntilIdle(request(keys[0], machine.Input{Kind: machine.InRetry}))
	h.wantStatus(keys[0], "queued")
	h.wantUnended(acc, 1, 2)
	h.advanceClock(3_000_000)
	h = h.reopen(h.st.(*memory.Store).Crash(1))
	h.runUntilIdle()
	for _, want := range []store.Key{keys[1], keys[2], keys[0]} {
		ef := h.takeTask()
		if ef.id.Key != want {
			t.Errorf("%s begins, want %s", ef.id.Key.Run, want.Run)
		}
		h.runUntilIdle(success(ef, `{}`))
	}
	h.wantUnended(acc, 0, 0)
}

// A queued run that is cancelled and retried before the next commit has its new place
// after a crash, too (X206).
func TestX206_QueuedAgainInOneBatch(t *testing.T) {
	h := newHarness(t, neverAbove(t, 1), Config{Accounts: limited(1)}, costing(1, nil))
	keys := h.startMany(acc, 3)
	h.now++
	h.runUntilIdle(request(keys[1], machine.Input{Kind: machine.InCancel, Text: "no"}), request(keys[1], machine.Input{Kind: machine.InRetry}))
	h.wantUnended(acc, 1, 2)
	h = h.reopen(h.st.(*memory.Store).Crash(1))
	h.runUntilIdle()
	for _, want := range []store.Key{keys[0], keys[2], keys[1]} {
		ef := h.takeTask()
		if ef.id.Key != want {
			t.Errorf("%s begins, want %s", ef.id.Key.Run, want.Run)
		}
		h.runUntilIdle(success(ef, `{}`))
	}
	h.wantUnended(acc, 0, 0)
}

// A limit that was raised admits queued runs at the next start, and one that is gone all
// of them. One that was lowered lets live runs go on.
func TestX206_LimitsChangeWithARestart(t *testing.T) {
	h := newHarness(t, memory.New(memory.Options{}), Config{Accounts: limited(2)}, costing(1, nil))
	h.startMany(acc, 10)
	for _, tt := range []struct{ limit, live, queued int }{{4, 4, 6}, {-1, 10, 0}, {3, 10, 0}} {
		h.cfg.Accounts = limited(tt.limit)
		h = h.reopen(h.st.(*memory.Store).Crash(1))
		h.runUntilIdle()
		h.wantUnended(acc, tt.live, tt.queued)
	}
	h.startMany(acc, 1)
	h.wantUnended(acc, 10, 1)
}

// After a commit whose outcome is unknown the live runs are counted again.
func TestX206_CountedAgainAfterAnOutage(t *testing.T) {
	for _, lost := range []memory.Outcome{memory.Refused, memory.ReplyLost} {
		outcome := memory.OK
		st := memory.New(memory.Options{OnCommit: func(int, []store.Transition) memory.Outcome { return outcome }})
		h := newHarness(t, st, Config{Accounts: limited(2)}, costing(1, nil))
		h.startMany(acc, 4)
		outcome = lost
		h.handle(success(h.takeTask(), `{}`))
		h.commit()
		outcome = memory.OK
		h.advanceClock(2_000_000)
		h.wantUnended(acc, 2, 1)
		h.finishTasks()
		h.wantUnended(acc, 0, 0)
	}
}

// What a run has given back before it panics is its own again: its end is not stored.
func TestX206_PanicTakesBackTheEnd(t *testing.T) {
	h := newHarness(t, memory.New(memory.Options{}), Config{Accounts: limited(1)}, costing(1, nil))
	keys := h.startMany(acc, 3)
	h.handle(success(h.takeTask(), `{}`)) // the second run is admitted
	h.c.observer = panicsOn{keys[0], machine.InSignal}
	h.runUntilIdle(request(keys[0], machine.Input{Kind: machine.InSignal, Name: "go"}))
	h.c.observer = nil
	h.wantUnended(acc, 2, 1)
	h.finishTasks()
	h.wantUnended(acc, 1, 1)
	h.release(keys[0])
	h.finishTasks()
	h.wantUnended(acc, 0, 0)
}

// A queued run that cannot be loaded does not keep others from beginning, and begins
// after its release.
func TestX206_QuarantinedRunsStandAside(t *testing.T) {
	st := memory.New(memory.Options{})
	h := newHarness(t, st, Config{Accounts: limited(1)}, costing(1, nil))
	keys := h.startMany(acc, 3)
	h.c.observer = panicsOn{keys[1], machine.InAdmit}
	h.runUntilIdle(success(h.takeTask(), `{}`))
	h.c.observer = nil
	if h.head(keys[1]).Quarantine == "" {
		t.Fatal("the run is not quarantined")
	}
	h.wantStatus(keys[2], "running")
	h.wantUnended(acc, 1, 1)
	h.release(keys[1])
	h.wantUnended(acc, 1, 1)
	h.finishTasks()
	h.wantUnended(acc, 0, 0)
}

// panicsOn is an observer that panics on an input of a run.
type panicsOn struct {
	key  store.Key
	kind machine.InputKind
}

func (p panicsOn) Before(key store.Key, _ *machine.Run, in *machine.Input) {
	if key == p.key && in.Kind == p.kind {
		panic("on purpose")
	}
}

func (panicsOn) After(store.Key, *machine.Run, *machine.Input, *machine.Turn) {}

// A queued run holds its credits (X206).
func TestX206_CreditsAreHeldInTheQueue(t *testing.T) {
	st := memory.New(memory.Options{})
	a := costing(8, nil)
	release := make(chan struct{})
	slow := blockedAction(release)
	slow.Cost = 8
	e := openEngine(t, st, Config{Accounts: func(string) AccountRules { return AccountRules{MaxLiveRuns: 1} }}, a, slow)
	grant(t, e, "first", 25, ledger.Terms{})
	p := planOf(t, "name: slow\nsteps: [{id: a, action: {name: slow}}]\n", slow)
	first, second := start(t, e, p, nil), start(t, e, p, nil)
	wantBalance(t, st, 5, 20, 0)
	if head, err := e.Head(t.Context(), acc, second); err != nil || head.Status != "queued" {
		t.Errorf("the second run is %s, %v", head.Status, err)
	}
	_, err := e.Start(t.Context(), StartRequest{Account: acc, Plan: p, Recipe: "slow"})
	wantCode(t, err, fault.InsufficientCredits)
	close(release)
	for _, run := range []string{first, second} {
		waitForEnd(t, e, run)
	}
	wantBalance(t, st, 9, 0, 16)
}

// Accounts that do not pay have no limit unless one is set, and others have one.
func TestX206_Limits(t *testing.T) {
	for _, tt := range []struct {
		rules AccountRules
		want  int
	}{
		{AccountRules{}, 100}, {AccountRules{Unmetered: true}, 0}, {AccountRules{MaxLiveRuns: 7}, 7},
		{AccountRules{Unmetered: true, MaxLiveRuns: 7}, 7}, {AccountRules{MaxLiveRuns: -1}, 0}, {terms.Default(LocalAccount), 0},
	} {
		if got := tt.rules.LiveLimit(); got != tt.want {
			t.Errorf("%+v: a limit of %d, want %d", tt.rules, got, tt.want)
		}
	}
}

// BenchmarkQueued starts and ends runs of an account that has a full queue.
func BenchmarkQueued(b *testing.B) {
	h := newHarness(b, memory.New(memory.Options{}), Config{Accounts: limited(100)}, costing(1, nil))
	h.startMany(acc, 1_000)
	p := planOf(b, once, costing(1, nil))
	for b.Loop() {
		h.runUntilIdle(success(h.takeTask(), `{}`))
		in := h.startInput(acc, p, nil)
		h.runUntilIdle(in)
		if out := h.answer(in); out.err != nil {
			b.Fatal(fmt.Errorf("start: %w", out.err))
		}
	}
}
