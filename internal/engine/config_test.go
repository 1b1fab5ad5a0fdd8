// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/retention"
	"github.com/roux-engine/roux/internal/store/memory"
)

// Zero fields take the defaults that the comments of Config name; other values stay.
func TestDefaults(t *testing.T) {
	cfg := Config{Store: memory.New(memory.Options{})}
	if err := cfg.defaults(); err != nil {
		t.Fatal(err)
	}
	got := []any{cfg.Concurrency, cfg.MaxLoaded, cfg.SuspendAfter, cfg.MaxQuiet, cfg.MaxPending, cfg.MaxBatchBytes, cfg.LargeBatch,
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
		t.Error("a Config without a store is accepted")
	}
}
