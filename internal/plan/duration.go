// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// A quantity of a duration has up to nine digits, so that no sum can overflow, and up to
// three decimals, so that every duration is a whole number of milliseconds. Days and weeks
// have fewer digits and no decimals, so that everything [FormatISO] writes can be parsed.
const (
	whole    = `[0-9]{1,9}`
	quantity = whole + `(\.[0-9]{1,3})?`
	maxDays  = 99_999_999
)

// Durations have Go's syntax ("42m30s", "1.5h", "250ms") or that of ISO 8601 ("PT5M",
// "P1DT2H", "P2W"), with units in descending order, each at most once. The schema of the
// format publishes these patterns, so they accept exactly what [ParseDuration] accepts.
// They list every unit that can come first, because Go's regexp has no lookahead.
const (
	goPattern = quantity + `h(` + quantity + `m)?(` + quantity + `s)?(` + whole + `ms)?` +
		`|` + quantity + `m(` + quantity + `s)?(` + whole + `ms)?` +
		`|` + quantity + `s(` + whole + `ms)?` +
		`|` + whole + `ms`
	isoTime = `T(` + quantity + `H(` + quantity + `M)?(` + quantity + `S)?` +
		`|` + quantity + `M(` + quantity + `S)?` +
		`|` + quantity + `S)`
	isoTimeAfterDays = `T(` + whole + `H(` + whole + `M)?(` + quantity + `S)?` +
		`|` + whole + `M(` + quantity + `S)?` +
		`|` + quantity + `S)`
	isoPattern = `P([0-9]{1,7}W|[0-9]{1,8}D(` + isoTimeAfterDays + `)?|` + isoTime + `)`

	// DurationPattern matches what [ParseDuration] accepts, as a pattern of JSON Schema.
	DurationPattern = `^(` + goPattern + `|` + isoPattern + `)$`
)

var (
	durationGrammar  = regexp.MustCompile(DurationPattern)
	durationQuantity = regexp.MustCompile(`([0-9]+)(?:\.([0-9]+))?([a-zA-Z]+)`)
	bareNumber       = regexp.MustCompile(`^[+-]?[0-9.]+$`)
	calendar         = regexp.MustCompile(`^P[0-9.]+[YM]`)
	tooFine          = regexp.MustCompile(`[0-9](ns|us|µs|μs)$|\.[0-9]{4,}|\.[0-9]+ms$`)
	tooLong          = regexp.MustCompile(`[0-9]{10,}|[0-9]{9,}D|[0-9]{8,}W`)
)

// unitMS is the length of each unit in milliseconds. A day is always 24 hours; months
// and years have no fixed length and are not units.
var unitMS = map[string]int64{
	"ms": 1,
	"s":  1000, "m": 60_000, "h": 3_600_000,
	"S": 1000, "M": 60_000, "H": 3_600_000, "D": 86_400_000, "W": 604_800_000,
}

// ParseDuration returns the milliseconds of a duration in the syntax of definitions and
// flags (F47): Go's syntax without units below a millisecond, or ISO 8601 without months
// and years. Negative durations, numbers without a unit and more than nine digits are
// errors. There is no other upper limit, such as 2^31 ms.
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
		n, _ := strconv.ParseInt(q[1], 10, 64) // the pattern bounds the number of digits
		ms += n * unit
		if q[2] != "" {
			thousandths, _ := strconv.ParseInt((q[2] + "00")[:3], 10, 64)
			ms += thousandths * unit / 1000
		}
	}
	return ms, nil
}

// whyNoDuration explains why text is not a duration.
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
		return "a duration has at most nine digits per unit, eight for days and seven for weeks"
	case strings.HasPrefix(text, "P") && strings.Contains(text, "."):
		return "only seconds take decimals beside days, and weeks take none"
	case tooFine.MatchString(text):
		return "durations are whole milliseconds, with at most three decimals per unit"
	case strings.HasSuffix(text, "d") && durationGrammar.MatchString("P"+strings.ToUpper(text)):
		return fmt.Sprintf("write days as %q", "P"+strings.ToUpper(text))
	default:
		return want
	}
}

// FormatISO formats milliseconds as an ISO 8601 duration, as in the API. [ParseDuration]
// parses the result for every duration that ParseDuration can return.
func FormatISO(ms int64) string {
	rest := max(ms, 0)
	// take returns how often the unit fits, at most as often as can be parsed.
	take := func(unit string, most int64) int64 {
		n := min(rest/unitMS[unit], most)
		rest -= n * unitMS[unit]
		return n
	}
	var date, clock string
	if n := take("D", maxDays); n > 0 {
		date = fmt.Sprintf("%dD", n)
	}
	if n := take("H", 999_999_999); n > 0 {
		clock = fmt.Sprintf("%dH", n)
	}
	if n := take("M", 999_999_999); n > 0 {
		clock += fmt.Sprintf("%dM", n)
	}
	if rest%1000 > 0 {
		clock += strings.TrimRight(fmt.Sprintf("%d.%03d", rest/1000, rest%1000), "0") + "S"
	} else if rest > 0 || date+clock == "" {
		clock += fmt.Sprintf("%dS", rest/1000)
	}
	if clock != "" {
		clock = "T" + clock
	}
	return "P" + date + clock
}

// FormatMS formats milliseconds for people: 1h30m, 250ms.
func FormatMS(ms int64) string {
	text := ""
	for _, u := range []struct {
		ms   int64
		name string
	}{{3_600_000, "h"}, {60_000, "m"}, {1000, "s"}, {1, "ms"}} {
		if n := ms / u.ms; n > 0 {
			text += fmt.Sprintf("%d%s", n, u.name)
			ms %= u.ms
		}
	}
	return cmp.Or(text, "0s")
}

func shorten(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:57]) + "..."
	}
	return s
}
