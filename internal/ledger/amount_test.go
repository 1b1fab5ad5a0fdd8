// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"encoding/json"
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"github.com/roux-engine/roux/fault"
)

func TestAmounts(t *testing.T) {
	for text, want := range map[string]Amount{
		"0": 0, "3": 3 * Credit, "0.25": 250_000, "0.000001": 1, "12.5": 12_500_000, "007": 7 * Credit, "1.100000": 1_100_000,
		"999999999999.999999": 999_999_999_999_999_999,
	} {
		if got, err := ParseAmount(text); err != nil || got != want {
			t.Errorf("%q is %d, %v; want %d", text, got, err, want)
		}
	}
	for _, text := range []string{"", ".", "1.", ".5", "-1", "+1", "1e3", " 1", "1 ", "0.0000001", "1234567890123", "1.2.3", "NaN", "Inf", "٣", "1_000", "0x1"} {
		if got, err := ParseAmount(text); !errors.Is(err, fault.InputInvalid) {
			t.Errorf("%q is %d, %v", text, got, err)
		}
	}
	for a, want := range map[Amount]string{0: "0", Credit: "1", 2_500: "0.0025", -2_500: "-0.0025", -3 * Credit: "-3", 61_300_000: "61.3",
		math.MaxInt64: "9223372036854.775807", math.MinInt64: "-9223372036854.775808"} {
		if got := a.String(); got != want {
			t.Errorf("%d is %s, want %s", int64(a), got, want)
		}
	}
	for a, want := range map[Amount]int64{0: 0, 1: 1, Credit: 1, Credit + 1: 2, -1: 0, -Credit: -1, 61_300_000: 62, math.MaxInt64: 9_223_372_036_855} {
		if got := a.Ceil(); got != want {
			t.Errorf("%s rounds up to %d, want %d", a, got, want)
		}
	}
	if Whole(math.MaxInt64) != math.MaxInt64 || Whole(math.MinInt64) != math.MinInt64 || Whole(-2) != -2*Credit ||
		Amount(math.MaxInt64).Plus(1) != math.MaxInt64 || Amount(math.MinInt64).Plus(-1) != math.MinInt64 || Credit.Plus(-1) != 999_999 {
		t.Error("a sum has overflowed")
	}
}

// An amount that was written is read as the same one.
func TestAmountsRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		a := Amount(rapid.Int64Range(-999_999_999_999_999_999, 999_999_999_999_999_999).Draw(rt, "amount"))
		data, err := json.Marshal(a)
		if err != nil {
			rt.Fatal(err)
		}
		var b Amount
		if err := json.Unmarshal(data, &b); err != nil || a != b {
			rt.Fatalf("%d is written as %s and read as %d, %v", int64(a), data, int64(b), err)
		}
	})
}
