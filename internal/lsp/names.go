// SPDX-License-Identifier: Apache-2.0

package lsp

import (
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/roux-engine/roux/internal/compile/expressions"
	"github.com/roux-engine/roux/internal/expr"
)

// A use is a name in an expression or a template that may mean a step or a binding.
type use struct {
	name       string // the free name, or the id after steps
	step       bool   // it is the id after steps
	at, n      int    // its place, in runes
	start, all int    // the place of the whole reference to it, with steps before it
	path       []string
}

// usesIn returns the names in an expression, or in the code of a template. Of one that cannot be compiled, they
// are those that look like names.
func usesIn(cache *expressions.Cache, src string, template bool) []use {
	code := src
	if template {
		_, code = expr.Secrets(src) // spaces are in the place of what only parameters may have
	}
	prog := cache.Program(code, template)
	if len(prog.Problems) > 0 {
		return scan(code, template)
	}
	var uses []use
	seen := map[int]bool{}
	for _, r := range prog.Refs {
		if r.Name != expr.NowVar && r.Name != expr.SeedVar && !seen[r.Offset] { // a macro may have an argument twice
			seen[r.Offset] = true
			uses = append(uses, use{name: r.Name, at: r.Offset, n: utf8.RuneCountInString(r.Name), path: r.Path})
		}
	}
	return settle([]rune(code), uses)
}

// scan finds what looks like a name in a text that cannot be compiled.
func scan(code string, template bool) []use {
	return settle([]rune(code), words(code, template))
}

// words returns the identifiers of a text that are not selected from something.
func words(code string, template bool) (uses []use) {
	spans := []expr.Span{{From: 0, To: len(code)}}
	if template {
		spans = expr.Code(code)
	}
	for _, s := range spans {
		shift := utf8.RuneCountInString(code[:s.From])
		runes := []rune(code[s.From:s.To])
		for i := 0; i < len(runes); {
			switch c := runes[i]; {
			case c == '\'' || c == '"':
				i = literalEnd(runes, i)
			case nameRune(c):
				from := i
				for i < len(runes) && nameRune(runes[i]) {
					i++
				}
				name := string(runes[from:i])
				selected := from > 0 && (runes[from-1] == '.' || runes[from-1] == '?' && from > 1 && runes[from-2] == '.')
				called := i < len(runes) && runes[i] == '('
				filtered := template && strings.HasSuffix(strings.TrimRight(string(runes[:from]), " "), "|")
				if !selected && !called && !filtered && (c < '0' || c > '9') && !slices.Contains(keywords, name) {
					uses = append(uses, use{name: name, at: shift + from, n: i - from})
				}
			default:
				i++
			}
		}
	}
	return uses
}

// keywords are words that are no names.
var keywords = []string{"true", "false", "null", "in", "if", "elif", "else", "endif", "for", "endfor", "set", "and", "or", "not"}

// literalEnd returns the end of a literal that begins at i.
func literalEnd(runes []rune, i int) int {
	quote := runes[i]
	for i++; i < len(runes); i++ {
		switch runes[i] {
		case '\\':
			i++
		case quote:
			return i + 1
		}
	}
	return len(runes)
}

func nameRune(c rune) bool { return c < utf8.RuneSelf && nameByte(byte(c)) }

// settle finds the ids behind steps, and the places of the whole references.
func settle(runes []rune, uses []use) (out []use) {
	for _, u := range uses {
		u.start, u.all = u.at, u.n
		if u.name != "steps" {
			out = append(out, u)
			continue
		}
		from, to, end := member(runes, u.at+u.n)
		if to == from {
			continue
		}
		u.step, u.name, u.at, u.n, u.all = true, string(runes[from:to]), from, to-from, end-u.start
		if len(u.path) > 0 {
			u.path = u.path[1:]
		}
		out = append(out, u)
	}
	return out
}

// member returns the place of the name that is selected at i, as .name or ['name'], and where the selection
// ends.
func member(runes []rune, i int) (from, to, end int) {
	skip := func(set string) {
		for i < len(runes) && strings.ContainsRune(set, runes[i]) {
			i++
		}
	}
	skip(" ")
	if i >= len(runes) {
		return 0, 0, 0
	}
	switch runes[i] {
	case '.':
		i++
		skip("? ")
		for from = i; i < len(runes) && nameRune(runes[i]); i++ {
		}
		return from, i, i
	case '[':
		i++
		skip("? ")
		if i >= len(runes) || runes[i] != '\'' && runes[i] != '"' {
			return 0, 0, 0
		}
		from, end = i+1, literalEnd(runes, i)
		if to = end - 1; to <= from || runes[to] != runes[i] {
			return 0, 0, 0
		}
		if i = end; i < len(runes) && runes[i] == ']' {
			end++
		}
		return from, to, end
	}
	return 0, 0, 0
}
