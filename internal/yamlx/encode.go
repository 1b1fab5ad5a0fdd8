// SPDX-License-Identifier: Apache-2.0

package yamlx

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/roux-engine/roux/internal/jsonx"
)

// Encode returns a tree as YAML that [Parse] parses to the same value: two spaces per
// level, fields in their order, quotes only where plain text would mean something else,
// text of several lines as a block. A refused value becomes null.
func Encode(n *jsonx.Node) []byte {
	var b bytes.Buffer
	switch {
	case n.Kind == jsonx.Object && len(n.Children) > 0, n.Kind == jsonx.Array && len(n.Children) > 0:
		encodeBlock(&b, n, 0)
	default:
		b.WriteString(scalarText(n, 2))
		b.WriteByte('\n')
	}
	return b.Bytes()
}

// encodeBlock writes the lines of a list or mapping that is not empty. The first line is
// already indented.
func encodeBlock(b *bytes.Buffer, n *jsonx.Node, indent int) {
	for i, c := range n.Children {
		if i > 0 {
			b.WriteString(strings.Repeat(" ", indent))
		}
		open := (c.Kind == jsonx.Object || c.Kind == jsonx.Array) && len(c.Children) > 0
		if n.Kind == jsonx.Array {
			b.WriteString("- ")
			if open {
				encodeBlock(b, c, indent+2)
				continue
			}
			b.WriteString(scalarText(c, indent+2) + "\n")
			continue
		}
		b.WriteString(keyText(c.Key) + ":")
		if open {
			b.WriteString("\n" + strings.Repeat(" ", indent+2))
			encodeBlock(b, c, indent+2)
			continue
		}
		b.WriteString(" " + scalarText(c, indent+2) + "\n")
	}
}

// scalarText returns a value that begins on the line of its name. The further lines of a
// block are indented by indent.
func scalarText(n *jsonx.Node, indent int) string {
	switch n.Kind {
	case jsonx.Bool:
		return strconv.FormatBool(n.Bool)
	case jsonx.Int:
		return strconv.FormatInt(n.Int, 10)
	case jsonx.Float:
		return floatText(n.Float)
	case jsonx.String:
		return stringText(n.Text, indent)
	case jsonx.Array:
		return "[]"
	case jsonx.Object:
		return "{}"
	}
	return "null"
}

// floatText formats a float64 with a fraction: 1.0, not 1.
func floatText(f float64) string {
	text := strconv.FormatFloat(f, 'g', -1, 64)
	if !strings.ContainsAny(text, ".e") {
		text += ".0"
	}
	return text
}

// keyText returns a name of a mapping, without quotes if possible.
func keyText(name string) string {
	if plain(name) && name != "<<" && !ambiguous(name) {
		return name
	}
	return quoted(name)
}

// stringText returns a string: plain if possible, else as a block if it has several lines,
// else in double quotes.
func stringText(s string, indent int) string {
	var as jsonx.Node
	if plain(s) {
		if msg, _ := resolve(s, &as); msg == "" && as.Kind == jsonx.String && !ambiguous(s) {
			return s
		}
	}
	if block, ok := literal(s, indent); ok {
		return block
	}
	return quoted(s)
}

// plain reports whether text without quotes is read as that text, as a name and as a value,
// in a list and inside brackets. It is stricter than YAML.
func plain(s string) bool {
	if s == "" || len(s) > 4_096 || strings.TrimSpace(s) != s || strings.Contains(s, ": ") || strings.Contains(s, " #") ||
		strings.HasSuffix(s, ":") || strings.HasPrefix(s, "---") || strings.HasPrefix(s, "...") {
		return false
	}
	if strings.ContainsRune("!&*?|>@`%\"'#,[]{}-:=", rune(s[0])) && !startsWithDash(s) {
		return false
	}
	return !strings.ContainsFunc(s, func(r rune) bool {
		return strings.ContainsRune(",[]{}", r) || !visible(r)
	})
}

// ambiguous reports whether YAML 1.1 reads text as a boolean, a date or a number. Other
// programs, which may use YAML 1.1, read what we write.
func ambiguous(s string) bool {
	switch strings.ToLower(s) {
	case "yes", "no", "on", "off":
		return true
	}
	return strings.Trim(s, "0123456789:-_.+TtZz ") == "" && strings.ContainsAny(s, "0123456789")
}

// startsWithDash reports whether text begins with a dash and is plain nevertheless, such
// as -5 or -v.
func startsWithDash(s string) bool {
	return len(s) > 1 && s[0] == '-' && s[1] != ' ' && s[1] != '-' && s[1] != '\t' && !strings.ContainsRune(":?", rune(s[1]))
}

// visible reports whether a character needs no escape in YAML.
func visible(r rune) bool {
	return r == ' ' || r != utf8.RuneError && r != '\ufeff' && unicode.IsGraphic(r) && !unicode.IsSpace(r)
}

// literal returns text of several lines as a block. It reports false for text that a
// block cannot represent (leading or trailing spaces, other line breaks).
func literal(s string, indent int) (string, bool) {
	body := strings.TrimSuffix(s, "\n")
	if !strings.Contains(body, "\n") && body == s || body == "" || strings.HasSuffix(body, "\n") {
		return "", false
	}
	lines := strings.Split(body, "\n")
	if lines[0] == "" || lines[0][0] == ' ' {
		return "", false
	}
	head := "|"
	if body == s {
		head = "|-"
	}
	var b strings.Builder
	b.WriteString(head)
	for _, line := range lines {
		if strings.TrimRight(line, " ") != line || strings.ContainsFunc(line, func(r rune) bool { return !visible(r) }) {
			return "", false
		}
		b.WriteByte('\n')
		if line != "" {
			b.WriteString(strings.Repeat(" ", indent) + line)
		}
	}
	return b.String(), true
}

// jsonText returns a string as JSON.
func jsonText(s string) string {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(s); err != nil {
		return `""` // every string can be encoded
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// quoted returns a string as JSON, with all invisible characters escaped.
func quoted(s string) string {
	text := jsonText(s)
	if !strings.ContainsFunc(text, func(r rune) bool { return !visible(r) }) {
		return text
	}
	var out strings.Builder
	for _, r := range text {
		switch {
		case visible(r):
			out.WriteRune(r)
		case r > 0xFFFF:
			out.WriteString(`\U` + pad(strconv.FormatInt(int64(r), 16), 8))
		default:
			out.WriteString(`\u` + pad(strconv.FormatInt(int64(r), 16), 4))
		}
	}
	return out.String()
}

func pad(hex string, n int) string { return strings.Repeat("0", max(0, n-len(hex))) + hex }
