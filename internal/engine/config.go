// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/retention"
	"github.com/roux-engine/roux/internal/store"
)

// Config is what an Engine is made of. Optional fields left zero take the
// default their comment names.
type Config struct {
	Store store.Store // required; the engine does not close it
	// Actions is what steps may call. Default: nothing.
	Actions Actions
	// Files gives an account's files to its actions. Default: none, and
	// whatever needs a file fails FILE_NOT_FOUND.
	Files func(account string) action.Files
	// Blobs is where Files come from. Files that are no longer kept are removed
	// from it, and those that a request is about are renewed. Default: neither.
	Blobs *blob.Store
	// Select names the runs of the store that this engine carries on by itself; it is
	// asked while the engine opens and when it reads the store again. A run that begins
	// here, or that a request is about, is carried on from then on. It must not block.
	// Default: nil, all runs.
	Select func(store.Key) bool
	// CommitFailed is told of each commit that failed, before the requests in it are
	// answered. The engine goes on trying. It must not block.
	CommitFailed func(error)
	// Retention is how long runs and files are kept.
	Retention retention.Policy

	// Concurrency is how many attempts may be handed out at once. Default 1024.
	Concurrency int
	// MaxLimits is how far a retry may raise the limits of a run. Fields left zero
	// take the maxima of compile.DefaultLimits.
	MaxLimits plan.Limits
	// ProviderSlots bounds the attempts of one provider. A provider that is not
	// named has no bound of its own.
	ProviderSlots map[string]int

	// MaxLoaded is how many runs stay in memory; quiet ones beyond it are
	// suspended. Default 100,000.
	MaxLoaded int
	// SuspendAfter is how long a quiet run stays in memory untouched. Suspending it
	// costs 20 µs and waking it some 200, while in memory it takes 5 KB and makes
	// the next start after a crash slower. Default 1 s.
	SuspendAfter time.Duration
	// MaxResting is how many quiet runs stay in memory for that long; those quiet
	// for longest are suspended before their time. Default 1,000.
	MaxQuiet int
	// MaxPending is how many requests may wait for the disk; more are refused
	// before they are accepted. Default 10,000.
	MaxPending int
	// MaxBatchBytes is how many bytes of events share one commit. Larger ones
	// save syncs when outputs are large and lengthen the slowest. Default 2 MiB.
	MaxBatchBytes int
	// MinAhead is from how many runs on a batch that was built during a commit is
	// itself committed before what waited for that commit goes out. Default 64.
	MinAhead int
	// MaxTurn is after how many events what one input causes goes on in another
	// turn, which other inputs may come before. 0 = machine.MaxEvents.
	MaxTurn int
	// CompactBytes and CompactEvents are how much of the journal may be uncovered by
	// chunks before the runs that hold it are compacted. Default 32 MiB, 500,000.
	CompactBytes, CompactEvents int64
	// CompactCheck is how many bytes are committed between two looks at that.
	// Default 1 MiB.
	CompactCheck int
	// MaxPlans is how many plans are kept ready. Default 1,000.
	MaxPlans int
	// Grace is how long a cancelled attempt may take to return. Default 5 s.
	Grace time.Duration

	// Now is the wall clock. Default time.Now.
	Now func() time.Time
	// Rand is where run ids and seeds come from. Default crypto/rand.
	Rand   io.Reader
	Logger *slog.Logger // default: discarded
}

// Actions is what the engine asks of a catalogue of actions, such as
// compile.Catalogue. It must give the same answers for as long as the engine runs.
type Actions interface {
	// Find returns the newest declaration of name that version admits: "" or a
	// range for any, or one exact version. nil = there is none.
	Find(name, version string) *action.Action
}

type noActions struct{}

func (noActions) Find(string, string) *action.Action { return nil }

func (cfg *Config) defaults() error {
	if cfg.Store == nil {
		return errors.New("engine: Config.Store is required")
	}
	if cfg.Actions == nil {
		cfg.Actions = noActions{}
	}
	if cfg.Files == nil && cfg.Blobs != nil {
		cfg.Files = cfg.Blobs.Files
	}
	cfg.Retention.SetDefaults()
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Rand == nil {
		cfg.Rand = rand.Reader
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Concurrency = cmp.Or(cfg.Concurrency, 1024)
	maxima := compile.DefaultLimits().Max
	cfg.MaxLimits.TotalSteps = cmp.Or(cfg.MaxLimits.TotalSteps, maxima.TotalSteps)
	cfg.MaxLimits.LoopItems = cmp.Or(cfg.MaxLimits.LoopItems, maxima.LoopItems)
	cfg.MaxLimits.MemoryBytes = cmp.Or(cfg.MaxLimits.MemoryBytes, maxima.MemoryBytes)
	cfg.MaxLimits.ExpressionCost = min(cmp.Or(cfg.MaxLimits.ExpressionCost, maxima.ExpressionCost), maxima.ExpressionCost)
	cfg.MaxLoaded = cmp.Or(cfg.MaxLoaded, 100_000)
	cfg.MaxQuiet = cmp.Or(cfg.MaxQuiet, 1_000)
	cfg.SuspendAfter = cmp.Or(cfg.SuspendAfter, time.Second)
	cfg.MaxPending = cmp.Or(cfg.MaxPending, 10_000)
	cfg.MaxBatchBytes = cmp.Or(cfg.MaxBatchBytes, 2<<20)
	cfg.MinAhead = cmp.Or(cfg.MinAhead, 64)
	cfg.CompactBytes = cmp.Or(cfg.CompactBytes, 32<<20)
	cfg.CompactEvents = cmp.Or(cfg.CompactEvents, 500_000)
	cfg.CompactCheck = cmp.Or(cfg.CompactCheck, 1<<20)
	cfg.MaxPlans = cmp.Or(cfg.MaxPlans, 1_000)
	cfg.Grace = cmp.Or(cfg.Grace, 5*time.Second)
	return nil
}
