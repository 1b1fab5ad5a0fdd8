// SPDX-License-Identifier: Apache-2.0

package expr

import "math/big"

// A Total adds up integers, without rounding or overflow, and doubles. The zero value is
// an empty total.
type Total struct {
	ints    big.Int
	doubles float64
	double  bool    // a double was among them
	one     big.Int // the number that is being added
}

// AddInt adds an integer.
func (t *Total) AddInt(n int64) { t.ints.Add(&t.ints, t.one.SetInt64(n)) }

// AddUint adds an unsigned integer.
func (t *Total) AddUint(n uint64) { t.ints.Add(&t.ints, t.one.SetUint64(n)) }

// AddDouble adds a double. The total is a double from then on.
func (t *Total) AddDouble(f float64) { t.doubles, t.double = t.doubles+f, true }

// Sum returns an int64, or a float64 when one of the numbers was a double; ok is false for
// integers whose sum does not fit 64 bits.
func (t *Total) Sum() (sum any, ok bool) {
	if t.double {
		f, _ := new(big.Float).SetInt(&t.ints).Float64()
		return f + t.doubles, true
	}
	return t.ints.Int64(), t.ints.IsInt64()
}

// Mean returns the sum divided by n, which must not be 0. For integers it is correctly
// rounded.
func (t *Total) Mean(n int64) float64 {
	if t.double {
		sum, _ := t.Sum()
		return sum.(float64) / float64(n)
	}
	f, _ := new(big.Rat).SetFrac(&t.ints, big.NewInt(n)).Float64()
	return f
}

// String returns the sum of the integers in decimal.
func (t *Total) String() string { return t.ints.String() }
