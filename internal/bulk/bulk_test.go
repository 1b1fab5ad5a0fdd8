// SPDX-License-Identifier: Apache-2.0

package bulk

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

const acme = "acme"

// A world is an engine with bulks that can be killed and started again, in virtual time.
type world struct {
	t       *testing.T
	st      *memory.Store
	e       *engine.Engine
	b       *Bulks
	records *records
	ids     int
	fails   atomic.Bool // what the action does
	asks    *plan.Plan  // waits for a signal
	works   *plan.Plan  // calls the action in its second step
}

// records are those of the store, changed by its owner. stop, when set, is asked before each
// change, and again after it.
type records struct {
	*memory.Store
	e    *engine.Engine
	stop atomic.Pointer[func(after bool) error]
}

func (r *records) PutRecords(ctx context.Context, changes ...store.RecordChange) ([]store.Record, error) {
	if stop := r.stop.Load(); stop != nil {
		if err := (*stop)(false); err != nil {
			return nil, err
		}
		defer func() { _ = (*stop)(true) }()
	}
	return r.e.PutRecords(ctx, changes...)
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, st: memory.New(memory.Options{})}
	w.asks = w.plan("name: asks\nsteps:\n  - {id: ask, wait: {signal: go}}\n")
	w.works = w.plan("name: works\nsteps:\n  - {id: first, transform: {expression: '1'}}\n  - {id: act, dependsOn: [first], action: {name: act}}\n")
	w.boot()
	t.Cleanup(w.kill)
	return w
}

func (w *world) action() action.Action {
	return action.Action{Name: "act", Version: "1.0.0", Run: func(context.Context, *action.Task) (action.Result, error) {
		if w.fails.Load() {
			return action.Result{}, fault.New(fault.FileInvalid, "no")
		}
		return action.Result{Output: map[string]any{"ok": true}}, nil
	}}
}

func (w *world) plan(text string) *plan.Plan {
	w.t.Helper()
	a := w.action()
	p, _, _, diags := compile.Source("r.yaml", []byte(text), compile.Options{Actions: catalogue.New(&a)})
	if p == nil {
		w.t.Fatal(diags)
	}
	return p
}

