// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"strings"
	"time"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"github.com/gofrs/uuid/v5"
	"github.com/ncruces/go-strftime"
)

// maxLayout bounds the layout of a time, in bytes.
const maxLayout = 256

// formatTime formats a time by a strftime layout, in UTC.
func formatTime(t types.Timestamp, layout ref.Val) ref.Val {
	l, ok := layout.(types.String)
	if !ok {
		return noOverload()
	}
	if len(l) > maxLayout {
		return types.NewErr("format: the layout is longer than %d bytes", maxLayout)
	}
	if strings.HasSuffix(strings.ReplaceAll(string(l), "%%", ""), "%") {
		return types.NewErr("format: the layout %q ends with %%", string(l))
	}
	return types.String(strftime.Format(string(l), t.UTC()))
}

// dateLayouts are the layouts that date(text) accepts.
var dateLayouts = []string{time.DateOnly, time.RFC3339Nano}

func runDate(a []ref.Val) ref.Val {
	s, ok := texts(a)
	if !ok {
		return noOverload()
	}
	if len(s) == 1 {
		for _, layout := range dateLayouts {
			if t, err := time.Parse(layout, s[0]); err == nil {
				return instant("date", t)
			}
		}
		return types.NewErr("date: %s is no date: want one like 2026-01-31, or a layout as second argument", quoteSource(s[0]))
	}
	if len(s[1]) > maxLayout {
		return types.NewErr("date: the layout is longer than %d bytes", maxLayout)
	}
	t, err := strftime.Parse(s[1], s[0])
	if err != nil {
		return types.NewErr("date: %s does not fit the layout %s", quoteSource(s[0]), quoteSource(s[1]))
	}
	return instant("date", t)
}

// instant returns a timestamp, or an error if its year is outside CEL's range.
func instant(function string, t time.Time) ref.Val {
	t = t.UTC()
	if t.Year() < 1 || t.Year() > 9999 {
		return types.NewErr("%s: the year %d is not between 1 and 9999", function, t.Year())
	}
	return types.Timestamp{Time: t}
}

// runAddDate adds years, months and days. If the month does not have the day, the result
// is the last day of the month.
func runAddDate(a []ref.Val) ref.Val {
	t, ok := a[0].(types.Timestamp)
	var n [3]int
	for i := range n {
		x, isInt := a[1+i].(types.Int)
		if ok = ok && isInt; !ok {
			return noOverload()
		}
		if x < -4_000_000 || x > 4_000_000 {
			return types.NewErr("addDate: %d is too many", int64(x))
		}
		n[i] = int(x)
	}
	u := t.UTC()
	first := time.Date(u.Year()+n[0], u.Month()+time.Month(n[1]), 1, u.Hour(), u.Minute(), u.Second(), u.Nanosecond(), time.UTC)
	last := first.AddDate(0, 1, -1).Day()
	return instant("addDate", first.AddDate(0, 0, min(u.Day(), last)-1+n[2]))
}

// runStartOf returns the beginning of the minute, hour, day, week (from Monday, as in ISO
// 8601), month or year of a time.
func runStartOf(a []ref.Val) ref.Val {
	t, ok := a[0].(types.Timestamp)
	unit, ok2 := a[1].(types.String)
	if !ok || !ok2 {
		return noOverload()
	}
	u := t.UTC()
	y, m, d := u.Date()
	switch unit {
	case "minute":
		u = u.Truncate(time.Minute)
	case "hour":
		u = u.Truncate(time.Hour)
	case "day":
		u = time.Date(y, m, d, 0, 0, 0, 0, time.UTC)
	case "week":
		u = time.Date(y, m, d-(int(u.Weekday())+6)%7, 0, 0, 0, 0, time.UTC)
	case "month":
		u = time.Date(y, m, 1, 0, 0, 0, 0, time.UTC)
	case "year":
		u = time.Date(y, 1, 1, 0, 0, 0, 0, time.UTC)
	default:
		return types.NewErr("startOf: %s is no unit: want minute, hour, day, week, month or year", quoteSource(string(unit)))
	}
	return instant("startOf", u)
}

// uuidNamespace is the namespace of the ids of uuid() (RFC 9562, version 5).
var uuidNamespace = uuid.NewV5(uuid.NamespaceURL, "https://roux.dev/uuid")

// runUUID derives an id from the step and an optional text.
func runUUID(a []ref.Val) ref.Val {
	s, ok := texts(a)
	if !ok {
		return noOverload()
	}
	step := uuid.NewV5(uuidNamespace, s[0])
	if len(s) == 1 {
		return types.String(step.String())
	}
	return types.String(uuid.NewV5(step, s[1]).String())
}
