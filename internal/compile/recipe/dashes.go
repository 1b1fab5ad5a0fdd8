// SPDX-License-Identifier: Apache-2.0

package recipe

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/jsonx"
)

// Each calls f for each step of the recipe, also for those in scopes and fallbacks, but not for those
// of recipes within it.
func (r *Recipe) Each(f func(*Step)) { each(r.Steps, f) }

func each(steps []*Step, f func(*Step)) {
	for _, s := range steps {
		if s == nil {
			continue
		}
		f(s)
		if s.Condition != nil {
			each(s.Condition.Then, f)
			each(s.Condition.Else, f)
		}
		if s.Parallel != nil {
			for _, branch := range s.Parallel.Branches {
				each(branch, f)
			}
		}
		if s.Loop != nil {
			each(s.Loop.Steps, f)
		}
		if s.OnError != nil && s.OnError.FallbackStep != nil {
			each([]*Step{s.OnError.FallbackStep}, f)
		}
	}
}

// NameDashedIDs has the templates of a recipe name steps as a dialect does in which an id with
// dashes is a name: {{ fetch-page.output }} becomes {{ steps['fetch-page'].output }}. The ids of the
// recipe come before a subtraction. src learns where the texts differ.
func (r *Recipe) NameDashedIDs(src *form.Source) {
	var d dashes
	r.Each(func(s *Step) {
		if strings.Contains(s.ID, "-") {
			d.ids = append(d.ids, s.ID)
		}
	})
	if d.ids == nil {
		return
	}
	slices.SortFunc(d.ids, func(a, b string) int { return len(b) - len(a) }) // the longest that fits is meant
	d.src = src
	r.Each(func(s *Step) {
		if s.Action != nil {
			d.values(s.Action.Parameters, s.Ptr+"/action/parameters")
		}
		if s.Recipe != nil {
			d.values(s.Recipe.Inputs, s.Ptr+"/recipe/inputs")
		}
		if s.Fail != nil {
			s.Fail.Message = d.text(s.Fail.Message, s.Ptr+"/fail/message")
		}
		if s.Wait != nil && s.Wait.Approval != nil {
			a, at := s.Wait.Approval, s.Ptr+"/wait/approval"
			a.Title, a.Text = d.text(a.Title, at+"/title"), d.text(a.Text, at+"/text")
			a.Value = d.raw(a.Value, at+"/value")
		}
	})
}

// dashes replaces the ids of steps in templates.
type dashes struct {
	ids []string // with dashes, the longest first
	src *form.Source
}

func (d *dashes) values(values map[string]json.RawMessage, at string) {
	for name, raw := range values {
		values[name] = d.raw(raw, at+"/"+jsonx.EscapeToken(name))
	}
}

func (d *dashes) raw(raw json.RawMessage, at string) json.RawMessage {
	if !strings.Contains(string(raw), "{{") && !strings.Contains(string(raw), "{%") {
		return raw
	}
	v, err := jsonx.Decode(raw, jsonx.Limits{Bytes: len(raw) + 1})
	if err != nil {
		return raw
	}
	out, e := jsonx.Canonical(d.value(v, at))
	if e != nil {
		return raw
	}
	return out
}

func (d *dashes) value(v any, at string) any {
	switch v := v.(type) {
	case string:
		return d.text(v, at)
	case []any:
		for i := range v {
			v[i] = d.value(v[i], at+"/"+strconv.Itoa(i))
		}
	case map[string]any:
		for name := range v {
			v[name] = d.value(v[name], at+"/"+jsonx.EscapeToken(name))
		}
	}
	return v
}

// text replaces ids within the placeholders and blocks of a template, but not in the literals there.
func (d *dashes) text(text, at string) string {
	var b strings.Builder
	var edits []form.Edit
	inside, quote, before := false, byte(0), byte(0)
	for i := 0; i < len(text); {
		c := text[i]
		switch {
		case !inside && (strings.HasPrefix(text[i:], "{{") || strings.HasPrefix(text[i:], "{%")):
			inside = true
		case inside && quote == 0 && (strings.HasPrefix(text[i:], "}}") || strings.HasPrefix(text[i:], "%}")):
			inside = false
		case inside && quote != 0:
			if c == '\\' && i+1 < len(text) {
				b.WriteByte(c)
				i, c = i+1, text[i+1]
			} else if c == quote {
				quote = 0
			}
		case inside && (c == '\'' || c == '"'):
			quote = c
		case inside && !partOfName(before) && before != '.':
			if id := d.at(text[i:]); id != "" {
				name := "steps['" + id + "']"
				edits = append(edits, form.Edit{At: len([]rune(b.String())), Is: len(name), Was: len(id)})
				b.WriteString(name)
				i, before = i+len(id), 'x'
				continue
			}
		}
		b.WriteByte(c)
		before = c
		i++
	}
	if edits != nil {
		d.src.Edit(at, edits)
	}
	return b.String()
}

// at returns the id that a text begins with, or "".
func (d *dashes) at(text string) string {
	for _, id := range d.ids {
		if strings.HasPrefix(text, id) && (len(text) == len(id) || !partOfName(text[len(id)])) {
			return id
		}
	}
	return ""
}

func partOfName(c byte) bool {
	return c == '_' || c == '-' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
