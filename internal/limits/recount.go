// SPDX-License-Identifier: Apache-2.0

package limits

import (
	"context"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/slots"
)

// Recount counts the slots that external jobs hold after a start, when no run is in memory: those
// of the providers that are wanted. Where nothing but their number matters it does not read the
// records of the jobs, of which there may be a million.
func Recount[H any](
	ctx context.Context, records jobs.Records, t *slots.Table[H], set *Set,
	find func(name, version string) *action.Action, providerSlots map[string]int, wanted func(provider string) bool,
) error {
	route := func(c *jobs.Class, keys []slots.Key) *slots.Route[H] {
		to := slots.Target{Action: c.Action, Provider: c.Pinned, ProviderSlots: providerSlots[c.Pinned], Service: c.Service, Account: c.Account, Keys: keys}
		if a := find(c.Action, c.Version); a != nil {
			to.Slots = a.Slots
		}
		return t.Arbiter.Route(&to, false)
	}
	each, single := set != nil, map[string]bool{} // providers whose jobs are counted each by itself
	if !each {
		count, whole, err := jobs.Count(ctx, records, wanted)
		if err != nil {
			return err
		}
		each = !whole
		for c := range count {
			if r := route(&c, nil); r.Bounded() && !r.Countable() {
				single[c.Provider] = true
			}
		}
		for c, n := range count {
			if r := route(&c, nil); r.Bounded() && !each && !single[c.Provider] {
				t.CountMany(r, n)
			}
		}
	}
	if !each && len(single) == 0 {
		return nil
	}
	return jobs.Each(ctx, records, func(provider string) bool { return wanted(provider) && (each || single[provider]) }, func(j *jobs.Job) {
		r := route(j.Class(), set.Stored(j.Limits, j.Service))
		if r.Bounded() {
			t.Count(slots.ID{Key: j.Key(), Ref: j.Ref(), Fence: j.Fence()}, r)
		}
	})
}
