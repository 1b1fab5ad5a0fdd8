// SPDX-License-Identifier: Apache-2.0

package slots

import (
	"slices"
	"sync/atomic"

	"github.com/roux-engine/roux/internal/mutation"
)

// A Limit bounds how many attempts run at once.
type Limit[H any] struct {
	queue[H]
	reason  string
	slots   int
	used    atomic.Int64 // read by Usage; only the caller changes it
	rule    *Rule        // of the configuration; nil = of an action, a provider or the engine
	holders []*Request[H]
}

// maxHolders bounds how many slots a limit has that knows who holds them.
const maxHolders = 8

func newLimit[H any](of, name, reason string, slots int) *Limit[H] {
	l := &Limit[H]{reason: reason, slots: slots, queue: queue[H]{of: of, name: name, accounts: map[string]*accountQueue[H]{}}}
	l.limit = l
	return l
}

// full reports whether a request has to wait.
func (l *Limit[H]) full() bool {
	if mutation.KeySlot && l.rule != nil {
		return false
	}
	return int(l.used.Load()) >= l.slots || l.next != nil
}

func (l *Limit[H]) acquire(req *Request[H]) {
	l.hold(req)
	req.passed++
	l.lastServed = req.Key.Account
}

func (l *Limit[H]) hold(req *Request[H]) {
	l.used.Add(1)
	if l.slots <= maxHolders {
		l.holders = append(l.holders, req)
	}
}

func (l *Limit[H]) release(req *Request[H]) {
	l.used.Add(-1)
	if i := slices.Index(l.holders, req); i >= 0 {
		l.holders = slices.Delete(l.holders, i, i+1)
	}
}
