// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jobs"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/lease"
	"github.com/roux-engine/roux/internal/store"
)

// leaseKey is the record with the key that signs leases. Whoever can read it can read all that
// workers are given.
var leaseKey = store.RecordKey{Kind: "lease-key", ID: "1"}

// attachWorkers prepares what hands tasks to remote workers, if some action has them. It returns
// what is to be done once there is an engine.
func (n *Node) attachWorkers(ctx context.Context) (start func(context.Context) error, err error) {
	m := n.Config.Actions.workers
	if m == nil || n.Config.Idle {
		return func(context.Context) error { return nil }, nil
	}
	key := make([]byte, 32)
	var fresh []store.RecordChange
	switch rec, err := n.Record(ctx, leaseKey); {
	case err == nil:
		key = rec.Data
	case errors.Is(err, fault.RecordNotFound):
		_, _ = rand.Read(key) // never fails
		fresh = []store.RecordChange{{Record: store.Record{RecordKey: leaseKey, Data: key}}}
	default:
		return nil, err
	}
	m.Attach(lease.Host{
		Key: key, Logger: n.Config.Logger,
		Settle: func(ctx context.Context, j *jobs.Job, from journal.Source, result action.Func) error {
			return n.Engine.Settle(ctx, j, from, result)
		},
	})
	n.Workers = m
	return func(ctx context.Context) error {
		if len(fresh) > 0 {
			if _, err := n.PutRecords(ctx, fresh...); err != nil {
				return err
			}
		}
		if err := m.Load(ctx, n); err != nil {
			return err
		}
		running, cancel := context.WithCancel(context.Background())
		var done sync.WaitGroup
		done.Go(func() { m.Run(running) })
		endJobs := n.endJobs
		n.endJobs = func() {
			endJobs()
			cancel()
			done.Wait()
		}
		return nil
	}, nil
}
