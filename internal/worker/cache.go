// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"

	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/redact"
)

// A Cache has the results of earlier attempts with the same action and the same input as one
// attempt. Its methods are called on the goroutine of the attempt, and may read and write a store.
type Cache interface {
	// Get returns an earlier result, which the attempt has in place of one of its own; nil = there
	// is none that may be used.
	Get(ctx context.Context) *Hit
	// Put keeps the output of the attempt for later ones. That it could not is no failure of the
	// attempt.
	Put(ctx context.Context, output []byte)
}

// A Hit is an earlier result.
type Hit struct {
	Output []byte // canonical JSON, at most MaxOutput
	From   journal.Cached
}

// cached returns an earlier result in place of a call. It comes after the check of the input, so
// that an attempt fails for its input whether there is one or not. An input with secrets has none:
// what a secret gives access to may change.
func (a *attempt) cached() *Hit {
	c := a.task.Cache
	if c == nil || a.secrets != nil {
		return nil
	}
	hit := c.Get(a)
	if hit == nil || a.gate != nil && a.gate.Output && jsonx.Reserved(hit.Output) { // moderators see whole texts only
		return nil
	}
	if known := a.known(); known != nil { // a secret that was not known when the result was made
		if hit.Output = redactOutput(known, hit.Output); len(hit.Output) > MaxOutput {
			return nil
		}
	}
	return hit
}

// keep keeps the output of a call, which fits its contract, for later attempts.
func (a *attempt) keep(output []byte) {
	if c := a.task.Cache; c != nil && a.secrets == nil {
		c.Put(a, output)
	}
}

func redactOutput(known *redact.Set, output []byte) []byte {
	return known.JSON(output, outputLimits(output))
}