// boot starts the process.
func (w *world) boot() {
	w.t.Helper()
	a := w.action()
	var err error
	w.e, err = engine.Open(w.t.Context(), engine.Config{
		Store: w.st, Actions: catalogue.New(&a), Accounts: func(string) engine.AccountRules { return engine.AccountRules{Unmetered: true} },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.records = &records{Store: w.st, e: w.e}
	w.b, err = New(Config{Records: w.records, Now: time.Now, NewID: func() (string, error) {
		w.ids++
		return fmt.Sprintf("%s%03d", IDPrefix, w.ids), nil
	}})
	if err != nil {
		w.t.Fatal(err)
	}
	w.b.Attach(w.e, w.st)
	if err := w.b.Start(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// kill ends the process without warning: what it had not made durable is lost.
func (w *world) kill() {
	next := w.st.Crash(0)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	w.b.Stop()
	_, _ = w.e.Stop(ctx)
	w.st = next
}

func (w *world) start(p *plan.Plan, labels map[string]string) string {
	w.t.Helper()
	name := "works"
	if p == w.asks {
		name = "asks"
	}
	started, err := w.e.Start(w.t.Context(), engine.StartRequest{Account: acme, Plan: p, Recipe: name, Labels: labels})
	if err != nil {
		w.t.Fatal(err)
	}
	time.Sleep(time.Millisecond) // a time of creation of its own
	return started.Run
}

// failed makes runs that have failed.
func (w *world) failed(n int) (runs []string) {
	w.t.Helper()
	w.fails.Store(true)
	for range n {
		runs = append(runs, w.start(w.works, nil))
	}
	for _, run := range runs {
		if head, err := w.e.Wait(w.t.Context(), acme, run); err != nil || head.Status != "failed" {
			w.t.Fatal(head.Status, err)
		}
	}
	return runs
}

func (w *world) create(spec Spec) *Bulk {
	w.t.Helper()
	b, err := w.b.Create(w.t.Context(), acme, &spec)
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

// ended waits until a bulk has ended.
func (w *world) ended(id string) *Bulk {
	w.t.Helper()
	for range 10_000 {
		b, err := w.b.Get(w.t.Context(), acme, id)
		if err != nil {
			w.t.Fatal(err)
		}
		if b.State.Ended() {
			return b
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.t.Fatal("the bulk does not end")
	return nil
}

// items are all items of a bulk, read in pages.
func (w *world) items(id string) (all []*Item) {
	w.t.Helper()
	for after := 0; ; {
		list, next, err := w.b.Items(w.t.Context(), acme, id, after, 7)
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, list...)
		if after = next; next == 0 {
			return all
		}
	}
}

func (w *world) status(run string) string {
	w.t.Helper()
	head, err := w.st.Head(w.t.Context(), store.Key{Account: acme, Run: run})
	if err != nil {
		w.t.Fatal(err)
	}
	return head.Status
}

func counts(b *Bulk) string {
	return fmt.Sprintf("%s: %d = %d done, %d skipped, %d failed", b.State, b.Matched, b.Done, b.Skipped, b.Failed)
}

// A filter takes all runs that it selects, in pages, and none that is created later or that
// is not selected. Every run has an item.
func TestCancelByFilter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		var docs []string
		for i := range 2*pageRuns + 3 {
			if docs = append(docs, w.start(w.asks, map[string]string{"team": "docs"})); i%40 == 0 {
				w.start(w.asks, map[string]string{"team": "ops"})
			}
		}
		b := w.create(Spec{Verb: Cancel, Filter: &Filter{Labels: map[string]string{"team": "docs"}}, Reason: "wrong file"})
		later := w.start(w.asks, map[string]string{"team": "docs"})
		b = w.ended(b.ID)
		if got := counts(b); got != "completed: 103 = 103 done, 0 skipped, 0 failed" {
			t.Error(got)
		}
		if b.Ended-b.Created < 500_000 {
			t.Errorf("103 runs took %d µs: it is too fast", b.Ended-b.Created)
		}
		items := w.items(b.ID)
		seen := map[string]bool{}
		for i, it := range items {
			if seen[it.Run] = true; it.Number != i+1 || it.Result != ItemDone || it.Recipe != "asks" {
				t.Errorf("item %d: %+v", i, it)
			}
		}
		for _, run := range docs {
			if !seen[run] || w.status(run) != "cancelled" {
				t.Errorf("run %s is %s", run, w.status(run))
			}
		}
		if len(items) != len(docs) || w.status(later) == "cancelled" {
			t.Errorf("%d items; a later run is %s", len(items), w.status(later))
		}
		again := w.create(Spec{Verb: Cancel, IDs: []string{docs[0], later, later, "run_none"}})
		if got := counts(w.ended(again.ID)); got != "completed: 3 = 1 done, 1 skipped, 1 failed" {
			t.Error(got)
		}
		for _, it := range w.items(again.ID) {
			want := map[string]fault.Code{docs[0]: fault.TooLate, later: "", "run_none": fault.RunNotFound}[it.Run]
			if it.Code != want {
				t.Errorf("%s: %s, want %s", it.Run, it.Code, want)
			}
		}
	})
}

// Failures are grouped by code and step, and a group is retried or deleted.
func TestRetryAGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		runs := w.failed(3)
		other := w.start(w.plan("name: works\nsteps:\n  - {id: bad, transform: {expression: '[1][2]'}}\n"), nil)
		if _, err := w.e.Wait(t.Context(), acme, other); err != nil {
			t.Fatal(err)
		}
		p, err := w.b.Preview(t.Context(), acme, &Spec{Verb: Retry, Filter: &Filter{Statuses: []string{"failed"}}})
		if err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(p.Groups); got != "[{works FILE_INVALID act 3} {works TEMPLATE_ERROR bad 1}]" || p.Matched != 4 || p.More || len(p.Sample) != 4 {
			t.Errorf("preview: %s, %+v", got, p)
		}
		if w.status(runs[0]) != "failed" {
			t.Error("a preview changes runs")
		}
		if p, err = w.b.Preview(t.Context(), acme, &Spec{Verb: Retry, Filter: &Filter{Code: fault.TemplateError}}); err != nil || p.Matched != 1 || p.Sample[0].Run != other {
			t.Errorf("of one code: %+v, %v", p, err)
		}
		w.fails.Store(false)
		b := w.create(Spec{Verb: Retry, Filter: &Filter{Statuses: []string{"failed"}, Code: fault.FileInvalid, Step: "act"}})
		if got := counts(w.ended(b.ID)); got != "completed: 3 = 3 done, 0 skipped, 0 failed" {
			t.Error(got)
		}
		for _, run := range runs {
			if head, err := w.e.Wait(t.Context(), acme, run); err != nil || head.Status != "completed" {
				t.Errorf("run %s: %s, %v", run, head.Status, err)
			}
		}
		if w.status(other) != "failed" {
			t.Error("a run of another group was retried")
		}
		live := w.start(w.asks, nil)
		b = w.create(Spec{Verb: Delete, Filter: &Filter{Since: 1}})
		if got := counts(w.ended(b.ID)); got != "completed: 5 = 4 done, 1 skipped, 0 failed" {
			t.Error(got)
		}
		if _, err := w.e.Head(t.Context(), acme, runs[0]); fault.CodeOf(err) != fault.RunNotFound {
			t.Errorf("a deleted run: %v", err)
		}
		if got := counts(w.ended(w.create(Spec{Verb: Pause, IDs: []string{live}}).ID)); got != "completed: 1 = 1 done, 0 skipped, 0 failed" {
			t.Error(got)
		}
		if run, err := w.e.State(t.Context(), acme, live, 0); err != nil || !run.Paused() {
			t.Errorf("it is not paused: %v", err)
		}
		w.ended(w.create(Spec{Verb: Unpause, IDs: []string{live}}).ID)
		if run, err := w.e.State(t.Context(), acme, live, 0); err != nil || run.Paused() {
			t.Errorf("it is paused: %v", err)
		}
	})
}

