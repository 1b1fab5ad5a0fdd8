// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"sync"

	"github.com/roux-engine/roux/fault"
)

// DefaultStreams is how many streams an account may have. A silent one costs about 18 KiB.
const DefaultStreams = 20_000

// StreamCounts are the streams in progress, by account: those of runs and of changes, sockets,
// and the runs that each socket follows (A25).
type StreamCounts struct {
	most int
	mu   sync.Mutex
	of   map[string]int
}

// NewStreamCounts returns counts of at most so many streams of an account.
func NewStreamCounts(most int) *StreamCounts { return &StreamCounts{most: most, of: map[string]int{}} }

// Take counts one more stream of an account. Call left once when it has ended.
func (c *StreamCounts) Take(account string) (left func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.of[account]; n >= c.most {
		e := fault.OverQuota("streams", n, c.most, "account %s has %d streams, the most it may have at once", account, n)
		e.Remedy = "End streams that nobody reads; `/v1/feed` follows all runs of an account in one stream."
		return nil, e
	}
	c.of[account]++
	return sync.OnceFunc(func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.of[account]--; c.of[account] == 0 {
			delete(c.of, account)
		}
	}), nil
}
