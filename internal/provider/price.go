// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"math"
	"math/bits"

	"github.com/roux-engine/roux/internal/ledger"
)

// million is how many tokens a price is for.
const million = 1_000_000

// A price is that of a model: credits for a million tokens, for a job, and for a second of one.
type price struct{ input, cached, output, job, second ledger.Amount }

// free reports whether nothing costs anything.
func (p price) free() bool { return p == price{} }

// of is what a usage costs.
func (p price) of(u Usage) ledger.Amount { return p.ofJob(u, 0) }

// ofJob is what a usage costs with a time, in millionths of a second. Fractions of a millionth are
// exact in the sum, which is rounded up once. It ends at the largest amount.
func (p price) ofJob(u Usage, micros int64) ledger.Amount {
	var hi, lo uint64
	for _, part := range []struct {
		count int64 // of which a million has the price
		price ledger.Amount
	}{{u.Input, p.input}, {u.Cached, p.cached}, {u.Output, p.output}, {million, p.job}, {micros, p.second}} {
		h, l := bits.Mul64(uint64(max(part.count, 0)), uint64(max(part.price, 0)))
		var carry uint64
		lo, carry = bits.Add64(lo, l, 0)
		hi, _ = bits.Add64(hi, h, carry)
	}
	var carry uint64
	lo, carry = bits.Add64(lo, million-1, 0)
	hi += carry
	if hi >= million {
		return math.MaxInt64
	}
	q, _ := bits.Div64(hi, lo, million)
	return ledger.Amount(min(q, math.MaxInt64))
}
