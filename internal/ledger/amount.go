// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"math"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/fault"
)

// An Amount is an amount of credits, in millionths. Prices and what runs use are
// amounts; what an account grants, holds and spends are whole credits. Sums end at the
// largest amount, about nine million million credits, and do not overflow.
type Amount int64

// Credit is one credit.
const Credit Amount = 1_000_000

// Whole returns n credits.
func Whole(n int64) Amount {
	switch {
	case n > math.MaxInt64/int64(Credit):
		return math.MaxInt64
	case n < math.MinInt64/int64(Credit):
		return math.MinInt64
	}
	return Amount(n) * Credit
}

// ParseAmount reads an amount from decimal text such as "3", "0.25" or "0.000001": at
// most twelve digits, and six more after a point. It is not negative.
func ParseAmount(text string) (Amount, error) {
	whole, fraction, point := strings.Cut(text, ".")
	if !digits(whole, 12) || point && !digits(fraction, 6) {
		return 0, fault.New(fault.InputInvalid, "%.40q is not an amount of credits: want digits, and at most six more after a point", text)
	}
	n, err := strconv.ParseInt(whole+fraction+strings.Repeat("0", 6-len(fraction)), 10, 64)
	return Amount(n), err
}

func digits(s string, most int) bool {
	return s != "" && len(s) <= most && strings.Trim(s, "0123456789") == ""
}

// Plus is the sum of two amounts.
func (a Amount) Plus(b Amount) Amount {
	switch {
	case a > 0 && b > math.MaxInt64-a:
		return math.MaxInt64
	case a < 0 && b < math.MinInt64-a:
		return math.MinInt64
	}
	return a + b
}

// Credits words a number of whole credits, such as "1 credit".
func Credits(n int64) string {
	if n == 1 {
		return "1 credit"
	}
	return strconv.FormatInt(n, 10) + " credits"
}

// Ceil rounds up to whole credits.
func (a Amount) Ceil() int64 {
	whole := int64(a / Credit)
	if a%Credit > 0 {
		whole++
	}
	return whole
}

// String returns the shortest decimal text, such as "0.0025".
func (a Amount) String() string {
	if a%Credit == 0 {
		return strconv.FormatInt(int64(a/Credit), 10)
	}
	sign, n := "", uint64(a)
	if a < 0 {
		sign, n = "-", -n
	}
	fraction := strconv.FormatUint(uint64(Credit)+n%uint64(Credit), 10)[1:]
	return sign + strconv.FormatUint(n/uint64(Credit), 10) + "." + strings.TrimRight(fraction, "0")
}

// MarshalJSON returns the amount as a JSON number.
func (a Amount) MarshalJSON() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalJSON reads what [Amount.MarshalJSON] returns.
func (a *Amount) UnmarshalJSON(data []byte) error {
	text, negative := strings.CutPrefix(string(data), "-")
	n, err := ParseAmount(text)
	if negative {
		n = -n
	}
	*a = n
	return err
}
