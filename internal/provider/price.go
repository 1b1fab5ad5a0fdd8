// SPDX-License-Identifier: Apache-2.0

package provider

import (
	"math"
	"math/bits"

	"github.com/roux-engine/roux/internal/ledger"
)

// million is how many tokens a price is for.
const million = 1_000_000

// A price is that of a model: credits for a million tokens, and for a job.
type price struct{ input, cached, output, job ledger.Amount }

// free reports whether nothing costs anything.
func (p price) free() bool { return p == price{} }

// of is what a usage costs. Fractions of a millionth are exact in the sum, which is rounded up
// once. It ends at the largest amount.
func (p price) of(u Usage) ledger.Amount {
	var hi, lo uint64
	for _, part := range []struct {
		tokens int64
		price  ledger.Amount
	}{{u.Input, p.input}, {u.Cached, p.cached}, {u.Output, p.output}, {million, p.job}} {
		h, l := bits.Mul64(uint64(max(part.tokens, 0)), uint64(max(part.price, 0)))
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
