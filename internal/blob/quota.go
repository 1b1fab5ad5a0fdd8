// SPDX-License-Identifier: Apache-2.0

package blob

import (
	"context"
	"fmt"
	"sync"

	"github.com/roux-engine/roux/fault"
)

// usages count the bytes of the files of accounts that have a quota. The files of an account
// are counted once, before the first of them is stored in this process; from then on a number
// in memory follows what is stored and removed.
type usages struct {
	quota func(account string) int64 // nil = no account has one
	mu    sync.Mutex
	of    map[string]*usage
}

// A usage is that of one account. Its lock is taken after that of a stripe.
type usage struct {
	mu      sync.Mutex
	counted bool
	bytes   int64
}

func (us *usages) limit(account string) int64 {
	if us.quota == nil {
		return 0
	}
	return us.quota(account)
}

// most is the size of the largest file that an account may store.
func (us *usages) most(account string, most int64) int64 {
	if n := us.limit(account); n > 0 {
		return min(n, most)
	}
	return most
}

// find returns the usage of an account; nil if nobody has asked for it and make is false.
func (us *usages) find(account string, make bool) *usage {
	us.mu.Lock()
	defer us.mu.Unlock()
	u := us.of[account]
	if u == nil && make {
		if us.of == nil {
			us.of = map[string]*usage{}
		}
		u = &usage{}
		us.of[account] = u
	}
	return u
}

// count counts the files of the account. The caller holds the lock, so that no file is added
// meanwhile.
func (u *usage) count(ctx context.Context, s *Store, account string) error {
	if u.counted {
		return nil
	}
	u.bytes = 0
	err := s.each(ctx, account, "", func(e Entry) error {
		u.bytes += e.Info.Size
		return nil
	})
	u.counted = err == nil
	return err
}

// add calls store for a new file, unless the quota of the account has no room for it.
func (us *usages) add(ctx context.Context, s *Store, account string, size int64, store func() error) error {
	limit := us.limit(account)
	u := us.find(account, limit > 0)
	if u == nil {
		return store()
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if limit > 0 {
		if err := u.count(ctx, s, account); err != nil {
			return err
		}
		if u.bytes+size > limit {
			return full(u.bytes, size, limit)
		}
	}
	err := store()
	if err == nil && u.counted {
		u.bytes += size
	}
	return err
}

// remove calls remove for a file of a size.
func (us *usages) remove(account string, size int64, remove func() error) error {
	u := us.find(account, false)
	if u == nil {
		return remove()
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	err := remove()
	if err == nil && u.counted {
		u.bytes -= size
	}
	return err
}

// larger is the error for a file that has more bytes than all files of the account may have.
func (us *usages) larger(ctx context.Context, s *Store, account string, limit int64) error {
	used, err := s.Usage(ctx, account)
	if err != nil {
		return err
	}
	return full(used, limit+1, limit)
}

func full(used, size, limit int64) error {
	return &fault.Error{
		Code: fault.QuotaExceeded, Quota: &fault.Quota{Name: "storage_bytes", Used: used, Limit: limit},
		Msg:    fmt.Sprintf("the files of the account have %d bytes of the %d that they may have, and a file of %d or more does not fit", used, limit, size),
		Remedy: "Delete files that no run names, or runs with the files that they name, or let the operator raise storageBytes of the account.",
	}
}

// Usage returns how many bytes the files of an account have. The first call for an account
// counts them.
func (s *Store) Usage(ctx context.Context, account string) (int64, error) {
	u := s.usage.find(account, true)
	u.mu.Lock()
	defer u.mu.Unlock()
	err := u.count(ctx, s, account)
	return u.bytes, err
}
