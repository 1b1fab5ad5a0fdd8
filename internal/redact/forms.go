// SPDX-License-Identifier: Apache-2.0

package redact

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/roux-engine/roux/internal/jsonx"
)

// forms returns the forms of a secret, each once.
func forms(v string) []string {
	out := []string{v}
	add := func(form string) {
		if len(form) >= MinLen && !slices.Contains(out, form) {
			out = append(out, form)
		}
	}
	add(jsonEscaped(v))
	if plain, err := jsonx.Canonical(v); err == nil {
		add(string(plain[1 : len(plain)-1]))
	}
	quoted := strconv.Quote(v)
	add(quoted[1 : len(quoted)-1])
	add(asciiEscaped(v))
	for _, enc := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding} {
		whole := enc.EncodeToString([]byte(v))
		add(whole)
		add(strings.TrimRight(whole, "="))
		for before := range 3 {
			add(inner64(enc, v, before))
		}
	}
	low := hex.EncodeToString([]byte(v))
	add(low)
	add(strings.ToUpper(low))
	for _, keep := range []string{
		"-_.~",                 // a value of a query
		"-_.~$&+:=@",           // a part of a path, as Go writes it
		"-_.~$&+,/:;=@",        // a path, as Go writes it
		"-_.~$&+,;=",           // a user or password
		"-_.~!'()*",            // encodeURIComponent of JavaScript
		"-_.~!'()*;/?:@&=+$,#", // encodeURI of JavaScript
		"-_.~/",                // quote of Python
		"",
	} {
		text := escaped(v, keep)
		add(text)
		add(lowerEscapes(text))
	}
	plus := strings.ReplaceAll(escaped(v, "-_.~ "), " ", "+")
	add(plus)
	add(lowerEscapes(plus))
	return out
}

// jsonEscaped returns a text as it is inside a JSON string that package json writes: with
// < > and & escaped, too.
func jsonEscaped(v string) string {
	b, err := json.Marshal(v)
	if err != nil {
		return v
	}
	return string(b[1 : len(b)-1])
}

// asciiEscaped returns a text as it is inside a JSON string in which only ASCII is left as it
// is.
func asciiEscaped(v string) string {
	var out []byte
	for _, r := range jsonEscaped(v) {
		if r < utf8.RuneSelf {
			out = append(out, byte(r))
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			out = fmt.Appendf(out, `\u%04x`, unit)
		}
	}
	return string(out)
}

// inner64 returns the characters of base64 that depend on v alone, if that many bytes
// modulo 3 stand before it.
func inner64(enc *base64.Encoding, v string, before int) string {
	text := enc.EncodeToString([]byte(strings.Repeat("\x00", before) + v))
	text = strings.TrimRight(text, "=")
	begin := (before*8 + 5) / 6      // the first character without bits of what is before
	end := (before + len(v)) * 8 / 6 // behind the last one without bits of what follows
	return text[min(begin, end):min(end, len(text))]
}

// escaped returns a text as it occurs in a URL: every byte that is no letter and no digit,
// and is not among those to keep, is escaped.
func escaped(v, keep string) string {
	const digits = "0123456789ABCDEF"
	out := make([]byte, 0, 3*len(v))
	for i := range len(v) {
		switch c := v[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', strings.IndexByte(keep, c) >= 0:
			out = append(out, c)
		default:
			out = append(out, '%', digits[c>>4], digits[c&15])
		}
	}
	return string(out)
}

// lowerEscapes returns a text whose escapes have small letters.
func lowerEscapes(escaped string) string {
	out := []byte(escaped)
	for i := 0; i+2 < len(out); i++ {
		if out[i] == '%' {
			for _, j := range []int{i + 1, i + 2} {
				if out[j] >= 'A' && out[j] <= 'F' {
					out[j] += 'a' - 'A'
				}
			}
			i += 2
		}
	}
	return string(out)
}
