// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gofrs/uuid/v5"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/retention"
	"github.com/roux-engine/roux/internal/store/memory"
)

// Fields left zero take the defaults that the comments of Config name, others stay.
func TestDefaults(t *testing.T) {
	cfg := Config{Store: memory.New(memory.Options{})}
	if err := cfg.defaults(); err != nil {
		t.Fatal(err)
	}
	got := []any{cfg.Concurrency, cfg.MaxLoaded, cfg.SuspendAfter, cfg.MaxResting, cfg.MaxPending, cfg.MaxBatchBytes, cfg.MinAhead,
		cfg.CompactBytes, cfg.CompactEvents, cfg.CompactCheck, cfg.MaxPlans, cfg.Grace, cfg.Retention.Runs, cfg.Retention.Files, cfg.Retention.Uploads}
	want := []any{1024, 100_000, time.Second, 1_000, 10_000, 2 << 20, 64, int64(32 << 20), int64(500_000), 1 << 20, 1_000, 5 * time.Second,
		retention.DefaultRuns, retention.DefaultFiles, retention.DefaultUploads}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
	if cfg.Actions.Find("noop", "") != nil || cfg.Logger == nil || cfg.Rand == nil || time.Since(cfg.Now()) > time.Hour {
		t.Errorf("%+v", cfg)
	}
	most := compile.DefaultLimits().Max
	cfg.MaxLimits = plan.Limits{TotalSteps: 7, LoopItems: 8, MemoryBytes: 9, ExpressionCost: most.ExpressionCost + 1}
	cfg.Retention = retention.Policy{Runs: 1, Files: -1, Uploads: 1}
	if err := cfg.defaults(); err != nil {
		t.Fatal(err)
	}
	if l := cfg.MaxLimits; l.TotalSteps != 7 || l.LoopItems != 8 || l.MemoryBytes != 9 || l.ExpressionCost != most.ExpressionCost {
		t.Errorf("limits %+v", l)
	}
	if r := cfg.Retention; r.Runs != time.Second || r.Files != -1 || r.Uploads != retention.MinUploads {
		t.Errorf("retention %+v", r)
	}
	if err := new(Config).defaults(); err == nil {
		t.Error("a Config without a store is taken")
	}
}

// A run's id is its UUID in base 32, so that ids sort as they were made.
func TestRunIDs(t *testing.T) {
	for hex, want := range map[string]string{
		"00000000-0000-0000-0000-000000000000": "run_00000000000000000000000000",
		"ffffffff-ffff-ffff-ffff-ffffffffffff": "run_7ZZZZZZZZZZZZZZZZZZZZZZZZZ",
		"00000000-0000-0000-0000-00000000001f": "run_0000000000000000000000000Z",
		"00000000-0000-0001-0000-000000000000": "run_0000000000000G000000000000",
		"0123ab45-6789-7cde-8f01-23456789abcd": "run_014ENMASW9FKF8Y0938NKRKAYD",
	} {
		if got := runID(uuid.Must(uuid.FromString(hex))); got != want {
			t.Errorf("%s becomes %s, want %s", hex, got, want)
		}
	}
}

// The list of runs is in the order in which they were put to its back.
func TestRunList(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 0))
	var q runList
	q.init()
	runs := make([]loadedRun, 8)
	for i := range runs {
		runs[i].age.l = &runs[i]
	}
	var want []*loadedRun
	for range 2_000 {
		l := &runs[r.IntN(len(runs))]
		want = slices.DeleteFunc(want, func(o *loadedRun) bool { return o == l })
		if r.IntN(3) == 0 {
			q.remove(&l.age)
		} else {
			q.toBack(&l.age)
			want = append(want, l)
		}
		var got []*loadedRun
		for l := q.front(); l != nil && len(got) <= len(runs); l = q.after(&l.age) {
			got = append(got, l)
		}
		if !slices.Equal(got, want) {
			t.Fatalf("%d runs in another order than the %d that are there", len(got), len(want))
		}
	}
}

// An action that is not here is named with the version that was asked for.
func TestAbsentActionsAreNamed(t *testing.T) {
	a := noop()
	e := open(t, memory.New(memory.Options{}), Config{})
	for version, want := range map[string]string{"": "no action noop is registered here", "^1.0": "no action noop@^1.0 is registered here"} {
		p := planOf(t, "name: n\nsteps:\n  - {id: a, action: {name: noop}}\n", a)
		p.Actions[0].Version = version
		if _, err := e.pin(p); fault.CodeOf(err) != fault.ActionNotFound || fault.Message(err) != want {
			t.Errorf("version %q: %v, want %s", version, err, want)
		}
	}
}

// The head of a run says what the run has used, whether it had failures, and when it
// last changed.
func TestHeadSaysWhatTheRunUsed(t *testing.T) {
	for _, fails := range []bool{false, true} {
		r := newRig(t, memory.New(memory.Options{}), Config{}, noop())
		key := r.run(acc, planOf(t, chain(2), noop()), nil)
		r.now += 5_000_000
		in := done(r.pull(), `{}`)
		in.m.Cost = 7
		r.settle(in)
		r.now += 5_000_000
		task := r.pull()
		if in = done(task, `{}`); fails {
			in = broken(task, fault.StepFailed)
		}
		r.settle(in)
		head, err := r.st.Head(t.Context(), key)
		if err != nil || head.Used != 7 || head.Failures != fails || head.Updated != r.now || head.Created != r.now-10_000_000 {
			t.Errorf("fails %v: %+v, %v", fails, head, err)
		}
	}
}
