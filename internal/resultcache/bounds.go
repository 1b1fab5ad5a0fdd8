// SPDX-License-Identifier: Apache-2.0

package resultcache

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/internal/store"
)

// The name of a record says when its result was made and how large it is, so that what an
// account has can be counted, and the oldest found, without reading results.

// nameOf returns the name of a record.
func nameOf(at int64, size int, key string) string {
	return fmt.Sprintf("%016x.%08x.%s", at, size, key[:32])
}

// sizeOf is the size that a name says; 0 for a name of another form.
func sizeOf(name string) int64 {
	parts := strings.Split(name, ".")
	if len(parts) != 3 {
		return 0
	}
	n, err := strconv.ParseInt(parts[1], 16, 64)
	if err != nil {
		return 0
	}
	return n
}

// usage is how much an account has, as far as this process knows: not less than there is,
// because results are replaced and removed when they are too old.
type usage struct {
	results, bytes int64
	trimming       bool // an attempt counts the results, and may remove some
}

// maxUsages bounds the accounts of which that is remembered.
const maxUsages = 10_000

// bound notes that a result was added, and removes the oldest of an account that has too many.
// Then it leaves room for a tenth, so that it does not have to count after each result. Other
// attempts do not wait for that.
func (c *Cache) bound(ctx context.Context, account string, size int64) {
	u, before := c.added(account, size)
	if u == nil {
		return
	}
	left, err := c.trim(ctx, account)
	c.mu.Lock()
	defer c.mu.Unlock()
	if u.trimming = false; err != nil {
		delete(c.used, account)
		c.cfg.Logger.Info("the cached results of an account could not be counted", "account", account, "err", err)
		return
	}
	u.results, u.bytes = left.results+u.results-before.results, left.bytes+u.bytes-before.bytes // with those added meanwhile
}

// added counts a result. The usage that it returns has to be counted anew; nil = none.
func (c *Cache) added(account string, size int64) (u *usage, before usage) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if u = c.used[account]; u == nil {
		if len(c.used) >= maxUsages {
			clear(c.used)
		}
		// Nothing is known yet: as if it was full, so that it is counted.
		u = &usage{results: c.cfg.MaxResults, bytes: c.cfg.MaxBytes}
		c.used[account] = u
	}
	u.results, u.bytes = u.results+1, u.bytes+size
	if u.trimming || u.results <= c.cfg.MaxResults && u.bytes <= c.cfg.MaxBytes {
		return nil, before
	}
	u.trimming = true
	return u, *u
}

// trim counts the results of an account, and removes the oldest if there are too many. It returns what
// is left.
func (c *Cache) trim(ctx context.Context, account string) (u usage, err error) {
	var all []store.Record
	err = c.each(ctx, account, store.RecordQuery{Named: true}, func(r *store.Record) error {
		u.results++
		u.bytes += sizeOf(r.Name)
		all = append(all, store.Record{RecordKey: r.RecordKey, Name: r.Name})
		return nil
	})
	if err != nil || u.results <= c.cfg.MaxResults && u.bytes <= c.cfg.MaxBytes {
		return u, err
	}
	n := 0
	for n < len(all) && (u.results > c.cfg.MaxResults*9/10 || u.bytes > c.cfg.MaxBytes*9/10) {
		u.results--
		u.bytes -= sizeOf(all[n].Name)
		n++
	}
	return u, c.remove(ctx, all[:n])
}

// each visits the results of an account, without what they are. q restricts and orders them.
func (c *Cache) each(ctx context.Context, account string, q store.RecordQuery, fn func(*store.Record) error) error {
	q.Account, q.Kind, q.KeysOnly = account, Kind, true
	return store.EachRecord(ctx, c.cfg.Records, q, fn)
}

func (c *Cache) remove(ctx context.Context, records []store.Record) error {
	for chunk := range slices.Chunk(records, store.MaxRecordChanges) {
		changes := make([]store.RecordChange, len(chunk))
		for i := range chunk {
			changes[i] = store.Deletion(chunk[i].RecordKey)
		}
		if _, err := c.cfg.Put(ctx, changes...); err != nil {
			return err
		}
	}
	return nil
}

// An ActionUsage is how many results of a version of an action are kept.
type ActionUsage struct {
	Action  string `json:"action"`
	Version string `json:"version"`
	Results int64  `json:"results"`
	Bytes   int64  `json:"bytes"`
}

// Usage returns what is kept for an account, by action. Results that are too old count until
// they are removed.
func (c *Cache) Usage(ctx context.Context, account string) ([]ActionUsage, error) {
	list := []ActionUsage{}
	err := c.each(ctx, account, store.RecordQuery{}, func(r *store.Record) error {
		name, version := actionOf(r.ID)
		if n := len(list); n == 0 || list[n-1].Action != name || list[n-1].Version != version { // they are in the order of their ids
			list = append(list, ActionUsage{Action: name, Version: version})
		}
		u := &list[len(list)-1]
		u.Results++
		u.Bytes += sizeOf(r.Name)
		return nil
	})
	return list, err
}

// actionOf returns the action that the id of a record names.
func actionOf(id string) (name, version string) {
	of, _, _ := strings.Cut(id, "/")
	name, version, _ = strings.Cut(of, "@")
	return name, version
}

// Clear removes the results of an account, those of one action if it is not "", and returns how
// many. A name means all versions of the action, and name@version one.
func (c *Cache) Clear(ctx context.Context, account, action string) (int, error) {
	q := store.RecordQuery{}
	switch {
	case strings.Contains(action, "@"):
		q.Prefix = action + "/"
	case action != "":
		q.Prefix = action + "@"
	}
	var all []store.Record
	err := c.each(ctx, account, q, func(r *store.Record) error {
		all = append(all, store.Record{RecordKey: r.RecordKey})
		return nil
	})
	if err == nil {
		err = c.remove(ctx, all)
	}
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	delete(c.used, account)
	c.mu.Unlock()
	return len(all), nil
}
