// SPDX-License-Identifier: Apache-2.0

//go:build small

package jobs

import (
	"context"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/journal"
)

// A small binary shows of a job only how it has ended.

type stream struct{}

func (k *Keeper) settle(ctx context.Context, j *Job, from journal.Source, result action.Func) error {
	return k.cfg.Settle(ctx, j, from, result)
}

func (k *Keeper) wanted(string, plannedPoll) {}

func (k *Keeper) followNew(context.Context) {}

func (k *Keeper) followAgain(*Job) {}

func (k *Keeper) unfollow(string) {}

func (k *Keeper) preview(context.Context, *Job, journal.Source, any) {}
