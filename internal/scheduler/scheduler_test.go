// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata" // the zones of this test, on every machine

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/registry"
	"github.com/roux-engine/roux/internal/schedule"
	"github.com/roux-engine/roux/internal/starts"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/store/memory"
)

const acme = "acme"

// A world is an engine with a scheduler that can be killed and started again, in virtual time.
type world struct {
	t       *testing.T
	st      *memory.Store
	e       *engine.Engine
	s       *Scheduler
	recipes *registry.Recipes
	records *records
	ids     int
	jump    atomic.Int64                // of the wall clock
	denied  atomic.Pointer[fault.Error] // of the account
	busy    atomic.Int64                // how many starts fail before one does not
	deaf    atomic.Bool                 // runs are not cancelled
}

// runs are those of the engine.
type runs struct {
	*engine.Engine
	w *world
}

func (r runs) Cancel(ctx context.Context, account, run, reason string) error {
	if r.w.deaf.Load() {
		return nil
	}
	return r.Engine.Cancel(ctx, account, run, reason)
}

// records are those of the store, changed by its owner. stop, when set, is asked before each
// change, and again after it. reads counts what is read of schedules.
type records struct {
	*memory.Store
	e     *engine.Engine
	stop  atomic.Pointer[func(after bool) error]
	reads atomic.Int64
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

func (r *records) Record(ctx context.Context, key store.RecordKey) (store.Record, error) {
	if key.Kind == kindSchedule {
		r.reads.Add(1)
	}
	return r.Store.Record(ctx, key)
}

// noFiles is the file service of an account without files.
type noFiles struct{}

func (noFiles) Find(context.Context, string, string) (blob.Entry, error) {
	return blob.Entry{}, fault.New(fault.FileNotFound, "no such file")
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, st: memory.New(memory.Options{})}
	w.boot()
	t.Cleanup(w.kill)
	for name, steps := range map[string]string{
		"quick": "inputSchema: {type: object, additionalProperties: false, properties: {n: {type: integer}}}\nsteps:\n  - {id: one, transform: {expression: '1'}}\n",
		"asks":  "steps:\n  - {id: ask, wait: {signal: go}}\n",
	} {
		w.register(name, "1.0.0", steps)
	}
	return w
}

func (w *world) register(name, version, steps string) {
	w.t.Helper()
	if _, _, diags, err := w.recipes.Register(w.t.Context(), acme, registry.Draft{Text: []byte("name: " + name + "\nversion: \"" + version + "\"\n" + steps)}); err != nil {
		w.t.Fatal(diags, err)
	}
}

// now is the wall clock.
func (w *world) now() time.Time { return time.Now().Add(time.Duration(w.jump.Load())) }

// boot starts the process.
func (w *world) boot() {
	w.t.Helper()
	var err error
	rules := func(string) engine.AccountRules { return engine.AccountRules{Unmetered: true} }
	actions := catalogue.New([]*action.Action{}...)
	w.e, err = engine.Open(w.t.Context(), engine.Config{Store: w.st, Actions: actions, Accounts: rules})
	if err != nil {
		w.t.Fatal(err)
	}
	w.records = &records{Store: w.st, e: w.e}
	id := func(prefix string) func() (string, error) {
		return func() (string, error) {
			w.ids++
			return fmt.Sprintf("%s%03d", prefix, w.ids), nil
		}
	}
	w.recipes = registry.NewRecipes(registry.RecipesConfig{
		Records: &records{Store: w.st, e: w.e}, Now: time.Now, NewID: id("recipe_"), Actions: func(string) catalogue.Actions { return actions }, MaxSource: 1 << 20,
	})
	starter := starts.New(starts.Config{
		Recipes: w.recipes, Files: noFiles{}, Actions: func(string) catalogue.Actions { return actions }, Rules: rules, Admit: func(string) error {
			if e := w.denied.Load(); e != nil {
				return e
			}
			if w.busy.Load() > 0 {
				w.busy.Add(-1)
				return fault.New(fault.ServiceUnavailable, "in a moment")
			}
			return nil
		},
	}, w.e)
	w.s, err = New(Config{Records: w.records, Starter: starter, Runs: runs{w.e, w}, NewID: id(IDPrefix), Now: w.now})
	if err != nil {
		w.t.Fatal(err)
	}
	w.s.Start(w.t.Context())
}

