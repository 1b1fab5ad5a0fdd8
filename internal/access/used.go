// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/roux-engine/roux/internal/store"
)

const (
	// UseEvery is the shortest time between two writes of when a key was last used.
	UseEvery = time.Minute
	// useBatch is how many keys one write has.
	useBatch = 100
)

// use notes that a key admitted a request. It writes nothing: [Keys.SaveUses] does. Of more keys
// than are cached, those that come last are noted with their next request.
func (k *Keys) use(id string, at int64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, ok := k.used[id]; ok || len(k.used) < maxCached {
		k.used[id] = at
	}
}

// withUse returns a copy of a key that has its last use, also if that is not stored yet.
func (k *Keys) withUse(key *Key) *Key {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := *key
	out.Used = max(out.Used, k.used[key.ID])
	return &out
}

// SaveUses stores when keys were last used. It does nothing within [UseEvery] of the last time,
// unless it is the last one of the process. What could not be stored is lost, and the next
// request with the key is noted again.
func (k *Keys) SaveUses(ctx context.Context, last bool) error {
	k.writing.Lock()
	defer k.writing.Unlock()
	now := k.micros()
	k.mu.Lock()
	if now-k.usesSaved < UseEvery.Microseconds() && !last {
		k.mu.Unlock()
		return nil
	}
	k.usesSaved = now
	ids := slices.Sorted(maps.Keys(k.used))
	k.mu.Unlock()
	ids = slices.DeleteFunc(ids, func(id string) bool { return id == adminKey }) // it is not stored
	var failed error
	for batch := range slices.Chunk(ids, useBatch) {
		failed = errors.Join(failed, k.saveUses(ctx, batch))
	}
	return failed
}

// saveUses stores the last uses of some keys. The caller holds k.writing.
func (k *Keys) saveUses(ctx context.Context, ids []string) error {
	var keys []*Key
	var changes []store.RecordChange
	var failed error
	for _, id := range ids {
		key, err := k.load(ctx, id)
		switch {
		case err != nil:
			failed = errors.Join(failed, err)
		case key != nil:
			key = k.withUse(key)
			r, err := key.record()
			if err != nil {
				return err
			}
			keys, changes = append(keys, key), append(changes, store.RecordChange{Record: r})
		}
	}
	var stored []store.Record
	if len(changes) > 0 {
		var err error
		stored, err = k.store.PutRecords(ctx, changes...)
		failed = errors.Join(failed, err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range ids {
		if !slices.ContainsFunc(keys, func(key *Key) bool { return key.ID == id && key.Used < k.used[id] }) { // it was not used again since
			delete(k.used, id)
		}
	}
	k.writes++
	for i, key := range keys {
		if i >= len(stored) { // it may be written all the same: the next use reads it
			delete(k.cached, key.ID)
			continue
		}
		key.Revision = stored[i].Revision
		k.remember(key)
	}
	return failed
}

// record is a key as it is stored.
func (k *Key) record() (store.Record, error) {
	data, err := json.Marshal(k)
	if err != nil {
		return store.Record{}, fmt.Errorf("key %s: %w", k.ID, err)
	}
	r := store.Record{RecordKey: store.RecordKey{Kind: Kind, ID: k.ID}, Revision: k.Revision, Name: nameOf(k.Account, k.ID), Data: data}
	switch {
	case k.Revoked != 0:
		r.Until = k.Revoked + keptRevoked
	case k.Expires != 0:
		r.Until = k.Expires + keptRevoked
	}
	return r, nil
}
