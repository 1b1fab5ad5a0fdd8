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
	own   func(account string) (perSecond float64, burst int) // nil = no account has its own
	mu    *sync.Mutex
	of    map[string]*rate.Limiter
}

// maxLimiters bounds the accounts in memory. A full bucket is the same as none.
const maxLimiters = 10_000

func newRates(perSecond float64, burst int, own func(account string) (float64, int)) rates {
	return rates{limit: rate.Limit(perSecond), burst: burst, own: own, mu: new(sync.Mutex), of: map[string]*rate.Limiter{}}
}

// limitOf returns the rate and the burst of an account; a rate that is not positive is no
// limit.
func (r *rates) limitOf(account string) (rate.Limit, int) {
	limit, burst := r.limit, r.burst
	if r.own != nil {
		perSecond, many := r.own(account)
		if perSecond > 0 {
			limit = rate.Limit(perSecond)
			burst = max(1, int(math.Ceil(2*perSecond)))
		}
		if many > 0 {
			burst = many
		}
	}
	return limit, burst
}

// take counts a request, or refuses it with the time to wait.
func (r *rates) take(h huma.Context, account string, now time.Time) error {
	limit, burst := r.limitOf(account)
	if limit <= 0 {
		return nil
	}
	r.mu.Lock()
	l := r.of[account]
	if l == nil {
		for name, other := range r.of {
			if len(r.of) < maxLimiters {
				break
			}
			if other.TokensAt(now) >= float64(other.Burst()) {
				delete(r.of, name)
			}
		}
		l = rate.NewLimiter(limit, burst)
		if len(r.of) < maxLimiters {
			r.of[account] = l
		}
	}
	if l.Limit() != limit || l.Burst() != burst { // the operator has changed them
		l.SetLimitAt(now, limit)
		l.SetBurstAt(now, burst)
	}
	r.mu.Unlock()
	ok := l.AllowN(now, 1)
	left := min(max(0, l.TokensAt(now)), float64(burst))
	// An empty bucket takes so many seconds to fill.
	window := max(1, int(math.Ceil(float64(burst)/float64(limit))))
	h.SetHeader("RateLimit-Policy", fmt.Sprintf(`"burst";q=%d;w=%d`, burst, window))
	h.SetHeader("RateLimit", fmt.Sprintf(`"burst";r=%d;t=%d`, int(left), int(math.Ceil((float64(burst)-left)/float64(limit)))))
	if ok {
		return nil
	}
	wait := time.Duration(math.Ceil((1-left)/float64(limit)*1000)) * time.Millisecond
	return &fault.Error{
		Code: fault.RequestRateExceeded, Msg: fmt.Sprintf("account %s may send %g requests a second, and %d at once", account, float64(limit), burst),
		RetryAfterMS: wait.Milliseconds(), Quota: &fault.Quota{Name: "requests", Used: int64(burst) - int64(left), Limit: int64(burst), Reset: now.Add(wait)},
	}
}

// Rate returns how many requests an account may send in a second, and how many at once; 0 = any
// number.
func (rt *Router) Rate(account string) (perSecond float64, burst int) {
	limit, burst := rt.rates.limitOf(account)
	if limit <= 0 {
		return 0, 0
	}
	return float64(limit), burst
}
