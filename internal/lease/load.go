// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"slices"
	"strings"
	"time"
)

// A QueueLoad says how far the workers of a queue keep up.
type QueueLoad struct {
	Queue   string
	Waiting int           // tasks that no worker has
	Oldest  time.Duration // how long the first of them has waited; 0 = there are none
}

// QueueLoads returns the load of each queue that the configuration names, in the order of their names. It
// counts no tasks: a queue of workers that are away may have a million. A task that may be a worker's
// since before a restart does not wait until its lease expires.
func (m *Manager) QueueLoads() []QueueLoad {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var list []QueueLoad
	now := m.host.Now()
	for i := range m.remotes {
		r := &m.remotes[i]
		p := m.byAction[nameOf(r.Action.Name, r.Action.Version)]
		at, ok := slices.BinarySearchFunc(list, r.Queue, func(l QueueLoad, name string) int { return strings.Compare(l.Queue, name) })
		if !ok {
			list = slices.Insert(list, at, QueueLoad{Queue: r.Queue})
		}
		l := &list[at]
		l.Waiting += p.waiting
		if since := p.oldest(); since != 0 {
			l.Oldest = max(l.Oldest, time.Duration(now-since)*time.Microsecond)
		}
	}
	return list
}
