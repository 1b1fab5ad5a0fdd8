// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/roux-engine/roux/internal/jsonx"
)

// printOutputs writes a run's outputs for people: one field after the other,
// text as text, the rest as indented JSON.
func (a *app) printOutputs(raw json.RawMessage) {
	v, err := jsonx.Decode(raw, jsonx.Limits{})
	fields, ok := v.(map[string]any)
	if err != nil || !ok {
		a.text("%s\n", clean(indent(raw)))
		return
	}
	if inner, ok := fields[a.unwrap].(map[string]any); ok && len(fields) == 1 {
		fields = inner
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		a.text("%s", fieldText(name, fields[name]))
	}
}

func fieldText(name string, v any) string {
	name = oneLine(name)
	if s, ok := v.(string); ok {
		s = strings.TrimRight(clean(s), "\n")
		if !strings.Contains(s, "\n") {
			return name + ": " + s + "\n"
		}
		return name + ":\n  " + strings.ReplaceAll(s, "\n", "\n  ") + "\n"
	}
	raw, err := jsonx.Canonical(v)
	if err != nil {
		return name + ":\n"
	}
	text := clean(indent(raw))
	return name + ": " + text + "\n"
}

func indent(raw []byte) string {
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		return string(raw)
	}
	return b.String()
}
