// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/reads"
	"github.com/roux-engine/roux/internal/store"
)

// softDelete hides a run from its user. It is loaded for that, so that a retry that comes
// in the same batch finds it deleted; only a quarantined run is not.
func (c *core) softDelete(key store.Key) error {
	l, err := c.residency.get(key)
	var head store.Head
	switch {
	case errors.Is(err, fault.Quarantined):
		head, err = c.cfg.Store.Head(c.ctx, key)
	case err == nil:
		head = l.head
		if !l.settled() {
			head.Ended = 0
		} else if head.Ended == 0 {
			head.Ended = l.ended // its end is not encoded yet
		}
	}
	switch {
	case err != nil:
		return err
	case head.Deleted != 0:
		return reads.ErrDeleted(key.Run)
	case head.Root != "":
		return fault.New(fault.Conflict, "run %s is a child run: it is deleted with its root, run %s", key.Run, head.Root)
	case head.Ended == 0 || l == nil && head.Owes:
		return fault.New(fault.Conflict, "run %s has not ended: cancel it first", key.Run)
	case l != nil:
		l.head.Deleted, l.forceHead = c.now, true
		c.pipeline.touch(l, l.run.Last()+1)
	default:
		head.Deleted, head.Updated = c.now, c.now
		c.pipeline.building.extra = append(c.pipeline.building.extra, store.Transition{Key: key, Epoch: c.epoch, Head: &head})
	}
	return nil
}
