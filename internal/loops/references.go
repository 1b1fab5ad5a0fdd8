// SPDX-License-Identifier: Apache-2.0

package loops

import (
	"context"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/store"
)

// checkReferences refuses an item that contains a reference which this run did not
// make. Otherwise a file from outside could name any file of the account whose hash its
// author knows, and have a step read it (A13). A file with the collected outputs of a
// long loop contains references that are already in the run's journal, or, if the loop was one of another run of
// the tree, in that run's: then this run's journal has the reference to the file, which says so. The journal is read
// once for each cursor.
func (c *cursor) checkReferences(ctx context.Context, item []byte, runReferences func(context.Context, store.Key) (map[jsonx.Large]bool, error)) (err error) {
	if !jsonx.Reserved(item) {
		return nil
	}
	if c.ownRefs == nil {
		if c.ownRefs, err = runReferences(ctx, c.key); err != nil {
			return err
		}
		for ref := range c.ownRefs {
			c.collected = c.collected || ref.Refs && ref.Hash == c.hash
		}
	}
	for rest := item; jsonx.Reserved(rest); {
		ref, start, end, ok := jsonx.NextLarge(rest)
		if !ok || !c.ownRefs[ref] && !c.collected || jsonx.Reserved(rest[:start]) {
			return fault.New(fault.InputInvalid, "item %d of file %s uses the name %q, which is reserved: give the field another name",
				c.next, c.hash, jsonx.LargeName)
		}
		rest = rest[end:]
	}
	return nil
}

// ReferencesIn returns a function that finds the references in the values of the journals of a store.
func ReferencesIn(st store.Reader) func(context.Context, store.Key) (map[jsonx.Large]bool, error) {
	return func(ctx context.Context, key store.Key) (map[jsonx.Large]bool, error) {
		return references(ctx, st, key)
	}
}

func references(ctx context.Context, st store.Reader, key store.Key) (map[jsonx.Large]bool, error) {
	refs := map[jsonx.Large]bool{}
	err := store.EachEvent(ctx, st, key, 0, func(ev *journal.Event) error {
		for rest := ev.Data; ; {
			ref, _, end, ok := jsonx.NextLarge(rest)
			if !ok {
				return nil
			}
			refs[ref] = true
			rest = rest[end:]
		}
	})
	return refs, err
}
