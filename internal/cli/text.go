// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"charm.land/lipgloss/v2"

	"github.com/roux-engine/roux/internal/jsonx"
)

// clean makes text from recipes, files and services safe for a terminal (A31):
// control characters and bidirectional overrides, which could repaint the
// screen or reorder what is read, become visible escapes. Line breaks stay.
func clean(s string) string {
	if !strings.ContainsFunc(s, dangerous) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && strings.HasPrefix(s[i:], "\uFFFD"):
			b.WriteRune(r)
		case r == utf8.RuneError:
			fmt.Fprintf(&b, "\\x%02x", s[i])
		case dangerous(r) && r < 0x100:
			fmt.Fprintf(&b, "\\x%02x", r)
		case dangerous(r):
			fmt.Fprintf(&b, "\\u%04x", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func dangerous(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\t' ||
		r >= 0x202A && r <= 0x202E || r >= 0x2066 && r <= 0x2069 || r == 0x200E || r == 0x200F || r == 0x061C
}

// oneLine is clean for a place that has one line.
func oneLine(s string) string {
	return clean(strings.Join(strings.Fields(s), " "))
}

// cut shortens s to n characters.
func cut(s string, n int) string {
	if n <= 0 || utf8.RuneCountInString(s) <= n {
		return s
	}
	r := []rune(s)
	return string(r[:n-1]) + "…"
}

// took is a duration as people read it.
func took(d time.Duration) string {
	switch {
	case d < 0:
		return "0 ms"
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1f s", d.Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%d m %02d s", int(d.Minutes()), int(d.Seconds())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h %02d m", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%d d %d h", int(d.Hours())/24, int(d.Hours())%24)
}

// count is "1 step" or "3 steps".
func count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + one + "s"
}

// utc is a moment of the journal (UTC µs) as a time.
func utc(micros int64) time.Time { return time.UnixMicro(micros).UTC() }

// stamp is a moment in the one form of JSON and tables: RFC 3339, UTC, ms.
func stamp(micros int64) string { return utc(micros).Format("2006-01-02T15:04:05.000Z") }

// ago is how long ago a moment was.
func ago(now time.Time, micros int64) string {
	d := now.Sub(utc(micros))
	switch {
	case d < time.Second:
		return "now"
	case d < time.Minute:
		return fmt.Sprintf("%d s ago", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%d m ago", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h ago", int(d.Hours()))
	}
	return fmt.Sprintf("%d d ago", int(d.Hours())/24)
}

// brief sums a JSON value up in a few words for a progress line.
func brief(raw []byte) string {
	v, err := jsonx.Decode(raw, jsonx.Limits{Large: true})
	if err != nil {
		return ""
	}
	return oneLine(cut(briefValue(v, true), 64))
}

func briefValue(v any, top bool) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		switch n := utf8.RuneCountInString(v); {
		case strings.HasPrefix(v, "sha256_"):
			return ""
		case n > 40:
			return count(len(strings.Fields(v)), "word")
		}
		return v
	case jsonx.Large:
		return largeText(v)
	case []any:
		return count(len(v), "item")
	case map[string]any:
		if top {
			return briefFields(v)
		}
		return ""
	}
	b, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(b)
}

// briefFields puts what says something by itself before what only has a size.
func briefFields(fields map[string]any) string {
	var plain, sized []string
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		text := briefValue(fields[name], false)
		if text == "" {
			continue
		}
		if _, list := fields[name].([]any); list {
			sized = append(sized, text+" of "+name)
		} else {
			plain = append(plain, name+" "+text)
		}
	}
	return strings.Join(append(plain, sized...), ", ")
}

// table prints rows in columns, the first row in capitals by convention.
func table(rows [][]string) string {
	width := widths(rows)
	var b strings.Builder
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			line.WriteString(cell)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", width[i]-lipgloss.Width(cell)+columnGap))
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	return b.String()
}

// columnGap is the space between two columns of a table.
const columnGap = 2

// widths are those of the columns. A row of one cell spans them all.
func widths(rows [][]string) (width []int) {
	for _, row := range rows {
		if len(row) == 1 {
			continue
		}
		for i, cell := range row {
			if i == len(width) {
				width = append(width, 0)
			}
			width[i] = max(width[i], lipgloss.Width(cell))
		}
	}
	return width
}

// table writes a table to standard output. On a terminal it fits into its columns
// by cutting those that flex lists, the first of them first; a pipe gets all.
func (a *app) table(rows [][]string, flex ...int) {
	if columns, ok := a.stdoutColumns(); ok {
		a.text("%s", fitTable(rows, columns, flex...))
		return
	}
	a.text("%s", table(rows))
}

// sheet writes a table whose last column holds sentences. On a terminal these are
// folded in their column.
func (a *app) sheet(rows [][]string) {
	indent := 0
	width := widths(rows)
	for _, w := range width[:max(len(width)-1, 0)] {
		indent += w + columnGap
	}
	if columns, ok := a.stdoutColumns(); ok && indent > columns/2 {
		indent = 2 * columnGap // or the column would be too narrow to be read
	}
	a.text("%s", a.folded(table(rows), indent))
}

// folded breaks text for standard output between words where that is a terminal.
func (a *app) folded(text string, indent int) string {
	if columns, ok := a.stdoutColumns(); ok {
		return fold(text, columns, indent)
	}
	return text
}
