// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"iter"

	"github.com/roux-engine/roux/internal/store"
)

// Feed yields the account's changes after number `after`, first those that are stored, then
// new ones as they become durable; see feed.Feed.Changes. It ends with an error when the
// engine stops.
func (e *Engine) Feed(ctx context.Context, account string, after uint64) iter.Seq2[store.Change, error] {
	return e.feed.Changes(ctx, account, after)
}

// NewestChange returns the number of the account's last change, and the number after which
// changes are kept; see store.Feed.
func (e *Engine) NewestChange(ctx context.Context, account string) (last, expired uint64, err error) {
	return e.cfg.Store.Newest(ctx, account)
}
