// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/view"
)

// printOutputs prints the outputs of a run: one field after the other, text as
// text, other values as indented JSON.
func (a *app) printOutputs(raw json.RawMessage) {
	v, err := jsonx.Decode(raw, jsonx.Limits{Large: true})
	fields, ok := v.(map[string]any)
	if err != nil || !ok {
		a.text("%s\n", view.Clean(indent(raw)))
		return
	}
	if inner, ok := fields[a.unwrap].(map[string]any); ok && len(fields) == 1 {
		fields = inner
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		text := fieldText(name, fields[name])
		if columns, ok := a.stdoutColumns(); ok {
			text = beginning(text, columns)
		}
		a.text("%s", text)
	}
}

// mostLines bounds the lines of one output on a terminal.
const mostLines = 40

// beginning returns the beginning of an output for a terminal of that many
// columns, because a whole document would scroll other messages away. Pipes and
// files get everything.
func beginning(text string, columns int) string {
	used, at := 0, 0
	for line := range strings.Lines(text) {
		used += 1 + max(utf8.RuneCountInString(line)-2, 0)/columns
		if used > mostLines {
			if at == 0 {
				at = len(string([]rune(line)[:columns*(mostLines/2)]))
			}
			rest := text[at:]
			return strings.TrimRight(text[:at], "\n") + "\n… " + view.Count(strings.Count(strings.TrimRight(rest, "\n"), "\n")+1, "more line") +
				" with " + view.Count(len(strings.Fields(rest)), "word") + ": add `| less`, or `-o json > FILE`, to have them\n"
		}
		at += len(line)
	}
	return text
}

func fieldText(name string, v any) string {
	name = view.OneLine(name)
	v = readable(v)
	if s, ok := v.(string); ok {
		s = strings.TrimRight(view.Clean(s), "\n")
		if !strings.Contains(s, "\n") {
			return name + ": " + s + "\n"
		}
		return name + ":\n  " + strings.ReplaceAll(s, "\n", "\n  ") + "\n"
	}
	raw, err := jsonx.Canonical(v)
	if err != nil {
		return name + ":\n"
	}
	text := view.Clean(indent(raw))
	return name + ": " + text + "\n"
}

// readable replaces references to large values by a description.
func readable(v any) any {
	switch v := v.(type) {
	case jsonx.Large:
		return "(" + view.LargeText(v) + " in file " + v.Hash + ": roux files get " + v.Hash + ")"
	case []any:
		out := make([]any, len(v))
		for i, e := range v {
			out[i] = readable(e)
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, e := range v {
			out[k] = readable(e)
		}
		return out
	}
	return v
}

func indent(raw []byte) string {
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		return string(raw)
	}
	return b.String()
}
