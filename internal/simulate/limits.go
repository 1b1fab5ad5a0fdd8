// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"fmt"
	"math/rand/v2"

	"github.com/roux-engine/roux/internal/limits"
)

// limitedAction is the action whose attempts have a limit for each account, and pacedAction one
// whose attempts have a rate.
const limitedAction, pacedAction = "work", "once"

// keyLimits draws the limits of keys of a world, and how many attempts of limitedAction an account
// may have at once; 0 = it has none. It has dice of its own: other worlds stay as they were.
func keyLimits(seed uint64) (*limits.Set, int) {
	dice := rand.New(rand.NewPCG(seed, 0x6c696d6974))
	if dice.IntN(3) > 0 {
		return nil, 0
	}
	n := 1 + dice.IntN(3)
	specs, err := limits.Parse(fmt.Sprintf(`{
		"each": {"key": "action == '%s' ? account : ''", "concurrency": %d, "priority": "label.size() %% 2"},
		"paced": {"key": "action == '%s' ? 'all' : ''", "rate": "%d/s", "burst": %d}
	}`, limitedAction, n, pacedAction, 1+dice.IntN(20), 1+dice.IntN(3)))
	if err != nil {
		panic("simulate: " + err.Error()) // the texts are constants
	}
	set, err := limits.New(specs)
	if err != nil {
		panic("simulate: " + err.Error())
	}
	return set, n
}

// checkKey asserts that no more attempts of a key run than the limit permits (I22).
func (w *World) checkKey(p *process, k *task) {
	if w.keyLimit == 0 || k.ef.Task.Pin.Name != limitedAction {
		return
	}
	n := 0
	if p == w.owner { // one that was replaced knows nothing of the jobs of its successor
		n = w.waitingJobs(limitedAction, k.ef.Key.Account)
	}
	for _, t := range p.tasks {
		if !t.cancelled && t.report == nil && t.ef.Task.Pin.Name == limitedAction && t.ef.Key.Account == k.ef.Key.Account {
			n++
		}
	}
	if n > w.keyLimit {
		w.fail("I22: %d attempts of the key %s are under way, which has %d slots", n, k.ef.Key.Account, w.keyLimit)
	}
}
