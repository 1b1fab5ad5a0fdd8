// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"maps"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/engine"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/journal"
)

// keepJobs makes what asks services about external jobs, and has the engine tell it of them. An
// engine that only changes runs asks nobody.
func (n *Node) keepJobs(cfg *engine.Config) {
	services := n.Config.Actions.models.JobServices() // those of the program come first
	maps.Copy(services, n.Config.Services)
	n.Jobs = jobs.New(jobs.Config{
		Records: n, Put: n.PutRecords, Logger: n.Config.Logger, Idle: n.Config.Idle,
		Settle: n.settle, Show: n.show, Unstored: n.Workers.Unstored,
		Service: func(provider string) action.Service { return services[provider] },
	})
	cfg.JobSlots = map[string]bool{}
	services[jobs.People] = n.Approvals
	if n.Workers != nil {
		services[jobs.Workers] = n.Workers
	}
	cfg.Jobs = func(changes []jobs.Change) {
		n.Jobs.Changed(changes)
		n.Approvals.Changed(changes)
		if n.Workers != nil {
			n.Workers.Changed(changes)
		}
	}
	for i := range n.Config.Actions.List {
		a := &n.Config.Actions.List[i]
		switch {
		case a.Slots == 0 && cfg.ProviderSlots[a.Provider] == 0:
		case services[a.Provider] != nil && a.Provider != jobs.Workers:
			cfg.JobSlots[a.Provider] = true
		default: // it, or a remote worker, may submit jobs to any of them
			for name := range services {
				cfg.JobSlots[name] = true
			}
		}
	}
}

// show passes on what a settlement that settles nothing reports, and returns when that is durable.
func (n *Node) show(ctx context.Context, j *jobs.Job, from journal.Source, result action.Func) error {
	if err := n.Engine.Settle(ctx, j, from, result); err != nil && !errors.Is(err, action.ErrUnsettled) {
		return err
	}
	return n.Engine.Sync(ctx)
}

// settle is engine.Engine.Settle, of an engine that may not be open yet.
func (n *Node) settle(ctx context.Context, j *jobs.Job, from journal.Source, result action.Func) error {
	return n.Engine.Settle(ctx, j, from, result)
}
