// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/machine"
	"github.com/roux-engine/roux/internal/store"
)

// genuine refuses items whose references this run did not make. A file that came
// from outside could otherwise name any file of the account whose hash its author
// knows, and have a step read it (A13). The file in which a long loop's outputs
// were collected holds references that are in the run's journal.
func (e *Engine) genuine(ctx context.Context, key store.Key, ask *effect, items [][]byte) error {
	var own map[jsonx.Large]bool
	for i, item := range items {
		if !jsonx.Reserved(item) {
			continue
		}
		if own == nil {
			var err error
			if own, err = e.references(ctx, key); err != nil {
				return err
			}
		}
		for rest := item; jsonx.Reserved(rest); {
			ref, start, end, ok := jsonx.NextLarge(rest)
			if !ok || !own[ref] || jsonx.Reserved(rest[:start]) {
				return fault.New(fault.InputInvalid, "item %d of file %s uses the name %q, which is reserved: give the field another name",
					ask.from+int64(i), ask.file, jsonx.LargeName)
			}
			rest = rest[end:]
		}
	}
	return nil
}

// references are those in the values of a run's journal.
func (e *Engine) references(ctx context.Context, key store.Key) (map[jsonx.Large]bool, error) {
	own := map[jsonx.Large]bool{}
	err := eachStored(ctx, e.cfg.Store, key, 0, func(ev *machine.Event) error {
		for rest := ev.Data; ; {
			ref, _, end, ok := jsonx.NextLarge(rest)
			if !ok {
				return nil
			}
			own[ref] = true
			rest = rest[end:]
		}
	})
	return own, err
}