// kill ends the process without warning: what it had not made durable is lost.
func (w *world) kill() {
	next := w.st.Crash(0)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	w.s.Stop()
	_, _ = w.e.Stop(ctx)
	w.st = next
}

func (w *world) create(name, recipe string, when schedule.Spec) *Schedule {
	w.t.Helper()
	made, err := w.s.Create(w.t.Context(), acme, &Spec{Name: name, When: when, Start: starts.Request{Recipe: recipe}})
	if err != nil {
		w.t.Fatal(err)
	}
	return made
}

// runs are the occurrences of a schedule that have runs, the oldest first.
func (w *world) runs(name string) (list []string) {
	w.t.Helper()
	heads, err := w.st.List(w.t.Context(), store.Query{Account: acme, Labels: map[string]string{LabelSchedule: name}, Limit: 500})
	if err != nil {
		w.t.Fatal(err)
	}
	for i := range heads {
		list = append([]string{heads[i].LabelsOf()[LabelOccurrence]}, list...)
	}
	return list
}

// history is what became of the occurrences of a schedule, the oldest first.
func (w *world) history(name string) (list []*Firing) {
	w.t.Helper()
	for before := 0; ; {
		page, next, err := w.s.History(w.t.Context(), acme, name, before, 7)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, f := range page {
			list = append([]*Firing{f}, list...)
		}
		if before = next; next == 0 {
			return list
		}
	}
}

