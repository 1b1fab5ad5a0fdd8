// SPDX-License-Identifier: Apache-2.0

package view

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

	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/ledger"
)

// Clean makes text from recipes, files and services safe for a terminal (A31). It
// replaces control characters and bidirectional overrides, which could repaint the
// screen or reorder the text, by visible escapes. Line breaks stay.
func Clean(s string) string {
	if !strings.ContainsFunc(s, Unprintable) && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i, r := range s {
		switch {
		case r == utf8.RuneError && strings.HasPrefix(s[i:], "\uFFFD"):
			b.WriteRune(r)
		case r == utf8.RuneError:
			fmt.Fprintf(&b, "\\x%02x", s[i])
		case Unprintable(r) && r < 0x100:
			fmt.Fprintf(&b, "\\x%02x", r)
		case Unprintable(r):
			fmt.Fprintf(&b, "\\u%04x", r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

// Unprintable reports whether Clean replaces a character.
func Unprintable(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\t' ||
		r >= 0x202A && r <= 0x202E || r >= 0x2066 && r <= 0x2069 || r == 0x200E || r == 0x200F || r == 0x061C
}

// OneLine is Clean on a single line.
func OneLine(s string) string {
	return Clean(strings.Join(strings.Fields(s), " "))
}

// Cut shortens s to n characters.
func Cut(s string, n int) string {
	if n <= 0 || utf8.RuneCountInString(s) <= n {
		return s
	}
	r := []rune(s)
	return string(r[:n-1]) + "…"
}

// Took formats a duration for people.
func Took(d time.Duration) string {
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

// Count returns "1 step" or "3 steps".
func Count(n int, one string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + one + "s"
}

// CountAre returns "1 run is" or "3 runs are".
func CountAre(n int, one string) string {
	if n == 1 {
		return Count(n, one) + " is"
	}
	return Count(n, one) + " are"
}

// UTC converts a time of the journal (UTC µs).
func UTC(micros int64) time.Time { return time.UnixMicro(micros).UTC() }

// Stamp formats a time for JSON and tables: RFC 3339, UTC, ms.
func Stamp(micros int64) string { return UTC(micros).Format("2006-01-02T15:04:05.000Z") }

// Brief summarises a JSON value in a few words for a progress line.
func Brief(raw []byte) string {
	v, err := jsonx.Decode(raw, jsonx.Limits{Large: true})
	if err != nil {
		return ""
	}
	return OneLine(Cut(briefValue(v, true), 64))
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
			return Count(len(strings.Fields(v)), "word")
		}
		return v
	case jsonx.Large:
		return LargeText(v)
	case []any:
		return Count(len(v), "item")
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

// briefFields puts fields with a meaningful short value before those of which only the
// size is shown.
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

// Credits returns "3 cr" or "0.25 cr", and "" for 0.
func Credits(n ledger.Amount) string {
	if n == 0 {
		return ""
	}
	return n.String() + " cr"
}

// Join joins the parts that are not empty.
func Join(sep string, parts ...string) string {
	var some []string
	for _, p := range parts {
		if p != "" {
			some = append(some, p)
		}
	}
	return strings.Join(some, sep)
}

// LargeText describes the value behind a reference, such as "1.4 MiB text".
func LargeText(l jsonx.Large) string {
	size := fmt.Sprintf("%.1f KiB", float64(l.Bytes)/(1<<10))
	if l.Bytes >= 1<<20 {
		size = fmt.Sprintf("%.1f MiB", float64(l.Bytes)/(1<<20))
	}
	if l.List {
		return size + " list of " + strconv.FormatInt(l.Size, 10)
	}
	return size + " text"
}

// ByteUnits are the units of sizes, the smallest first. Bytes have no name and come
// last.
var ByteUnits = []struct {
	Name  string
	Bytes int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"", 1}}

// ShortBytes formats an exact size in the largest unit that divides it: "4MiB",
// "1000".
func ShortBytes(n int64) string {
	for i := len(ByteUnits) - 2; i >= 0; i-- {
		if u := ByteUnits[i]; n >= u.Bytes && n%u.Bytes == 0 {
			return strconv.FormatInt(n/u.Bytes, 10) + u.Name
		}
	}
	return strconv.FormatInt(n, 10)
}

// Bytes is ShortBytes for a sentence: "4MiB", "1000 bytes".
func Bytes(n int64) string {
	if s := ShortBytes(n); strings.HasSuffix(s, "B") {
		return s
	}
	return strconv.FormatInt(n, 10) + " bytes"
}

// ShellQuote returns s as a shell reads it as one word.
func ShellQuote(s string) string {
	if s != "" && strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./@%+=:,") == "" {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
