// SPDX-License-Identifier: Apache-2.0

package form

import (
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/roux-engine/roux/internal/spell"
)

// Nearest returns the candidate that was probably meant by text, or "". It ignores case
// and how words are joined (inputBindings, input_bindings, input-bindings); of the rest a
// third of the letters may differ.
func Nearest(text string, candidates []string) string {
	const longest = 64 // no candidate is longer, and the comparison is quadratic
	if len(text) > longest {
		return ""
	}
	plain := normalize(text)
	best, least := "", max(1, utf8.RuneCountInString(plain)/3)+1
	for _, c := range candidates {
		if d := spell.Distance(plain, normalize(c), least); d < least {
			best, least = c, d
		}
	}
	return best
}

var separators = strings.NewReplacer("_", "", "-", "", " ", "")

func normalize(s string) string { return separators.Replace(strings.ToLower(s)) }

// synonymOf returns the candidate that means what the word means in other workflow
// languages, or "".
func synonymOf(word string, candidates []string) string {
	for _, field := range synonyms[normalize(word)] {
		if slices.Contains(candidates, field) {
			return field
		}
	}
	return ""
}

var synonyms = map[string][]string{
	"dependencies": {"dependsOn"}, "needs": {"dependsOn"}, "after": {"dependsOn"}, "requires": {"dependsOn"},
	"input": {"inputSchema", "inputBindings"}, "inputs": {"inputSchema", "inputBindings"}, "with": {"inputBindings"},
	"params": {"inputSchema", "parameters", "inputBindings"}, "arguments": {"inputSchema", "parameters", "inputBindings"},
	"if": {"when"}, "retry": {"retryPolicy"}, "retries": {"retryPolicy"}, "uses": {"action"}, "run": {"action"},
	"foreach": {"loop"}, "each": {"loop"}, "items": {"over"}, "output": {"outputs", "outputBinding"}, "tasks": {"steps"}, "jobs": {"steps"},
}

func didYouMean(text string, candidates []string) string {
	if c := Nearest(text, candidates); c != "" {
		return "did you mean " + strconv.Quote(c) + "?"
	}
	return ""
}

// quoted joins quoted names for a message: `"a", "b" or "c"`.
func quoted(names []string) string {
	var b strings.Builder
	for i, n := range names {
		switch {
		case i == 0:
		case i == len(names)-1:
			b.WriteString(" or ")
		default:
			b.WriteString(", ")
		}
		b.WriteString(strconv.Quote(n))
	}
	return b.String()
}
