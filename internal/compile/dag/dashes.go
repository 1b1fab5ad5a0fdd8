// SPDX-License-Identifier: Apache-2.0

package dag

import (
	"encoding/json"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/recipe"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonx"
)

// nameDashedIDs has the templates of a recipe name steps as others do: here an id with dashes is a name,
// so {{ fetch-page.output }} and {{ steps.fetch-page.output }} become {{ steps['fetch-page'].output }}.
// The ids of the recipe come before a subtraction. src learns where the texts differ.
func nameDashedIDs(r *recipe.Recipe, src *form.Source) {
	rename(r, &dashes{src: src, is: indexed})
}

// indexed is how other dialects name a step.
func indexed(was string) string { return "steps['" + strings.TrimPrefix(was, "steps.") + "']" }

// subtraction returns one in a template of a recipe of another dialect that would be the id of a step here,
// or "": {{ a-b }} with a step a-b.
func subtraction(r *recipe.Recipe) (found string) {
	rename(r, &dashes{is: func(was string) string {
		found = was
		return was
	}})
	return found
}

// rename replaces the ids with dashes in the templates of a recipe.
func rename(r *recipe.Recipe, d *dashes) {
	d.ids = map[string]bool{}
	r.Each(func(s *recipe.Step) {
		if strings.Contains(s.ID, "-") {
			d.ids[s.ID] = true
		}
	})
	if len(d.ids) == 0 {
		return
	}
	r.Each(func(s *recipe.Step) {
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
	ids map[string]bool // with dashes
	src *form.Source    // nil = nobody has to know
	is  func(was string) string
}

func (d *dashes) values(values map[string]json.RawMessage, at string) {
	for name, raw := range values {
		values[name] = d.raw(raw, at+"/"+jsonx.EscapeToken(name))
	}
}

func (d *dashes) raw(raw json.RawMessage, at string) json.RawMessage {
	if !expr.IsTemplate(string(raw)) {
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

// chains matches literals, which are left alone, and names with dots between them.
var chains = regexp.MustCompile(`'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_])?`)

// text replaces ids in the placeholders and blocks of a template.
func (d *dashes) text(text, at string) string {
	var b strings.Builder
	var edits []form.Edit
	done, length := 0, 0 // of text in bytes, and of the new one in characters
	keep := func(until int) {
		b.WriteString(text[done:until])
		length += utf8.RuneCountInString(text[done:until])
		done = until
	}
	for _, code := range expr.Code(text) {
		for _, m := range chains.FindAllStringIndex(text[code.From:code.To], -1) {
			from := code.From + m[0]
			was := d.id(text[from : code.From+m[1]])
			if was == "" {
				continue
			}
			keep(from)
			is := d.is(was)
			edits = append(edits, form.Edit{At: length, Is: len(is), Was: len(was)})
			b.WriteString(is)
			length, done = length+len(is), from+len(was)
		}
	}
	if edits == nil {
		return text
	}
	keep(len(text))
	if d.src != nil {
		d.src.Edit(at, edits)
	}
	return b.String()
}

// id returns the beginning of a chain of names that is the id of a step, perhaps with steps. before
// it, or "".
func (d *dashes) id(chain string) string {
	first, rest, _ := strings.Cut(chain, ".")
	if d.ids[first] {
		return first
	}
	second, _, _ := strings.Cut(rest, ".")
	if first == "steps" && d.ids[second] {
		return first + "." + second
	}
	return ""
}
