// SPDX-License-Identifier: Apache-2.0

package rest

import (
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"golang.org/x/time/rate"

	"github.com/roux-engine/roux/fault"
)

// rates limit how fast the requests of an account come. They protect the other accounts of
// a server; what an account may spend is the ledger's.
type rates struct {
	limit rate.Limit
	burst int
	mu    *sync.Mutex
	of    map[string]*rate.Limiter
	// policy is the value of RateLimit-Policy.
	policy string
}

// maxLimiters bounds the accounts in memory. A full bucket is the same as none.
const maxLimiters = 10_000

func newRates(perSecond float64, burst int) rates {
	r := rates{limit: rate.Limit(perSecond), burst: burst, mu: new(sync.Mutex), of: map[string]*rate.Limiter{}}
	if perSecond > 0 {
		r.policy = fmt.Sprintf(`"burst";q=%d;w=%d`, burst, r.window())
	}
	return r
}

// window is how long an empty bucket takes to fill, in seconds.
func (r *rates) window() int { return max(1, int(math.Ceil(float64(r.burst)/float64(r.limit)))) }

// take counts a request, or refuses it with the time to wait.
func (r *rates) take(h huma.Context, account string, now time.Time) error {
	if r.limit <= 0 {
		return nil
	}
	r.mu.Lock()
	l := r.of[account]
	if l == nil {
		for name, other := range r.of {
			if len(r.of) < maxLimiters {
				break
			}
			if other.TokensAt(now) >= float64(r.burst) {
				delete(r.of, name)
			}
		}
		l = rate.NewLimiter(r.limit, r.burst)
		if len(r.of) < maxLimiters {
			r.of[account] = l
		}
	}
	r.mu.Unlock()
	ok := l.AllowN(now, 1)
	left := max(0, l.TokensAt(now))
	h.SetHeader("RateLimit-Policy", r.policy)
	h.SetHeader("RateLimit", fmt.Sprintf(`"burst";r=%d;t=%d`, int(left), int(math.Ceil((float64(r.burst)-left)/float64(r.limit)))))
	if ok {
		return nil
	}
	return &fault.Error{
		Code: fault.RequestRateExceeded, Msg: fmt.Sprintf("account %s may send %g requests a second, and %d at once", account, float64(r.limit), r.burst),
		RetryAfterMS: int64(math.Ceil((1 - left) / float64(r.limit) * 1000)),
	}
}
