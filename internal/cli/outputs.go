// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/internal/jsonx"
)

// printOutputs writes a run's outputs for people: one field after the other,
// text as text, the rest as indented JSON.
func (a *app) printOutputs(raw json.RawMessage) {
	v, err := jsonx.Decode(raw, jsonx.Limits{Large: true})
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
	v = readable(v)
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

// readable puts in the place of references what they stand for, in words.
func readable(v any) any {
	switch v := v.(type) {
	case jsonx.Large:
		return "(" + largeText(v) + " in file " + v.Hash + ": roux files get " + v.Hash + ")"
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

// largeText is what a reference stands for, such as "1.4 MiB text".
func largeText(l jsonx.Large) string {
	size := fmt.Sprintf("%.1f KiB", float64(l.Bytes)/(1<<10))
	if l.Bytes >= 1<<20 {
		size = fmt.Sprintf("%.1f MiB", float64(l.Bytes)/(1<<20))
	}
	if l.List {
		return size + " list of " + strconv.FormatInt(l.Size, 10)
	}
	return size + " text"
}

func indent(raw []byte) string {
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		return string(raw)
	}
	return b.String()
}
