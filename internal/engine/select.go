// SPDX-License-Identifier: Apache-2.0

package engine

import "github.com/roux-engine/roux/internal/store"

// takes reports whether this engine carries a run on by itself: each run, or those
// that Config.Select names and those that have been in its memory. The latter are
// remembered for as long as it runs; an engine that has to do with many runs has no
// Select.
func (c *core) takes(key store.Key) bool {
	return c.cfg.Select == nil || c.taken[key] || c.cfg.Select(key)
}

// due returns up to maxAhead wake-ups of suspended runs that this engine takes, the
// earliest first, and whether there may be more until then.
func (c *core) due(until int64) (wakes []store.Wake, more bool, err error) {
	for limit := maxAhead; ; limit *= 4 {
		all, err := c.cfg.Store.Due(c.ctx, until, limit)
		if err != nil {
			return nil, false, err
		}
		if c.cfg.Select == nil {
			return all, len(all) == maxAhead, nil
		}
		wakes = wakes[:0]
		for _, w := range all {
			if c.takes(w.Key) && len(wakes) < maxAhead {
				wakes = append(wakes, w)
			}
		}
		if len(all) < limit || len(wakes) == maxAhead {
			return wakes, len(wakes) == maxAhead, nil
		}
	}
}