func (w *world) results(name string) string {
	var out []string
	for _, f := range w.history(name) {
		text := string(f.Result)
		if f.Count > 1 {
			text += fmt.Sprint(" ", f.Count)
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// A synctest begins at midnight of 2000-01-01, UTC.

func TestRunsOfASchedule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		made, err := w.s.Create(t.Context(), acme, &Spec{
			Name: "hourly", When: schedule.Spec{Cron: "30 * * * *", Zone: "Asia/Kolkata"}, By: "key_1",
			Start: starts.Request{Recipe: "quick@1", Parameters: json.RawMessage(`{"n": 3}`), Labels: map[string]string{"team": "docs"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(3*time.Hour + time.Minute)
		synctest.Wait()
		if got := fmt.Sprint(w.runs("hourly")); got != "[2000-01-01T06:30 2000-01-01T07:30 2000-01-01T08:30]" {
			t.Error(got)
		}
		list := w.history("hourly")
		if len(list) != 3 || list[2].Result != Started || list[2].Version != "1.0.0" || list[2].Name != "2000-01-01T08:30" || list[2].Decided-list[2].At > 1000 {
			t.Errorf("%+v", list[len(list)-1])
		}
		run, err := w.e.State(t.Context(), acme, list[0].Run, 0)
		head, _ := w.e.Head(t.Context(), acme, list[0].Run)
		if err != nil || fmt.Sprint(run.Start().Parameters) != "map[n:3]" || head.LabelsOf()["team"] != "docs" {
			t.Errorf("%+v, %v, %v", run.Start(), head.LabelsOf(), err)
		}
		// A newer version is taken by the range, from the next occurrence on.
		w.register("quick", "1.1.0", "steps:\n  - {id: two, transform: {expression: '2'}}\n")
		time.Sleep(time.Hour)
		synctest.Wait()
		if list = w.history("hourly"); list[3].Version != "1.1.0" {
			t.Errorf("%+v", list[3])
		}
		got, err := w.s.Get(t.Context(), acme, made.ID)
		if err != nil || got.Next != list[3].At+time.Hour.Microseconds() || got.By != "key_1" {
			t.Errorf("%+v, %v", got, err)
		}
		coming, err := w.s.Coming(t.Context(), acme, "hourly", 2)
		if err != nil || len(coming) != 2 || coming[0].Name != "2000-01-01T10:30" {
			t.Errorf("%v, %v", coming, err)
		}
		// The history is bounded, and goes with the schedule.
		time.Sleep(time.Duration(KeptFirings+20) * time.Hour)
		synctest.Wait()
		if list = w.history("hourly"); len(list) != KeptFirings || list[0].Number != 25 {
			t.Errorf("%d entries from %d", len(list), list[0].Number)
		}
		if err := w.s.Delete(t.Context(), acme, "hourly"); err != nil {
			t.Fatal(err)
		}
		for _, q := range []store.RecordQuery{{Account: acme, Kind: kindFiring}, {Account: acme, Kind: kindSchedule}, {Kind: kindDue}} {
			if page, _, err := w.st.Records(t.Context(), q); err != nil || len(page) != 0 {
				t.Errorf("%s: %d records are left, %v", q.Kind, len(page), err)
			}
		}
		if _, err := w.s.Get(t.Context(), "rival", made.ID); fault.CodeOf(err) != fault.RecordNotFound {
			t.Error(err)
		}
	})
}

// What each policy of overlap makes of runs that wait for a person.
func TestOverlap(t *testing.T) {
	for policy, want := range map[schedule.Overlap]string{
		schedule.OverlapAllow: "started, started, started", schedule.OverlapSkip: "started, skipped, skipped",
		schedule.OverlapQueue: "started", schedule.OverlapCancel: "started, started, started",
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.create("s", "asks", schedule.Spec{Every: time.Minute, Overlap: policy})
			time.Sleep(3*time.Minute + 10*time.Second)
			if got := w.results("s"); got != want {
				t.Errorf("%s: %s, want %s", policy, got, want)
			}
			list := w.history("s")
			live := 0
			for _, f := range list {
				if head, err := w.e.Head(t.Context(), acme, f.Run); err != nil {
					t.Fatal(err)
				} else if !head.Settled() && f.Result == Started {
					live++
				}
			}
			if want := map[bool]int{true: 3, false: 1}[policy == schedule.OverlapAllow]; live != want {
				t.Errorf("%s: %d runs are active", policy, live)
			}
			if policy != schedule.OverlapQueue {
				return
			}
			// The next one starts when the first has ended, also after a restart.
			w.kill()
			w.boot()
			if err := w.e.Signal(t.Context(), acme, list[0].Run, "go", nil); err != nil {
				t.Fatal(err)
			}
			time.Sleep(longestPause)
			if got := w.results("s"); got != "started, started" {
				t.Error(got)
			}
			// What waits is dropped by a pause.
			if _, err := w.s.Pause(t.Context(), acme, "s"); err != nil {
				t.Fatal(err)
			}
			if list := w.history("s"); len(list) != 3 || list[2].Result != Skipped || list[2].Reason != reasons[schedule.Paused] {
				t.Errorf("%+v", list[len(list)-1])
			}
		})
	}
}

// A paused schedule starts nothing and misses nothing; run-now works meanwhile.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create("s", "quick", schedule.Spec{Every: time.Minute, CatchUp: schedule.CatchUpAll})
		time.Sleep(61 * time.Second)
		if p, err := w.s.Pause(t.Context(), acme, "s"); err != nil || p.Paused == 0 || p.Next != 0 {
			t.Fatal(p, err)
		}
		time.Sleep(10 * time.Minute)
		f, err := w.s.RunNow(t.Context(), acme, "s")
		if err != nil || f.Result != Started || !f.Manual || f.Run == "" {
			t.Errorf("%+v, %v", f, err)
		}
		w.kill()
		w.boot()
		time.Sleep(10 * time.Minute)
		if r, err := w.s.Resume(t.Context(), acme, "s"); err != nil || r.Paused != 0 || r.Next == 0 {
			t.Fatal(r, err)
		}
		time.Sleep(time.Minute)
		if got := w.results("s"); got != "started, started, started" {
			t.Error(got)
		}
		// One that its run keeps waiting.
		w.create("q", "asks", schedule.Spec{Cron: "@yearly", Overlap: schedule.OverlapQueue})
		first, err := w.s.RunNow(t.Context(), acme, "q")
		if err != nil {
			t.Fatal(err)
		}
		if f, err := w.s.RunNow(t.Context(), acme, "q"); err != nil || f.Result != Queued || f.Run != first.Run {
			t.Errorf("%+v, %v", f, err)
		}
	})
}

