// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"

	"github.com/roux-engine/roux/internal/store"
)

// Record returns a record; see store.Records.
func (n *Node) Record(ctx context.Context, key store.RecordKey) (store.Record, error) {
	return n.Store.Record(ctx, key)
}

// RecordNamed returns a record by its name.
func (n *Node) RecordNamed(ctx context.Context, account, kind, name string) (store.Record, error) {
	return n.Store.RecordNamed(ctx, account, kind, name)
}

// Records returns the records that a query selects.
func (n *Node) Records(ctx context.Context, q store.RecordQuery) (page []store.Record, more bool, err error) {
	return n.Store.Records(ctx, q)
}

// PutRecords changes records as the owner of the store.
func (n *Node) PutRecords(ctx context.Context, changes ...store.RecordChange) ([]store.Record, error) {
	return n.Engine.PutRecords(ctx, changes...)
}
