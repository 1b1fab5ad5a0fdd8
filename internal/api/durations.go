// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"sync"
	"time"

	"github.com/roux-engine/roux/internal/compile/estimate"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/registry"
	"github.com/roux-engine/roux/internal/rest"
	"github.com/roux-engine/roux/internal/store"
)

const (
	// samples is how many past runs an estimate looks at.
	samples = 50
	// keptDuration is how long an estimate is used again: a start reads no past runs.
	keptDuration = time.Minute
	// maxDurations bounds the estimates in memory.
	maxDurations = 4096
)

// durations are estimates of how long runs take.
type durations struct {
	mu *sync.Mutex
	of map[[2]string]duration // by account and version of a recipe
}

type duration struct {
	text string
	at   time.Time
}

func newDurations() durations { return durations{new(sync.Mutex), map[[2]string]duration{}} }

// estimatedDuration is how long a run of a recipe is expected to take, ISO 8601: the median
// of past runs of the version, or the middle of what its actions declare (X202).
func (s *Server) estimatedDuration(ctx context.Context, c *registry.Compiled) string {
	key, now := [2]string{rest.Account(ctx), c.Version.ID()}, s.cfg.Now()
	s.durations.mu.Lock()
	had, ok := s.durations.of[key]
	s.durations.mu.Unlock()
	if ok && now.Sub(had.at) < keptDuration {
		return had.text
	}
	var past []int64
	// Without past runs the declared times remain, so an error of the list changes nothing
	// that is promised.
	heads, _ := s.cfg.Node.Store.List(ctx, store.Query{Account: rest.Account(ctx), Recipe: c.Version.Name, Status: "completed", Limit: samples})
	for i := range heads {
		if heads[i].Version == c.Version.Version {
			past = append(past, (heads[i].Ended-heads[i].Created)/1000)
		}
	}
	text := plan.FormatISO(estimate.Duration(c.Plan, s.cfg.Accounts.Actions(rest.Account(ctx)), estimate.Known{}, past))
	s.durations.mu.Lock()
	defer s.durations.mu.Unlock()
	if len(s.durations.of) >= maxDurations {
		clear(s.durations.of)
	}
	s.durations.of[key] = duration{text, now}
	return text
}

func isoDuration(ms int64) string {
	if ms == 0 {
		return ""
	}
	return plan.FormatISO(ms)
}