// What cannot start is in the history, and is tried again only where that may help.
func TestFailedStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create("s", "quick", schedule.Spec{Every: time.Minute})
		w.denied.Store(fault.New(fault.AccountDisabled, "the account is disabled"))
		time.Sleep(61 * time.Second)
		w.denied.Store(fault.New(fault.ServiceUnavailable, "in a moment"))
		time.Sleep(time.Minute)
		w.denied.Store(nil)
		time.Sleep(20 * time.Second)
		list := w.history("s")
		if w.results("s") != "failed, started" || list[0].Code != fault.AccountDisabled || list[1].Name != "2000-01-01T00:02:00Z" {
			t.Errorf("%+v", list)
		}
		// Nobody knows whether it ever succeeds: the ones behind it do not wait for ever.
		w.denied.Store(fault.New(fault.Conflict, "it has just been replaced"))
		time.Sleep(41 * time.Second)
		if got := w.results("s"); got != "failed, started" {
			t.Error(got)
		}
		time.Sleep(92 * time.Second)
		w.denied.Store(nil)
		time.Sleep(20 * time.Second)
		if got := w.results("s"); got != "failed, started, failed, started" {
			t.Error(got)
		}
	})
}

// After three days without a process.
func TestDowntime(t *testing.T) {
	for policy, want := range map[schedule.CatchUp]string{schedule.CatchUpNone: "skipped 71", schedule.CatchUpLast: "skipped 70, started", schedule.CatchUpAll: "skipped 69, started, started"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			w.create("s", "quick", schedule.Spec{Cron: "@hourly", CatchUp: policy, CatchUpMax: 2})
			w.kill()
			time.Sleep(72*time.Hour - 10*time.Minute)
			w.boot()
			time.Sleep(time.Second)
			if got := w.results("s"); got != want {
				t.Errorf("%s: %s, want %s", policy, got, want)
			}
		})
	}
}

// I10: a wall clock that was turned back while there was no process starts nothing twice, and
// loses nothing. (Jumps while there is one are those of package clock.)
func TestClockTurnedBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.create("s", "quick", schedule.Spec{Every: time.Minute, CatchUp: schedule.CatchUpNone})
		time.Sleep(10*time.Minute + time.Second)
		synctest.Wait()
		w.kill()
		w.jump.Store(int64(-10 * time.Minute))
		w.boot()
		time.Sleep(20*time.Minute + time.Second)
		synctest.Wait()
		if n := len(w.runs("s")); n != 20 {
			t.Errorf("%d runs, want 20", n)
		}
	})
}

var errKilled = errors.New("the process is killed here")

// I13, F42: the process is killed at random moments, also between the start of a run and its
// record, and stays away for a while. Each occurrence has one run or was skipped.
func TestI13_ScheduleKilledAtRandom(t *testing.T) {
	for seed := range uint64(10) {
		synctest.Test(t, func(t *testing.T) {
			dice := rand.New(rand.NewPCG(seed, 251))
			w := newWorld(t)
			w.create("all", "quick", schedule.Spec{Every: time.Minute, CatchUp: schedule.CatchUpAll, CatchUpMax: 1000, Overlap: schedule.OverlapAllow})
			w.create("last", "quick", schedule.Spec{Cron: "*/2 * * * *", CatchUp: schedule.CatchUpLast, Overlap: schedule.OverlapAllow})
			for range 8 {
				lives, before := dice.IntN(6), dice.IntN(2) == 0
				var dead atomic.Bool
				stop := func(after bool) error {
					if dead.Load() {
						return errKilled
					}
					if after != before {
						if lives--; lives < 0 {
							dead.Store(true)
							if !after {
								return errKilled
							}
						}
					}
					return nil
				}
				var one sync.Mutex
				locked := func(after bool) error {
					one.Lock()
					defer one.Unlock()
					return stop(after)
				}
				w.records.stop.Store(&locked)
				time.Sleep(time.Duration(dice.Int64N(int64(7 * time.Minute))))
				w.kill()
				if dice.IntN(3) == 0 { // a newer version between a start and its record
					time.Sleep(time.Duration(dice.Int64N(int64(15 * time.Hour))))
				}
				w.boot()
				if dice.IntN(3) == 0 {
					w.register("quick", fmt.Sprintf("2.%d.0", dice.IntN(1_000_000)), "steps:\n  - {id: two, transform: {expression: '"+fmt.Sprint(dice.IntN(1_000_000))+"'}}\n")
				}
			}
			time.Sleep(3 * time.Minute)
			synctest.Wait()
			for _, name := range []string{"all", "last"} {
				sched, err := w.s.Get(t.Context(), acme, name)
				if err != nil {
					t.Fatal(err)
				}
				seen := map[string]int{}
				heads := 0
				for after := ""; ; {
					page, err := w.st.List(t.Context(), store.Query{Account: acme, Labels: map[string]string{LabelSchedule: name}, Limit: 500, After: after})
					if err != nil {
						t.Fatal(err)
					}
					for i := range page {
						seen[page[i].LabelsOf()[LabelOccurrence]]++
						after, heads = page[i].Run, heads+1
					}
					if len(page) < 500 {
						break
					}
				}
				for o, n := range seen {
					if n != 1 {
						t.Errorf("seed %d: %s of %s has %d runs", seed, o, name, n)
					}
				}
				step := map[string]time.Duration{"all": time.Minute, "last": 2 * time.Minute}[name]
				if want := int((sched.After - sched.Created) / step.Microseconds()); name == "all" && heads+countSkipped(w, name) < want && sched.Firings <= KeptFirings || heads > want {
					t.Errorf("seed %d: %d of %d occurrences of %s have a run", seed, heads, want, name)
				}
				if len(sched.Queue) != 0 {
					t.Errorf("seed %d: %d wait", seed, len(sched.Queue))
				}
			}
		})
		if t.Failed() {
			return
		}
	}
}

