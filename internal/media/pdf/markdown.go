// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// plainText returns a block without Markdown.
func (b block) plainText() string {
	var lines []string
	switch b.kind {
	case table:
		for _, row := range b.rows {
			var cells []string
			for _, c := range row {
				if t := strings.TrimSpace(tidy(plainOf(c))); t != "" {
					cells = append(cells, t)
				}
			}
			lines = append(lines, strings.Join(cells, " "))
		}
	case code:
		for _, l := range b.lines {
			lines = append(lines, strings.TrimRight(tidy(l), " "))
		}
	default:
		return strings.TrimSpace(tidy(b.plain()))
	}
	return strings.Join(lines, "\n")
}

// tidy removes characters that only mattered while lines were joined.
func tidy(s string) string {
	if !strings.ContainsRune(s, softHyphen) {
		return s
	}
	return strings.ReplaceAll(s, string(softHyphen), "")
}

// markdown writes a block so that a Markdown reader shows exactly its text:
// characters of the text that would be markup are escaped. body is the style of
// the document, which needs no markup.
func (b block) markdown(body fontStyle) string {
	switch b.kind {
	case heading:
		text := escape(strings.TrimSpace(tidy(b.plain())))
		if strings.HasSuffix(text, "#") {
			text = text[:len(text)-1] + `\#`
		}
		return strings.Repeat("#", b.level) + " " + text
	case item:
		text := emphasise(b.text, body)
		if t := strings.ToLower(text); strings.HasPrefix(t, "[ ]") || strings.HasPrefix(t, "[x]") {
			text = `\` + text // not a task list item
		}
		return strings.Repeat("    ", b.level) + b.marker + " " + escapeStart(text)
	case table:
		return tableMarkdown(b.rows, body)
	case code:
		return codeMarkdown(b.lines)
	}
	return escapeStart(emphasise(b.text, body))
}

func tableMarkdown(rows [][]cell, body fontStyle) string {
	var out strings.Builder
	for i, row := range rows {
		for _, c := range row {
			if i == 0 {
				c = cell{{plainOf(c), body}} // readers show the first row in bold anyway
			}
			// Every | ends a cell, even inside code.
			out.WriteString("| " + escapePipes(emphasise(c, body)) + " ")
		}
		out.WriteString("|")
		if i == 0 {
			out.WriteString("\n" + strings.Repeat("| --- ", len(row)) + "|")
		}
		if i < len(rows)-1 {
			out.WriteByte('\n')
		}
	}
	return out.String()
}

func escapePipes(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

// codeMarkdown fences lines with more backticks than they contain.
func codeMarkdown(lines []string) string {
	text := tidy(strings.Join(lines, "\n"))
	fence := strings.Repeat("`", max(3, longestRun(text, '`')+1))
	return fence + "\n" + text + "\n" + fence
}

func longestRun(s string, c byte) int {
	most, n := 0, 0
	for i := range len(s) {
		if s[i] != c {
			n = 0
			continue
		}
		n++
		most = max(most, n)
	}
	return most
}

// emphasise writes text with Markdown for bold, italic and code where its style
// differs from body.
func emphasise(text []styledText, body fontStyle) string {
	parts := mergeStyles(text, body)
	var out strings.Builder
	for i, p := range parts {
		core := strings.Trim(p.text, " ")
		lead, trail := p.text[:len(p.text)-len(strings.TrimLeft(p.text, " "))], p.text[len(strings.TrimRight(p.text, " ")):]
		if core == "" {
			out.WriteString(p.text)
			continue
		}
		open := i == 0 || lead != "" || strings.HasSuffix(parts[i-1].text, " ")
		shut := i == len(parts)-1 || trail != "" || strings.HasPrefix(parts[i+1].text, " ")
		out.WriteString(lead)
		out.WriteString(marked(core, p.style, open, shut))
		out.WriteString(trail)
	}
	return strings.TrimSpace(out.String())
}

// mergeStyles removes the style of the body and joins texts that then have the
// same style. White space takes the style of the text before it.
func mergeStyles(text []styledText, body fontStyle) []styledText {
	var out []styledText
	for _, t := range text {
		t.text, t.style = tidy(t.text), t.style&^body
		n := len(out)
		switch {
		case t.text == "":
		case n > 0 && (out[n-1].style == t.style || strings.TrimSpace(t.text) == ""):
			out[n-1].text += t.text
		default:
			out = append(out, t)
		}
	}
	return out
}

// marked puts emphasis around text that stands free. Within a word, or between
// a word and a bracket, Markdown would not recognise it.
func marked(core string, l fontStyle, open, shut bool) string {
	first, _ := utf8.DecodeRuneInString(core)
	last, _ := utf8.DecodeLastRuneInString(core)
	free := (open || isWordRune(first)) && (shut || isWordRune(last))
	switch {
	case l == 0 || !free || strings.IndexFunc(core, isWordRune) < 0:
		return escape(core)
	case l&mono != 0:
		ticks := strings.Repeat("`", longestRun(core, '`')+1)
		if core[0] == '`' || core[len(core)-1] == '`' {
			core = " " + core + " "
		}
		return ticks + core + ticks
	}
	mark := map[fontStyle]string{bold: "**", italic: "*", bold | italic: "***"}[l]
	return mark + escape(core) + mark
}

func isWordRune(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// escape keeps text from being read as Markdown or HTML within a line.
func escape(s string) string {
	if !strings.ContainsAny(s, "\\`*_<&]~") {
		return s
	}
	var out strings.Builder
	for i := range len(s) {
		c := s[i]
		next := byte(0)
		if i+1 < len(s) {
			next = s[i+1]
		}
		switch c {
		case '\\', '`', '*', '<', '~':
			out.WriteByte('\\')
		case '_': // it has no meaning within a word
			if i == 0 || next == 0 || !alnum(s[i-1]) || !alnum(next) {
				out.WriteByte('\\')
			}
		case ']': // may end a link's text, or a definition's name
			if next == '(' || next == '[' || next == ':' {
				out.WriteByte('\\')
			}
		case '&':
			if next == '#' || alnum(next) {
				out.WriteByte('\\')
			}
		}
		out.WriteByte(c)
	}
	return out.String()
}

func alnum(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= 0x80
}

// escapeStart keeps a paragraph from being read as a heading, a quote, a list
// or a rule.
func escapeStart(s string) string {
	if s == "" {
		return s
	}
	switch s[0] {
	case '#', '>', '+', '-', '=', ':', '|':
		return `\` + s
	}
	if i := strings.IndexFunc(s, func(r rune) bool { return r < '0' || r > '9' }); i > 0 && i < 10 && (s[i] == '.' || s[i] == ')') && (i+1 == len(s) || s[i+1] == ' ') {
		return s[:i] + `\` + s[i:]
	}
	return s
}
