// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"maps"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/store"
)

// keepJobs makes what asks services about external jobs, and has the engine tell it of them. An
// engine that only changes runs asks nobody.
func (n *Node) keepJobs(cfg *engine.Config) {
	services := n.Config.Actions.models.JobServices() // those of the program come first
	if services == nil {
		services = map[string]action.Service{}
	}
	maps.Copy(services, n.Config.Services)
	n.Jobs = jobs.New(jobs.Config{
		Records: n, Put: n.PutRecords, Logger: n.Config.Logger, Idle: n.Config.Idle,
		Settle: func(ctx context.Context, j *jobs.Job, from journal.Source, result action.Func) error {
			return n.Engine.Settle(ctx, j, from, result)
		},
		Service: func(provider string) action.Service { return services[provider] },
	})
	cfg.Jobs, cfg.JobSlots = n.Jobs.Changed, map[string]bool{}
	if n.Workers != nil {
		services[jobs.Workers] = n.Workers
		cfg.Jobs = func(changes []store.RecordChange) {
			n.Jobs.Changed(changes)
			n.Workers.Changed(changes)
		}
	}
	for i := range n.Config.Actions.List {
		a := &n.Config.Actions.List[i]
		switch {
		case a.Slots == 0 && cfg.ProviderSlots[a.Provider] == 0:
		case services[a.Provider] != nil:
			cfg.JobSlots[a.Provider] = true
		default: // it may submit jobs to any of them
			for name := range services {
				cfg.JobSlots[name] = true
			}
		}
	}
}
