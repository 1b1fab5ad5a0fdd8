// SPDX-License-Identifier: Apache-2.0

package access

import (
	"context"
	"time"

	"github.com/roux-engine/roux/fault"
)

// MaxOverlap is how long a key may go on beside the one that takes its place.
const MaxOverlap = 7 * 24 * time.Hour

// Rotate makes a key that allows what an earlier one does, and returns its token. The earlier
// one goes on for the time overlap, and ends at once without one, as if it were revoked. What
// is spent with either counts against one limit. A key may be
// rotated by itself, also if it makes no others, and by one that allows as much.
func (k *Keys) Rotate(ctx context.Context, by *Principal, account, id string, overlap time.Duration) (*Key, string, error) {
	if overlap < 0 || overlap > MaxOverlap {
		return nil, "", fault.New(fault.InputInvalid, "overlapSeconds: want 0 to %d", int(MaxOverlap.Seconds()))
	}
	k.writing.Lock()
	defer k.writing.Unlock()
	old, err := k.Get(ctx, account, id)
	if err != nil {
		return nil, "", err
	}
	now := k.micros()
	switch {
	case id == adminKey:
		return nil, "", fault.New(fault.Conflict, "that key is in the environment of the server: change ROUX_ADMIN_KEY and start it again")
	case !old.Live(now):
		return nil, "", fault.New(fault.Conflict, "the key is revoked or has expired: make another one")
	}
	if by.Key != id {
		if _, err := resolve(by, "", old.Scopes); err != nil {
			return nil, "", err
		}
		spec := Spec{Account: account, Expires: old.Expires}
		if err := spec.within(by); err != nil {
			return nil, "", err
		}
	}
	fresh := &Key{Account: account, Name: old.Name, Role: old.Role, Scopes: old.Scopes, Limit: old.Limit, Budget: old.BudgetName(), Created: now, By: by.Key, Expires: old.Expires}
	if old.Limit == nil {
		fresh.Budget = ""
	}
	key, token, err := k.create(ctx, fresh)
	if err != nil {
		return nil, "", err
	}
	if overlap == 0 {
		_, err := k.revoke(context.WithoutCancel(ctx), account, id)
		return key, token, err
	}
	ending := *old
	if end := now + overlap.Microseconds(); ending.Expires == 0 || end < ending.Expires {
		ending.Expires = end
	}
	if err := k.put(ctx, &ending); err != nil {
		return nil, "", err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for u := range k.open[id] { // requests and streams that began when it was valid for longer
		u.timer = time.AfterFunc(time.Duration(ending.Expires-now)*time.Microsecond, func() { u.end(errExpired) })
	}
	return key, token, nil
}

var errExpired = fault.New(fault.Unauthorized, "the key has expired")
