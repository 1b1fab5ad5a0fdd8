// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"slices"
	"sync"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/feed"
	"github.com/roux-engine/roux/internal/lease"
	"github.com/roux-engine/roux/internal/store"
)

// leaseKey is the record with the key that signs leases, and links of approvals. Whoever can read it
// can read everything that workers are given.
var leaseKey = store.RecordKey{Kind: "lease-key", ID: "1"}

// startWorkers makes what hands out the tasks of remote workers work, if an action has them, and
// returns what ends it.
func (n *Node) startWorkers(ctx context.Context) (end func(), err error) {
	end = func() {}
	if n.Workers == nil {
		return end, nil
	}
	key, start, err := n.leaseKey(ctx)
	if err != nil {
		return end, err
	}
	n.Workers.Attach(lease.Host{Key: key, Epoch: start, Logger: n.Config.Logger, Settle: n.Engine.BeginSettle, HandOn: n.Engine.HandOn, Check: n.Jobs.Check})
	if err := n.Workers.Load(ctx, n); err != nil {
		return end, err
	}
	running, cancel := context.WithCancel(context.Background())
	var done sync.WaitGroup
	done.Go(func() { n.Workers.Run(running) })
	return func() {
		cancel()
		done.Wait()
	}, nil
}

// queueLoads says how far remote workers keep up.
func (n *Node) queueLoads() (list []feed.QueueLoad) {
	for _, l := range n.Workers.QueueLoads() {
		list = append(list, feed.QueueLoad(l))
	}
	return list
}

// refused counts what came from outside and was refused.
func (n *Node) refused(triggers func() int64) (all feed.Refused) {
	if n.Workers != nil {
		n.Workers.Refused(func(r lease.Refusal, count int64) {
			all.Results = append(all.Results, feed.Count{Name: r.String(), N: count})
		})
	}
	all.Webhooks = append(all.Webhooks, feed.Count{Name: "job", N: n.Jobs.Refused()})
	if triggers != nil {
		all.Webhooks = append(all.Webhooks, feed.Count{Name: "trigger", N: triggers()})
	}
	return all
}

// keySize is how long the key in the record is; the number of starts follows it.
const keySize = 32

// leaseKey returns the key that signs leases, which the first start makes, and the number of the
// start, which is larger each time.
func (n *Node) leaseKey(ctx context.Context) (key []byte, start uint64, err error) {
	rec, err := n.keyRecord(ctx)
	if err != nil {
		return nil, 0, err
	}
	key = rec.Data[:keySize]
	if count := rec.Data[keySize:]; len(count) == 8 { // an earlier version counted nothing
		start = binary.BigEndian.Uint64(count)
	}
	start++
	rec.Data = binary.BigEndian.AppendUint64(slices.Clone(key), start)
	_, err = n.PutRecords(ctx, store.RecordChange{Record: rec})
	return key, start, err
}

// linkKey returns the key that signs links of approvals, the same one, and makes it when it is
// first needed.
func (n *Node) linkKey(ctx context.Context) ([]byte, error) {
	rec, err := n.keyRecord(ctx)
	if err == nil && rec.Revision == 0 {
		_, err = n.PutRecords(ctx, store.RecordChange{Record: rec})
	}
	if err != nil {
		return nil, err
	}
	return rec.Data[:keySize], nil
}

// keyRecord returns the record with the key, or a new one that is not stored.
func (n *Node) keyRecord(ctx context.Context) (store.Record, error) {
	rec, err := n.Record(ctx, leaseKey)
	if errors.Is(err, fault.RecordNotFound) {
		rec, err = store.Record{RecordKey: leaseKey, Data: make([]byte, keySize)}, nil
		_, _ = rand.Read(rec.Data) // never fails
	}
	return rec, err
}
