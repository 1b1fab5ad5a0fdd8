// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/worker"
)

// gate returns what moderators look at in an attempt; nil = nothing. The input of an attempt that
// has submitted a job was moderated then.
func (a *inFlight) gate() (*worker.Gate, error) {
	g := a.task.Gate
	if g == nil {
		return nil, nil
	}
	gate := &worker.Gate{Input: g.Input && a.settle == nil, Output: g.Output, Hold: g.Hold}
	var err error
	if gate.Input || gate.Output {
		gate.Moderator, err = a.e.cfg.Moderators.Of(g.By)
	}
	if ask := a.e.cfg.Review; g.Review != nil && ask != nil && a.settle == nil {
		gate.Review = func(ctx context.Context, t *action.Task, f *worker.Flagged) (*action.Job, error) {
			return ask(ctx, t, g.Review, f)
		}
	}
	return gate, err
}
