// SPDX-License-Identifier: Apache-2.0

package pdf

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// plainText is a block without any mark.
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

// tidy drops what only mattered while lines were joined.
func tidy(s string) string {
	if !strings.ContainsRune(s, softHyphen) {
		return s
	}
	return strings.ReplaceAll(s, string(softHyphen), "")
}

// markdown writes a block so that a reader of Markdown shows its text and
// nothing else: marks in the text itself are escaped. body is the look of the
// document, which needs no mark.
func (b block) markdown(body emphasis) string {
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
			text = `\` + text // no box to tick
		}
		return strings.Repeat("    ", b.level) + b.mark + " " + escapeStart(text)
	case table:
		return tableMarkdown(b.rows, body)
	case code:
		return codeMarkdown(b.lines)
	}
	return escapeStart(emphasise(b.text, body))
}

func tableMarkdown(rows [][]cell, body emphasis) string {
	var out strings.Builder
	for i, row := range rows {
		for _, c := range row {
			if i == 0 {
				c = cell{{plainOf(c), body}} // readers set the first row in bold themselves
			}
			// A cell ends at any bar, also at one inside of code.
			out.WriteString("| " + barred(emphasise(c, body)) + " ")
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

func barred(s string) string { return strings.ReplaceAll(s, "|", `\|`) }

// codeMarkdown fences lines with more backticks than they hold.
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

// emphasise writes text with marks of bold, italic and code where its look
// differs from the body's.
func emphasise(text []styled, body emphasis) string {
	parts := merge(text, body)
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
		out.WriteString(marked(core, p.look, open, shut))
		out.WriteString(trail)
	}
	return strings.TrimSpace(out.String())
}

// merge leaves the body's own look out and joins what then looks alike. A space
// looks like what stands before it.
func merge(text []styled, body emphasis) []styled {
	var out []styled
	for _, t := range text {
		t.text, t.look = tidy(t.text), t.look&^body
		n := len(out)
		switch {
		case t.text == "":
		case n > 0 && (out[n-1].look == t.look || strings.TrimSpace(t.text) == ""):
			out[n-1].text += t.text
		default:
			out = append(out, t)
		}
	}
	return out
}

// marked puts marks around text that stands free: within a word, or between a
// word and a bracket, Markdown would not read them as marks.
func marked(core string, l emphasis, open, shut bool) string {
	first, _ := utf8.DecodeRuneInString(core)
	last, _ := utf8.DecodeLastRuneInString(core)
	free := (open || wordy(first)) && (shut || wordy(last))
	switch {
	case l == 0 || !free || strings.IndexFunc(core, wordy) < 0:
		return escape(core)
	case l&mono != 0:
		ticks := strings.Repeat("`", longestRun(core, '`')+1)
		if core[0] == '`' || core[len(core)-1] == '`' {
			core = " " + core + " "
		}
		return ticks + core + ticks
	}
	mark := map[emphasis]string{bold: "**", italic: "*", bold | italic: "***"}[l]
	return mark + escape(core) + mark
}

func wordy(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }

// escape keeps text from being read as Markdown or HTML in the middle of a line.
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
		case '_': // within a word it means nothing
			if i == 0 || next == 0 || !alnum(s[i-1]) || !alnum(next) {
				out.WriteByte('\\')
			}
		case ']': // the end of a link's text, or of a definition's name
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

// escapeStart keeps a paragraph from becoming a heading, a quote, a list or a rule.
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
