// SPDX-License-Identifier: Apache-2.0

package recipe

import (
	"math"
	"math/big"
	"strings"
	"testing"
	"time"

	"github.com/roux-engine/roux/internal/plan"
	"pgregory.net/rapid"
)

// TestF47_ParseDuration is the table of what a duration means (F47, X114).
func TestF47_ParseDuration(t *testing.T) {
	for _, tt := range []struct {
		text string
		want int64
	}{
		{"5m", 300_000},
		{"42m30s", 2_550_000},
		{"1.5h", 5_400_000},
		{"1h30m", 5_400_000},
		{"100ms", 100},
		{"1h0m0.5s", 3_600_500},
		{"0s", 0},
		{"0.001s", 1},
		{"0.001h", 3600},
		{"2147483648ms", -1},    // ten digits
		{"600h", 2_160_000_000}, // 25 days, more than 2^31 ms
		{"999999999h", 3_599_999_996_400_000},
		{"PT5M", 300_000},
		{"PT2M30S", 150_000},
		{"PT1.5S", 1500},
		{"PT0.5H", 1_800_000},
		{"P1D", 86_400_000}, // 24 hours, also where clocks change
		{"P1DT2H", 93_600_000},
		{"P25D", 2_160_000_000},
		{"P2W", 1_209_600_000},
		{"P9999999W", 6_047_999_395_200_000},
		{"P99999999W", -1},
		{"P99999999DT999999999H999999999M999999999.999S", 12_300_999_909_939_999},
	} {
		got, err := ParseDuration(tt.text)
		if tt.want < 0 {
			if err == nil {
				t.Errorf("ParseDuration(%q) = %d, want an error", tt.text, got)
			}
			continue
		}
		if err != nil || got != tt.want {
			t.Errorf("ParseDuration(%q) = %d, %v, want %d", tt.text, got, err, tt.want)
		}
	}
}

// TestF47_RefusedDurations: each error explains why.
func TestF47_RefusedDurations(t *testing.T) {
	for _, tt := range []struct{ text, why string }{
		{"", "empty"},
		{"5", "needs a unit"},
		{"1.5", "needs a unit"},
		{"0", "needs a unit"},
		{"-5m", "negative"},
		{"-PT5M", "negative"},
		{"PT-5M", "negative"},
		{"P1Y", "no fixed length"},
		{"P1M", "no fixed length"},
		{"P1Y2M", "no fixed length"},
		{"9223372036854775807h", "nine digits"},
		{"100us", "whole milliseconds"},
		{"1ns", "whole milliseconds"},
		{"0.5ms", "whole milliseconds"},
		{"0.0001s", "whole milliseconds"},
		{"7d", `"P7D"`},
		{"5mm", "want a duration"},
		{"5M", "want a duration"},
		{"pt5m", "want a duration"},
		{"P", "want a duration"},
		{"PT", "want a duration"},
		{"P1DT", "want a duration"},
		{"P1W2D", "want a duration"},
		{"P0.5D", "only seconds"},
		{"P1DT0.5H", "only seconds"},
		{"P100000000D", "eight for days"},
		{"1m1h", "want a duration"},
		{"1h1h", "want a duration"},
		{" 5m", "want a duration"},
		{"5m ", "want a duration"},
		{"5m\n", "want a duration"},
		{".5h", "want a duration"},
		{"5.h", "want a duration"},
		{"+5m", "want a duration"},
		{"5 minutes", "want a duration"},
		{"∞", "want a duration"},
		{"٥m", "want a duration"}, // digits of another script
		{"1e3s", "want a duration"},
		{strings.Repeat("1h", 1<<16), "want a duration"},
	} {
		got, err := ParseDuration(tt.text)
		if err == nil {
			t.Errorf("ParseDuration(%.20q) = %d, want an error", tt.text, got)
		} else if !strings.Contains(err.Error(), tt.why) || len(err.Error()) > 400 {
			t.Errorf("ParseDuration(%.20q): %.400q does not say %q", tt.text, err, tt.why)
		}
	}
}

// TestF47_RoundTrip: every formatted duration parses to the same value.
func TestF47_RoundTrip(t *testing.T) {
	const most = 99_999_999*86_400_000 + 86_399_999
	rapid.Check(t, func(t *rapid.T) {
		ms := rapid.OneOf(rapid.Int64Range(0, most), rapid.Int64Range(0, 100_000), rapid.Int64Range(1<<31-2, 1<<31+2)).Draw(t, "ms")
		if got, err := ParseDuration(plan.FormatISO(ms)); err != nil || got != ms {
			t.Fatalf("ParseDuration(FormatISO(%d) = %q) = %d, %v", ms, plan.FormatISO(ms), got, err)
		}
		// Go's own format of whole milliseconds parses to the same value too.
		if d := time.Duration(ms); ms < math.MaxInt64/1_000_000 {
			d *= time.Millisecond
			if got, err := ParseDuration(d.String()); err != nil || got != ms {
				t.Fatalf("ParseDuration(%q) = %d, %v, want %d", d, got, err, ms)
			}
		}
	})
}

// FuzzParseDuration compares with Go's parser where both apply, and with exact
// arithmetic over the quantities everywhere (F47).
func FuzzParseDuration(f *testing.F) {
	for _, s := range []string{"5m", "42m30s", "1.5h", "P1DT2H", "PT0.5S", "P1Y", "-5m", "9223372036854775807h", "1h0m0.5s", "P2W", "999999999h999999999m999999999s", "P99999999DT999999999H999999999M999999999.999S", "P9999999W", "PT999999999.999H999999999.999M999999999.999S"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		ms, err := ParseDuration(text)
		if err != nil {
			return
		}
		if ms < 0 {
			t.Fatalf("ParseDuration(%q) = %d: negative", text, ms)
		}
		if want, err := time.ParseDuration(text); err == nil && want != time.Duration(ms)*time.Millisecond {
			t.Fatalf("ParseDuration(%q) = %d ms, Go says %v", text, ms, want)
		}
		if want := exactMS(text); new(big.Rat).SetInt64(ms).Cmp(want) != 0 {
			t.Fatalf("ParseDuration(%q) = %d ms, exact %v", text, ms, want)
		}
		if again, err := ParseDuration(plan.FormatISO(ms)); err != nil || again != ms {
			t.Fatalf("%q: FormatISO(%d) = %q reads back as %d, %v", text, ms, plan.FormatISO(ms), again, err)
		}
	})
}

// exactMS sums the quantities of a well-formed duration without rounding.
func exactMS(text string) *big.Rat {
	sum, number := new(big.Rat), ""
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c >= '0' && c <= '9' || c == '.':
			number += string(c)
			continue
		case number == "":
			continue // P and T
		}
		unit := map[byte]int64{'h': 3_600_000, 'H': 3_600_000, 'm': 60_000, 'M': 60_000, 's': 1000, 'S': 1000, 'D': 86_400_000, 'W': 604_800_000}[c]
		if c == 'm' && i+1 < len(text) && text[i+1] == 's' {
			unit = 1
			i++
		}
		q, _ := new(big.Rat).SetString(number)
		sum.Add(sum, q.Mul(q, new(big.Rat).SetInt64(unit)))
		number = ""
	}
	return sum
}