func countSkipped(w *world, name string) (n int) {
	for _, f := range w.history(name) {
		if f.Result == Skipped {
			n += f.Count
		}
	}
	return n
}

// Schedules that are not due are not read, however many there are.
func TestOnlyWhatIsDueIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		for i := range 300 {
			w.create(fmt.Sprintf("far-%d", i), "quick", schedule.Spec{Cron: "@yearly"})
		}
		w.create("near", "quick", schedule.Spec{Every: time.Minute})
		w.records.reads.Store(0)
		time.Sleep(10*time.Minute + time.Second)
		if n := w.records.reads.Load(); n != 10 {
			t.Errorf("%d schedules were read, want 10", n)
		}
	})
}

// What no schedule can be is refused.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		every := schedule.Spec{Every: time.Hour}
		good := starts.Request{Recipe: "quick"}
		for want, spec := range map[string]Spec{
			"REQUEST_INVALID name":        {Name: "a b", When: every, Start: good},
			"REQUEST_INVALID name: want":  {Name: "sched_1", When: every, Start: good},
			"REQUEST_INVALID description": {Name: "a", Description: strings.Repeat("x", 1001), When: every, Start: good},
			"REQUEST_INVALID want one of": {Name: "a", Start: good},
			"REQUEST_INVALID at: 1999":    {Name: "a", When: schedule.Spec{At: "1999-12-31T00:00:00Z"}, Start: good},
			"RECIPE_NOT_FOUND":            {Name: "a", When: every, Start: starts.Request{Recipe: "quik"}},
			"INPUT_INVALID":               {Name: "a", When: every, Start: starts.Request{Recipe: "quick", Parameters: json.RawMessage(`{"m": 1}`)}},
			"REQUEST_INVALID parameters":  {Name: "a", When: every, Start: starts.Request{Recipe: "quick", Parameters: json.RawMessage(`[]`)}},
			"FILE_NOT_FOUND":              {Name: "a", When: every, Start: starts.Request{Recipe: "quick", Files: []string{"sha256_00"}}},
		} {
			_, err := w.s.Create(t.Context(), acme, &spec)
			if got := string(fault.CodeOf(err)) + " " + fault.Message(err); !strings.HasPrefix(got, want) {
				t.Errorf("%s, want %s", got, want)
			}
		}
		w.create("nightly", "quick", every)
		if _, err := w.s.Create(t.Context(), acme, &Spec{Name: "nightly", When: every, Start: good}); fault.CodeOf(err) != fault.Conflict {
			t.Error(err)
		}
		_, err := w.s.Get(t.Context(), acme, "nigtly")
		if e := (*fault.Error)(nil); !errors.As(err, &e) || e.Remedy != "Did you mean nightly?" {
			t.Error(err)
		}
		for i := range MaxSchedules - 1 {
			w.create(fmt.Sprint("s", i), "quick", every)
		}
		_, err = w.s.Create(t.Context(), acme, &Spec{Name: "more", When: every, Start: good})
		if e := (*fault.Error)(nil); !errors.As(err, &e) || e.Code != fault.QuotaExceeded {
			t.Error(err)
		}
	})
}
