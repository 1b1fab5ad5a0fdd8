// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"slices"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/spell"
	"github.com/roux-engine/roux/internal/yamlx"
)

// What an ignore comment begins with, after the # sign.
const (
	ignoreLine = "roux:ignore"
	ignoreFile = "roux:ignore-file"
)

// An ignored is a rule that a comment ignores.
type ignored struct {
	rule   string
	line   int // of the comment
	covers int // the line it is about; 0 = all of the file
	used   bool
	pos    fault.Pos
}

// ignore removes what comments and the caller ignore, and reports comments that ignore nothing.
func ignore(t Text, diags []fault.Diagnostic, everywhere []string) []fault.Diagnostic {
	list, problems := comments(t)
	kept := []fault.Diagnostic{}
	for _, d := range diags {
		own := t.Source == nil || d.Pos.File == t.Source.File()
		hidden := false
		for _, g := range list {
			if own && g.rule == d.Rule && (g.covers == 0 || g.covers == d.Pos.Line || g.line == d.Pos.Line) {
				g.used = true
				hidden = hidden || d.Severity == fault.SeverityWarning
			}
		}
		if d.Severity == fault.SeverityWarning && slices.Contains(everywhere, d.Rule) {
			hidden = true
		}
		if !hidden {
			kept = append(kept, d)
		}
	}
	for _, g := range list {
		if !g.used {
			problems = append(problems, advice("unused-ignore", g.pos, "", fmt.Sprintf("this ignores nothing: there is no %s here", g.rule), "remove it"))
		}
	}
	for _, d := range problems {
		if !slices.Contains(everywhere, d.Rule) {
			kept = append(kept, d)
		}
	}
	return kept
}

// comments returns what the comments of a text ignore, and what is wrong with them.
func comments(t Text) (list []*ignored, problems []fault.Diagnostic) {
	if t.Source == nil || t.Plan == nil {
		return nil, nil // only warnings can be ignored, and this text has errors
	}
	for _, c := range yamlx.Comments(t.Bytes, jsonx.Limits{Bytes: len(t.Bytes) + 1}) {
		text := strings.TrimSpace(strings.TrimLeft(c.Text, "#"))
		rest, whole := strings.CutPrefix(text, ignoreFile)
		if !whole {
			var ok bool
			if rest, ok = strings.CutPrefix(text, ignoreLine); !ok {
				continue
			}
		}
		pos := place(t, c)
		if rest != "" && rest[0] != ' ' && rest[0] != '\t' {
			problems = append(problems, advice("unknown-ignore", pos, "", fmt.Sprintf("%q is no comment that ignores something", view(text)), "write # roux:ignore RULE or # roux:ignore-file RULE"))
			continue
		}
		rules, wrong := rulesOf(rest)
		if len(rules) == 0 && len(wrong) == 0 {
			problems = append(problems, advice("unknown-ignore", pos, "", "the comment names no rule to ignore", "write # roux:ignore RULE; `roux lint --rules` lists the rules"))
		}
		for _, name := range wrong {
			problems = append(problems, advice("unknown-ignore", pos, "", fmt.Sprintf("there is no rule %q", view(name)), hint(name)))
		}
		for _, name := range rules {
			g := &ignored{rule: name, line: c.Line, pos: pos}
			if !whole {
				g.covers = covered(t, c)
			}
			list = append(list, g)
		}
	}
	return list, problems
}

// view cuts a text of the source for a message.
func view(text string) string {
	if r := []rune(text); len(r) > 40 {
		return string(r[:40]) + "…"
	}
	return text
}

func hint(name string) string {
	if near := spell.Nearest(name, Names()); near != "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return "`roux lint --rules` lists them"
}

// rulesOf returns the rules that a comment names, and the names of none. Names have commas between them;
// what follows the last one is for people.
func rulesOf(rest string) (rules, wrong []string) {
	fields := strings.Fields(rest)
	for i := 0; i < len(fields); i++ {
		name, more := strings.CutSuffix(fields[i], ",")
		for _, one := range strings.Split(name, ",") {
			if Find(one) != nil {
				rules = append(rules, one)
			} else {
				wrong = append(wrong, one)
			}
		}
		if !more {
			break
		}
	}
	return rules, wrong
}

// place is the position of a comment.
func place(t Text, c yamlx.Comment) fault.Pos {
	line := t.Source.Line(c.Line)
	pos := fault.Pos{File: t.Source.File(), Line: c.Line, Col: 1, Len: len([]rune(c.Text))}
	if at := strings.LastIndex(line, c.Text); at >= 0 {
		pos.Col = len([]rune(line[:at])) + 1
	}
	return pos
}

// covered returns the line that a comment is about: its own, or the next one when it stands alone.
func covered(t Text, c yamlx.Comment) int {
	if !strings.HasPrefix(strings.TrimSpace(t.Source.Line(c.Line)), "#") {
		return c.Line
	}
	for n := c.Line + 1; n <= c.Line+1000; n++ {
		if text := strings.TrimSpace(t.Source.Line(n)); text != "" && !strings.HasPrefix(text, "#") {
			return n
		}
	}
	return c.Line
}
