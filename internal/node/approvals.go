// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"sync"

	"github.com/roux-engine/roux/internal/approval"
)

// newApprovals makes what asks people. It needs the engine only once a step runs.
func (n *Node) newApprovals() {
	n.Approvals = approval.New(approval.Config{Records: n, Put: n.PutRecords, Logger: n.Config.Logger})
	n.Approvals.Handle(kindReview, n.reviewResult)
	var making sync.Mutex
	var key []byte
	n.Approvals.Attach(approval.Host{
		Settle: n.settle,
		Key: func(ctx context.Context) (_ []byte, err error) {
			making.Lock()
			defer making.Unlock()
			if key == nil {
				key, err = n.linkKey(ctx)
			}
			return key, err
		},
	})
}

// startApprovals makes reminders and defaults happen, and returns what ends it. An engine that only
// changes runs takes answers, and the next process makes them results.
func (n *Node) startApprovals() (end func()) {
	if n.Config.Idle {
		return func() {}
	}
	running, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { n.Approvals.Run(running) })
	return func() {
		cancel()
		done.Wait()
	}
}
