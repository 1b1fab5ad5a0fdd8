// SPDX-License-Identifier: Apache-2.0

package roux

import (
	"context"
	"time"

	"github.com/roux-engine/roux/internal/feed"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/view"
)

// A PartialOutput is a piece of text that an action streams.
type PartialOutput struct {
	Account string
	Run     string
	Step    string // as action.Task.Step
	// Index counts the pieces of the step, from 0, over all its attempts.
	Index int64
	Text  string
}

// partialOutputs observes an engine and tells a program what actions stream.
type partialOutputs func(PartialOutput)

// Durable implements feed.Observer.
func (fn partialOutputs) Durable(runs []feed.Observed) {
	for i := range runs {
		r := &runs[i]
		if r.Plan == nil {
			continue
		}
		view.EachStreamed(r.Frames, func(ref journal.Ref, index int64, text string) {
			fn(PartialOutput{r.Key.Account, r.Key.Run, journal.StepPath(r.Plan, ref), index, text})
		})
	}
}

// Commit implements feed.Observer.
func (partialOutputs) Commit(int, time.Duration, error) {}

// Attach implements node.Observer.
func (partialOutputs) Attach(feed.Host) {}

// Traced implements node.Observer.
func (partialOutputs) Traced() bool { return false }

// Flush implements node.Observer.
func (partialOutputs) Flush(context.Context) {}
