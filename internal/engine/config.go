// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"log/slog"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/blob"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/feed"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/limits"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/program"
	"github.com/roux-engine/roux/internal/retention"
	"github.com/roux-engine/roux/internal/store"
	"github.com/roux-engine/roux/internal/terms"
	"github.com/roux-engine/roux/internal/worker"
)

// Config configures an Engine. Optional fields left zero take the default that their
// comment names.
type Config struct {
	Store   store.Store         // required; the engine does not close it
	Secrets worker.SecretSource // the secrets that steps may use; default: none
	// Actions are the actions that steps may call. Their answers must not change while the engine runs. Default: none.
	Actions catalogue.Finder
	// Resolve finds the recipes that expressions of steps name. Default: none; such a step then fails with
	// RECIPE_NOT_FOUND.
	Resolve program.ResolveFunc
	// Files returns the files of an account for its actions. Default: none; a step that
	// needs a file then fails with FILE_NOT_FOUND.
	Files func(account string) action.Files
	// Blobs is the store behind Files. The engine removes files from it that are no
	// longer kept, and renews those that a request names. Default: it does neither.
	Blobs *blob.Store
	// Select reports whether this engine continues a stored run on its own. It is
	// called while the engine opens and when it reads the store again. Runs that are
	// started here, or that a request names, are continued in any case. It must not
	// block. Default: nil, all runs.
	Select func(store.Key) bool
	// CommitFailed is called with the error of each failed commit, before the requests
	// in it are answered. The engine keeps trying. It must not block.
	CommitFailed func(error)
	// Observer is told what the engine makes durable. Default: nil, nobody.
	Observer feed.Observer
	// Traced makes attempts tell services the trace and the span of the attempt, which an
	// Observer records. Otherwise they pass the caller's on, if there is one.
	Traced bool
	// Workspaces are the directories of runs. Default: they have none.
	Workspaces worker.Workspaces
	// Idle is true for an engine that only changes runs: no attempt begins in it.
	Idle bool
	// Retention is how long runs and files are kept.
	Retention retention.Policy

	// Concurrency is how many attempts may be in flight at once. Default 1024.
	Concurrency int
	// MaxLimits is how far a retry may raise the limits of a run. Fields left zero
	// take the maxima of compile.DefaultLimits.
	MaxLimits plan.Limits
	// ProviderSlots bounds the attempts of each provider. A provider that is not listed
	// has no bound of its own.
	ProviderSlots map[string]int
	// JobSlots has the providers of external jobs that actions with a limit may submit, beyond
	// those of ProviderSlots.
	JobSlots map[string]bool
	// Limits are the limits of the configuration. Default: none.
	Limits *limits.Set
	// Called returns what an attempt of an action calls which names a provider and a model in its
	// input, and the queue of the workers that carry it out. It must not block. Default: the
	// provider of the action, and the model.
	Called func(a *action.Action, provider, model string) (service, called, queue string)
	// Jobs is told what commits have changed of external jobs, and of jobs without a record that were
	// found in runs that were read. It must not block.
	// Default: nobody is.
	Jobs func([]jobs.Change)

	// Moderators are those that steps may demand. Default: none.
	Moderators program.Moderators
	// Review has people decide on what moderators have flagged, and returns the job of their
	// decision. Default: what is flagged fails its step.
	Review func(ctx context.Context, t *action.Task, r *plan.Review, f *worker.Flagged) (*action.Job, error)

	// Accounts returns what applies to the runs of an account. It must not block; see
	// [Engine.RulesChanged]. Default: all but LocalAccount pay.
	Accounts func(account string) AccountRules

	// MaxLoaded is how many runs stay in memory. Quiet runs beyond it are suspended.
	// Default 100,000.
	MaxLoaded int
	// SuspendAfter is how long a quiet run stays in memory unchanged. Suspending it
	// costs 20 µs and waking it about 200; in memory it takes 5 KB and slows the next
	// start after a crash. Default 1 s.
	SuspendAfter time.Duration
	// MaxQuiet is how many quiet runs stay in memory for SuspendAfter. Beyond it, those
	// that have been quiet for longest are suspended early. Default 1,000.
	MaxQuiet int
	// MaxPending is how many requests may wait for the disk. Further requests are
	// refused before they are accepted. Default 10,000.
	MaxPending int
	// MaxBatchBytes is how many bytes of events share one commit. A larger value saves
	// syncs when outputs are large, but makes the slowest commits longer. Default 2
	// MiB.
	MaxBatchBytes int
	// LargeBatch is how many runs make a batch large. The commit of a large batch begins
	// before the answers and effects of the previous commit are released. Default 64.
	LargeBatch int
	// MaxTurn bounds the events of one turn. What remains continues in another turn,
	// and other inputs may come in between. 0 = machine.MaxEvents.
	MaxTurn int
	// CompactBytes and CompactEvents are how much may be stored only in the journal, and
	// in no chunk, before the runs concerned are compacted. Default 32 MiB, 500,000.
	CompactBytes, CompactEvents int64
	// CompactCheck is how many bytes are committed between two checks of these limits.
	// Default 1 MiB.
	CompactCheck int
	// MaxPlans is how many prepared plans are cached. Default 1,000.
	MaxPlans int
	// Grace is how long a cancelled attempt may take to return. Default 5 s.
	Grace time.Duration

	// Now is the wall clock. Default time.Now.
	Now func() time.Time
	// Rand is the source of run ids and seeds. Default crypto/rand.
	Rand   io.Reader
	Logger *slog.Logger // default: discarded
}

func (cfg *Config) defaults() error {
	if cfg.Store == nil {
		return errors.New("engine: Config.Store is required")
	}
	if cfg.Actions == nil {
		cfg.Actions = &catalogue.Catalogue{}
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
	if cfg.Accounts == nil {
		cfg.Accounts = terms.Default
	}
	if cfg.Called == nil {
		cfg.Called = func(a *action.Action, _, model string) (string, string, string) { return a.Provider, model, "" }
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
	cfg.LargeBatch = cmp.Or(cfg.LargeBatch, 64)
	cfg.CompactBytes = cmp.Or(cfg.CompactBytes, 32<<20)
	cfg.CompactEvents = cmp.Or(cfg.CompactEvents, 500_000)
	cfg.CompactCheck = cmp.Or(cfg.CompactCheck, 1<<20)
	cfg.MaxPlans = cmp.Or(cfg.MaxPlans, 1_000)
	cfg.Grace = cmp.Or(cfg.Grace, 5*time.Second)
	return nil
}