// What no bulk can be is refused, and an account has only so many open ones. A cancelled bulk
// takes no further runs.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for what, spec := range map[string]Spec{
			"verb": {Verb: "explode", IDs: []string{"a"}}, "either": {Verb: Cancel}, "ids or": {Verb: Cancel, IDs: []string{"a"}, Filter: &Filter{Step: "s"}},
			"every run": {Verb: Delete, Filter: &Filter{}}, "at most": {Verb: Cancel, IDs: make([]string, MaxIDs+1)},
		} {
			if _, err := w.b.Create(t.Context(), acme, &spec); fault.CodeOf(err) != fault.RequestInvalid || !strings.Contains(err.Error(), what) {
				t.Errorf("%s: %v", what, err)
			}
		}
		for range 3 * pageRuns {
			w.start(w.asks, nil)
		}
		var ids []string
		for range MaxOpen {
			ids = append(ids, w.create(Spec{Verb: Pause, Filter: &Filter{Recipe: "asks"}}).ID)
		}
		_, err := w.b.Create(t.Context(), acme, &Spec{Verb: Pause, IDs: []string{"a"}})
		if e := (*fault.Error)(nil); !errors.As(err, &e) || e.Code != fault.QuotaExceeded || e.Quota == nil || e.Quota.Name != "bulks" {
			t.Errorf("one too many: %v", err)
		}
		if _, err := w.b.Create(t.Context(), "rival", &Spec{Verb: Pause, IDs: []string{"a"}}); err != nil {
			t.Errorf("of another account: %v", err)
		}
		synctest.Wait()
		for _, id := range ids {
			if b, err := w.b.Cancel(t.Context(), acme, id); err != nil || b.State != Cancelling {
				t.Errorf("cancel: %v", err)
			}
		}
		if got := counts(w.ended(ids[0])); got != "cancelled: 50 = 50 done, 0 skipped, 0 failed" {
			t.Error(got)
		}
		if got := counts(w.ended(ids[1])); got != "cancelled: 0 = 0 done, 0 skipped, 0 failed" {
			t.Error(got)
		}
		if _, err := w.b.Cancel(t.Context(), acme, ids[0]); fault.CodeOf(err) != fault.TooLate {
			t.Errorf("cancel: %v", err)
		}
		if _, err := w.b.Get(t.Context(), "rival", ids[0]); fault.CodeOf(err) != fault.RecordNotFound {
			t.Errorf("a foreign bulk: %v", err)
		}
		w.ended(ids[MaxOpen-1])
		w.create(Spec{Verb: Unpause, IDs: []string{"a"}})
		var list []string
		for place := ""; ; {
			page, next, err := w.b.List(t.Context(), acme, place, 4)
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range page {
				list = append(list, b.ID)
			}
			if place = next; next == "" {
				break
			}
		}
		if len(list) != MaxOpen+1 || list[MaxOpen] != ids[0] {
			t.Errorf("list: %v", list)
		}
	})
}

var errKilled = errors.New("the process is killed here")

// F42: the process is killed at random moments, also between what is done to runs and its
// record. Every run has one item with a result in the end, and was retried once.
func TestKilledAtRandom(t *testing.T) {
	for seed := range uint64(40) {
		synctest.Test(t, func(t *testing.T) {
			dice := rand.New(rand.NewPCG(seed, 78))
			w := newWorld(t)
			runs := w.failed(pageRuns + 20)
			verb := []Verb{Retry, Delete}[seed%2]
			b := w.create(Spec{Verb: verb, Filter: &Filter{Statuses: []string{"failed"}}})
			for range 6 {
				// This life ends at its n-th change of a record, before or after it, or later.
				lives, before := dice.IntN(4), dice.IntN(2) == 0
				var dead atomic.Bool
				stop := func(after bool) error {
					switch {
					case dead.Load():
						return errKilled
					case after == before:
					default:
						if lives--; lives < 0 {
							dead.Store(true)
							return errKilled
						}
					}
					return nil
				}
				w.records.stop.Store(&stop)
				time.Sleep(time.Duration(dice.Int64N(int64(400 * time.Millisecond))))
				w.kill()
				w.boot()
			}
			if got := counts(w.ended(b.ID)); got != "completed: 70 = 70 done, 0 skipped, 0 failed" {
				t.Errorf("seed %d: %s", seed, got)
			}
			seen := map[string]int{}
			for _, it := range w.items(b.ID) {
				seen[it.Run]++
			}
			for _, run := range runs {
				if seen[run] != 1 {
					t.Errorf("seed %d: run %s has %d items", seed, run, seen[run])
				}
				if verb == Delete {
					continue
				}
				if _, err := w.e.Wait(t.Context(), acme, run); err != nil {
					t.Fatal(err)
				}
				state, err := w.e.State(t.Context(), acme, run, 0)
				if err != nil {
					t.Fatal(err)
				}
				if state.Generation() != 2 {
					t.Errorf("seed %d: run %s has generation %d", seed, run, state.Generation())
				}
			}
		})
		if t.Failed() {
			return
		}
	}
}
