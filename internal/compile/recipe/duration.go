// SPDX-License-Identifier: Apache-2.0

package recipe

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A quantity of a duration: up to nine digits, so that no sum can overflow, and
// up to three decimals, so that every duration is a whole number of milliseconds
// and means the same wherever it is read.
const quantity = `[0-9]{1,9}(\.[0-9]{1,3})?`

// Durations are written as Go writes them ("42m30s", "1.5h", "250ms") or in ISO
// 8601 ("PT5M", "P1DT2H", "P2W"), units in falling order, each once. The schema
// of the format publishes these patterns, so what they accept is exactly what
// [ParseDuration] accepts. Go's regexp has no lookahead, hence the list of every
// unit that can come first.
const (
	goPattern = `(` + quantity + `h)(` + quantity + `m)?(` + quantity + `s)?([0-9]{1,9}ms)?` +
		`|(` + quantity + `m)(` + quantity + `s)?([0-9]{1,9}ms)?` +
		`|(` + quantity + `s)([0-9]{1,9}ms)?` +
		`|([0-9]{1,9}ms)`
	isoTime = `T(` + `(` + quantity + `H)(` + quantity + `M)?(` + quantity + `S)?` +
		`|(` + quantity + `M)(` + quantity + `S)?` +
		`|(` + quantity + `S))`
	isoPattern = `P((` + quantity + `W)|(` + quantity + `D)(` + isoTime + `)?|` + isoTime + `)`

	durationPattern = `^(` + goPattern + `|` + isoPattern + `)$`
)

var (
	durationGrammar  = regexp.MustCompile(durationPattern)
	durationQuantity = regexp.MustCompile(`([0-9]+)(?:\.([0-9]+))?([a-zA-Z]+)`)
	bareNumber       = regexp.MustCompile(`^[+-]?[0-9.]+$`)
	calendar         = regexp.MustCompile(`^P[0-9.]+[YM]`)
	tooFine          = regexp.MustCompile(`[0-9](ns|us|µs|μs)$|\.[0-9]{4,}|\.[0-9]+ms$`)
	tooLong          = regexp.MustCompile(`[0-9]{10,}`)
)

// unitMS is the length of each unit. A day is 24 hours, whatever the clock on
// the wall does, and a month or a year has no length at all.
var unitMS = map[string]int64{
	"ms": 1,
	"s":  1000, "m": 60_000, "h": 3_600_000,
	"S": 1000, "M": 60_000, "H": 3_600_000, "D": 86_400_000, "W": 604_800_000,
}

// ParseDuration returns the milliseconds of a duration as every definition and
// flag writes it (F47): Go's form without units below a millisecond, or ISO 8601
// without months and years. Negative durations, bare numbers and more than nine
// digits are refused. There is no upper limit beside that: 24.8 days (2^31 ms)
// mean nothing here.
func ParseDuration(text string) (ms int64, err error) {
	if !durationGrammar.MatchString(text) {
		return 0, fmt.Errorf("%s: %s", strconv.Quote(shorten(text)), whyNoDuration(text))
	}
	quantities := text
	if strings.HasPrefix(text, "P") {
		quantities = strings.NewReplacer("P", "", "T", "").Replace(text)
	}
	for _, q := range durationQuantity.FindAllStringSubmatch(quantities, -1) {
		unit := unitMS[q[3]]
		whole, _ := strconv.ParseInt(q[1], 10, 64) // the grammar bounds it
		ms += whole * unit
		if q[2] != "" {
			thousandths, _ := strconv.ParseInt((q[2] + "00")[:3], 10, 64)
			ms += thousandths * unit / 1000
		}
	}
	return ms, nil
}

// whyNoDuration says what is wrong with text and what would be right.
func whyNoDuration(text string) string {
	const want = `want a duration such as "30s", "1h30m" or "PT5M"`
	switch {
	case text == "":
		return "the duration is empty; " + want
	case bareNumber.MatchString(text):
		return `a duration needs a unit, such as "30s" or "5m"`
	case strings.Contains(text, "-"):
		return "a duration cannot be negative; " + want
	case calendar.MatchString(text):
		return `years and months have no fixed length; use days, such as "P30D"`
	case tooLong.MatchString(text):
		return "a duration has at most nine digits per unit"
	case tooFine.MatchString(text):
		return "durations are whole milliseconds, with at most three decimals per unit"
	case strings.HasSuffix(text, "d") && durationGrammar.MatchString("P"+strings.ToUpper(text)):
		return fmt.Sprintf("write days as %q", "P"+strings.ToUpper(text))
	default:
		return want
	}
}

// FormatISO writes milliseconds as an ISO 8601 duration, as the API does; the
// inverse of [ParseDuration] for every value that it returns.
func FormatISO(ms int64) string {
	if ms < 0 {
		ms = 0
	}
	var b strings.Builder
	b.WriteByte('P')
	if days := ms / unitMS["D"]; days > 0 {
		fmt.Fprintf(&b, "%dD", days)
	}
	rest := ms % unitMS["D"]
	if rest > 0 || ms == 0 {
		b.WriteByte('T')
	}
	if h := rest / unitMS["H"]; h > 0 {
		fmt.Fprintf(&b, "%dH", h)
	}
	if m := rest % unitMS["H"] / unitMS["M"]; m > 0 {
		fmt.Fprintf(&b, "%dM", m)
	}
	if s := rest % unitMS["M"]; s%1000 > 0 {
		fmt.Fprintf(&b, "%sS", strings.TrimRight(fmt.Sprintf("%d.%03d", s/1000, s%1000), "0"))
	} else if s > 0 || ms == 0 {
		fmt.Fprintf(&b, "%dS", s/1000)
	}
	return b.String()
}

func shorten(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:57]) + "..."
	}
	return s
}
