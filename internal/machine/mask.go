// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
)

// Masked stands where a value is not shown.
const Masked = "[masked]"

const (
	// shortText is the length below which a text is masked only where it is a
	// whole value: parts of other words would be taken for it.
	shortText = 4
	// maxSchemaDepth bounds how far a schema that refers to itself is followed.
	maxSchemaDepth = 32
)

// A Mask hides the values that the recipe's input schema marks as writeOnly, in
// events that are shown or exported: where the input stands, and every text of
// such a value wherever a step passed it on. The run itself is folded from the
// events as they are. A Mask takes the events of a run in order, from the first.
type Mask struct {
	schema map[string]any
	texts  []string // longest first, so that none hides part of another
}

// NewMask returns the mask of a plan; nil when it marks nothing.
func NewMask(p *plan.Plan) *Mask {
	var schema map[string]any
	if !bytes.Contains(p.InputSchema, []byte(`"writeOnly"`)) || json.Unmarshal(p.InputSchema, &schema) != nil {
		return nil
	}
	return &Mask{schema: schema}
}

// Event returns an event as it may be shown. It never changes ev itself.
func (m *Mask) Event(ev *Event) *Event {
	if m == nil {
		return ev
	}
	out := *ev
	switch ev.Kind {
	case EvRunStarted:
		st, err := decodeStart(ev.Data)
		if err != nil {
			return ev // nothing can be shown of it
		}
		st.Parameters = m.fields(st.Parameters)
		if out.Data, err = encodeStart(st); err != nil {
			out.Data = nil
		}
		return &out
	case EvRunRetried:
		out.Data = m.rewrite(ev.Data, func(v any) any {
			if fields, ok := v.(map[string]any); ok {
				return m.fields(fields)
			}
			return v
		})
		return &out
	}
	if len(m.texts) == 0 {
		return ev
	}
	switch ev.Kind {
	case EvRunSignalled, EvNodeOpened, EvContract, EvRunContract, EvNodeBlocked, EvRunCompleted:
		// Text is a name of the recipe or of Roux, or of a file.
	default:
		out.Text = m.text(ev.Text)
	}
	out.Data = m.rewrite(ev.Data, m.value)
	return &out
}

// rewrite changes a JSON value. What cannot be read is not shown.
func (m *Mask) rewrite(data []byte, change func(any) any) []byte {
	if len(data) == 0 {
		return data
	}
	v, err := jsonx.Decode(data, jsonx.Limits{Bytes: len(data) + 1})
	if err == nil {
		data, err = jsonx.Canonical(change(v))
	}
	if err != nil {
		return []byte(`"` + Masked + `"`)
	}
	return data
}

// fields masks the parameters of a run, and learns the texts in them.
func (m *Mask) fields(params map[string]any) map[string]any {
	masked, _ := m.marked(m.schema, params, 0).(map[string]any)
	slices.SortFunc(m.texts, func(a, b string) int { return len(b) - len(a) })
	m.texts = slices.Compact(m.texts)
	// A text may stand in other parameters too.
	masked, _ = m.value(masked).(map[string]any)
	return masked
}

// marked masks what a schema marks in a value.
func (m *Mask) marked(schema any, v any, depth int) any {
	s, ok := schema.(map[string]any)
	if !ok || depth > maxSchemaDepth {
		return v
	}
	if s["writeOnly"] == true {
		m.learn(v)
		return Masked
	}
	if ref, ok := s["$ref"].(string); ok {
		v = m.marked(m.resolve(ref), v, depth+1)
	}
	for _, word := range []string{"allOf", "anyOf", "oneOf"} {
		if all, ok := s[word].([]any); ok {
			for _, sub := range all {
				v = m.marked(sub, v, depth+1)
			}
		}
	}
	for _, word := range []string{"if", "then", "else"} {
		v = m.marked(s[word], v, depth+1)
	}
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		props, _ := s["properties"].(map[string]any)
		for name, field := range v {
			if sub, ok := props[name]; ok {
				out[name] = m.marked(sub, field, depth+1)
			} else {
				out[name] = m.marked(s["additionalProperties"], field, depth+1)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		first, _ := s["prefixItems"].([]any)
		for i, item := range v {
			if i < len(first) {
				out[i] = m.marked(first[i], item, depth+1)
			} else {
				out[i] = m.marked(s["items"], item, depth+1)
			}
		}
		return out
	}
	return v
}

// resolve follows a reference into the schema itself.
func (m *Mask) resolve(ref string) any {
	path, ok := strings.CutPrefix(ref, "#")
	if !ok {
		return nil
	}
	var at any = m.schema
	for part := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		if part == "" {
			continue
		}
		fields, _ := at.(map[string]any)
		at = fields[strings.NewReplacer("~1", "/", "~0", "~").Replace(part)]
	}
	return at
}

// learn keeps the texts of a marked value.
func (m *Mask) learn(v any) {
	switch v := v.(type) {
	case string:
		if v != "" && v != Masked {
			m.texts = append(m.texts, v)
		}
	case []any:
		for _, item := range v {
			m.learn(item)
		}
	case map[string]any:
		for _, field := range v {
			m.learn(field)
		}
	}
}

// value masks the texts in a value, which is not changed.
func (m *Mask) value(v any) any {
	switch v := v.(type) {
	case string:
		if slices.Contains(m.texts, v) {
			return Masked
		}
		return m.text(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = m.value(v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, field := range v {
			out[m.text(k)] = m.value(field)
		}
		return out
	}
	return v
}

func (m *Mask) text(s string) string {
	for _, t := range m.texts {
		if len(t) >= shortText {
			s = strings.ReplaceAll(s, t, Masked)
		}
	}
	return s
}
