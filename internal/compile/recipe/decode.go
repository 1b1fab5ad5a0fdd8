// SPDX-License-Identifier: Apache-2.0

package recipe

import (
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonx"
)

// A decoder fills the model from a tree and reports everything that does not fit. It
// continues after a problem, so that a person can fix all of them at once.
type decoder struct {
	file  string
	src   *Source
	path  jsonx.Path
	diags []fault.Diagnostic
}

// maxKept bounds the problems kept while reading; at most MaxDiagnostics are returned.
const maxKept = 10_000

func (d *decoder) add(pos jsonx.Pos, rule, msg, hint string) {
	if len(d.diags) < maxKept {
		d.diags = append(d.diags, fault.Diagnostic{
			Code: fault.RecipeInvalid, Rule: rule, Msg: msg, Hint: hint,
			Pos: place(d.file, pos), Pointer: d.path.Pointer(),
		})
	}
}

func place(file string, p jsonx.Pos) fault.Pos {
	return fault.Pos{File: file, Line: int(p.Line), Col: int(p.Col), Len: int(p.Len)}
}

// wrongKind reports a value of the wrong kind.
func (d *decoder) wrongKind(n *jsonx.Node, want, hint string) {
	d.add(n.Pos, "wrong-type", fmt.Sprintf("%s: want %s", d.describe(n), want), hint)
}

// describe returns the field and its value for messages.
func (d *decoder) describe(n *jsonx.Node) string {
	name := n.Key
	switch {
	case d.path.Pointer() == "":
		name = "the text"
	case name == "":
		name = "this entry"
	}
	switch n.Kind {
	case jsonx.String:
		return name + " " + strconv.Quote(shorten(n.Text))
	case jsonx.Bool, jsonx.Int, jsonx.Float:
		return name + " " + d.sourceText(n)
	default:
		return name + " is " + n.Kind.String()
	}
}

// sourceText returns a number or boolean as it is in the text: 1.0, not 1.
func (d *decoder) sourceText(n *jsonx.Node) string {
	line := []rune(d.src.Line(int(n.Pos.Line)))
	from := min(int(n.Pos.Col)-1, len(line))
	return shorten(string(line[from:min(from+int(n.Pos.Len), len(line))]))
}

func (d *decoder) decode(n *jsonx.Node, s *shape, v reflect.Value) {
	if n.Kind == jsonx.Refused {
		return
	}
	if v.Kind() == reflect.Pointer {
		if s.rule.toggle && n.Kind == jsonx.Bool && !n.Bool {
			return
		}
		p := reflect.New(v.Type().Elem())
		d.decode(n, s, p.Elem())
		v.Set(p)
		return
	}
	switch s.form {
	case formText, formDuration:
		d.text(n, s, v)
	case formBool:
		if n.Kind != jsonx.Bool {
			d.wrongKind(n, "true or false", boolHint(n))
			return
		}
		v.SetBool(n.Bool)
	case formInt:
		d.integer(n, s, v)
	case formNumber:
		d.number(n, s, v)
	case formRaw:
		d.raw(n, s, v)
	case formList:
		d.list(n, s, v)
	case formMap:
		d.entries(n, s, v)
	case formObject:
		f := s.object.byName[s.rule.short]
		switch {
		case s.rule.toggle && n.Kind == jsonx.Bool: // true
		case s.rule.toggle && n.Kind != jsonx.Object:
			d.wrongKind(n, "true, false or "+objectNouns[s.object.name]+", which is an object", "")
		case f != nil && n.Kind == jsonx.String:
			d.decode(n, f.shape, v.Field(f.index))
		case f != nil && n.Kind != jsonx.Object:
			d.wrongKind(n, fmt.Sprintf("%s, which is text or an object with %q", objectNouns[s.object.name], f.name), "")
		default:
			d.object(n, s.object, v)
		}
	}
}

func boolHint(n *jsonx.Node) string {
	switch strings.ToLower(n.Text) {
	case "true", "yes", "on", "y":
		return "write true, without quotes"
	case "false", "no", "off", "n":
		return "write false, without quotes"
	}
	return ""
}

func (d *decoder) text(n *jsonx.Node, s *shape, v reflect.Value) {
	if n.Kind != jsonx.String {
		d.wrongKind(n, wantText(s), d.quoteHint(n, s))
		return
	}
	v.SetString(n.Text)
	switch {
	case s.form == formDuration:
		ms, err := ParseDuration(n.Text)
		switch {
		case err != nil:
			d.add(n.Pos, "bad-duration", label(n)+err.Error(), "")
		case s.rule.positive && ms == 0:
			d.add(n.Pos, "bad-duration", d.describe(n)+": want a duration longer than zero", "")
		}
	case s.rule.enum != nil:
		if !slices.Contains(s.rule.enum, n.Text) {
			d.add(n.Pos, "unknown-value", d.describe(n)+": want "+quoted(s.rule.enum), didYouMean(n.Text, s.rule.enum))
		}
	case s.pattern != nil && !s.pattern.MatchString(n.Text):
		d.add(n.Pos, "bad-text", d.describe(n)+": want "+s.rule.pattern.want, "")
	}
}

func wantText(s *shape) string {
	switch {
	case s.form == formDuration:
		return `a duration such as "5m"`
	case s.rule.enum != nil:
		return quoted(s.rule.enum)
	case s.rule.pattern != nil && s.rule.pattern != textPattern:
		return s.rule.pattern.want
	default:
		return "text"
	}
}

// quoteHint returns a hint for a scalar that should be text.
func (d *decoder) quoteHint(n *jsonx.Node, s *shape) string {
	switch {
	case n.Kind == jsonx.Null:
		return "give it a value, or remove the field"
	case s.form == formDuration && n.Kind == jsonx.Int:
		return fmt.Sprintf("add the unit, such as %q", d.sourceText(n)+"s")
	case n.Kind == jsonx.Int, n.Kind == jsonx.Float, n.Kind == jsonx.Bool:
		return fmt.Sprintf("put it in quotes: %q", d.sourceText(n))
	default:
		return ""
	}
}

// integer decodes what JSON Schema calls an integer, which includes 2.0.
func (d *decoder) integer(n *jsonx.Node, s *shape, v reflect.Value) {
	f, isNumber := float64(n.Int), n.Kind == jsonx.Int
	if n.Kind == jsonx.Float {
		f, isNumber = n.Float, n.Float == math.Trunc(n.Float)
	}
	if !isNumber {
		d.wrongKind(n, "a whole number"+between(s), unquoteHint(n))
		return
	}
	if f < *s.rule.min || f > *s.rule.max {
		d.add(n.Pos, "out-of-range", fmt.Sprintf("%s: want a whole number%s", d.describe(n), between(s)), "")
		return
	}
	v.SetInt(int64(f)) // exact within the bounds
}

func (d *decoder) number(n *jsonx.Node, s *shape, v reflect.Value) {
	f := n.Float
	switch n.Kind {
	case jsonx.Int:
		f = float64(n.Int)
	case jsonx.Float:
	default:
		d.wrongKind(n, "a number"+between(s), unquoteHint(n))
		return
	}
	if f < *s.rule.min || f > *s.rule.max {
		d.add(n.Pos, "out-of-range", fmt.Sprintf("%s: want a number%s", d.describe(n), between(s)), "")
		return
	}
	v.SetFloat(f)
}

func between(s *shape) string {
	return fmt.Sprintf(" from %s to %s", strconv.FormatFloat(*s.rule.min, 'f', -1, 64), strconv.FormatFloat(*s.rule.max, 'f', -1, 64))
}

func unquoteHint(n *jsonx.Node) string {
	if n.Kind == jsonx.String {
		if _, ok, _ := jsonx.ParseNumber(n.Text); ok {
			return "write it without quotes"
		}
	}
	return ""
}

func (d *decoder) raw(n *jsonx.Node, s *shape, v reflect.Value) {
	if s.rule.shape == jsonSchema && n.Kind != jsonx.Object {
		d.wrongKind(n, `a JSON Schema, which is an object such as {"type": "object"}`, "")
		return
	}
	if s.rule.shape == amount && !d.amount(n, s) {
		return
	}
	raw, err := jsonx.Canonical(n.Value())
	if err != nil {
		d.add(n.Pos, "bad-value", err.Error(), "")
		return
	}
	v.Set(reflect.ValueOf(json.RawMessage(raw)))
}

// maxAmount is the largest amount that is written as a number.
const maxAmount = 999_999_999_999

// amount reports whether a value is an amount of credits. A fraction is text, because a number
// is not kept exactly.
func (d *decoder) amount(n *jsonx.Node, s *shape) bool {
	f := float64(n.Int)
	switch n.Kind {
	case jsonx.String:
		if s.pattern.MatchString(n.Text) {
			return true
		}
	case jsonx.Float:
		if f = n.Float; f != math.Trunc(f) {
			break
		}
		fallthrough
	case jsonx.Int:
		if f >= 0 && f <= maxAmount {
			return true
		}
	}
	hint := ""
	if n.Kind == jsonx.Float {
		hint = fmt.Sprintf("put it in quotes: %q", d.sourceText(n))
	}
	d.add(n.Pos, "bad-amount", fmt.Sprintf("%s: want %s, or a whole number", d.describe(n), s.rule.pattern.want), hint)
	return false
}

func (d *decoder) list(n *jsonx.Node, s *shape, v reflect.Value) {
	if n.Kind != jsonx.Array {
		hint := ""
		if n.Kind == s.elem.kind() {
			hint = "put it in a list: [ ... ]"
		}
		d.wrongKind(n, "a list of "+s.elem.plural(), hint)
		return
	}
	if len(n.Children) < s.rule.minItems {
		d.add(n.Pos, "too-few", n.Key+" is empty: want at least one entry", "")
	}
	list := reflect.MakeSlice(v.Type(), len(n.Children), len(n.Children))
	for i, c := range n.Children {
		d.path.PushIndex(i)
		d.decode(c, s.elem, list.Index(i))
		d.path.Pop()
	}
	v.Set(list)
}

func (d *decoder) entries(n *jsonx.Node, s *shape, v reflect.Value) {
	if n.Kind != jsonx.Object {
		d.wrongKind(n, "an object of names and "+s.elem.plural(), "")
		return
	}
	m := reflect.MakeMapWithSize(v.Type(), len(n.Children))
	for _, c := range n.Children {
		d.path.Push(c.Key)
		item := reflect.New(v.Type().Elem()).Elem()
		d.decode(c, s.elem, item)
		m.SetMapIndex(reflect.ValueOf(c.Key), item)
		d.path.Pop()
	}
	v.Set(m)
}

func (d *decoder) object(n *jsonx.Node, o *object, v reflect.Value) {
	if n.Kind != jsonx.Object {
		d.wrongKind(n, objectNouns[o.name]+", which is an object", "")
		return
	}
	if step, ok := v.Addr().Interface().(*Step); ok {
		step.Ptr = d.path.Pointer()
	}
	seen := map[string]*jsonx.Node{}
	meant := map[string]bool{} // fields that a misspelt name probably means
	has := func(name string) bool {
		return slices.ContainsFunc(n.Children, func(c *jsonx.Node) bool { return c.Key == name })
	}
	for _, c := range n.Children {
		if seen[c.Key] != nil {
			continue // a duplicate, reported when the text was read
		}
		seen[c.Key] = c
		d.path.Push(c.Key)
		if f, ok := o.byName[c.Key]; ok {
			d.decode(c, f.shape, v.Field(f.index))
		} else if near := d.unknown(c, o); near != "" {
			// Decode it under its right name too: problems inside it are reported, and
			// the recovered recipe has it, so that fields that need it are not reported.
			f := o.byName[near]
			into, rename := reflect.New(v.Field(f.index).Type()).Elem(), !has(near) && !meant[near]
			if rename {
				into = v.Field(f.index)
				d.path.Pop()
				d.path.Push(near)
			}
			meant[near] = true
			d.decode(c, f.shape, into)
			if rename {
				c.Key = near // pointers into the recovered recipe use this name
			}
		}
		d.path.Pop()
	}
	for _, f := range o.fields {
		if f.shape.rule.required && seen[f.name] == nil && !meant[f.name] {
			d.add(at(n), "missing-field", fmt.Sprintf("%s needs the field %q", objectNouns[o.name], f.name), f.shape.rule.hint())
		}
	}
	for _, b := range o.bonds {
		d.checkConstraint(n, o, b, seen, meant)
	}
}

// unknown reports a field that o does not have and returns the one that was probably
// meant.
func (d *decoder) unknown(c *jsonx.Node, o *object) string {
	near := synonymOf(c.Key, o.names())
	if near == "" {
		near = nearest(c.Key, o.names())
	}
	hint := "known fields: " + strings.Join(o.names(), ", ")
	if near != "" {
		hint = "did you mean " + strconv.Quote(near) + "?"
	} else if inner := o.fieldsHolding(c.Key); inner != nil {
		hint = "it is a field of " + quoted(inner)
	}
	d.add(c.KeyPos, "unknown-field", fmt.Sprintf("%s has no field %q", objectNouns[o.name], shorten(c.Key)), hint)
	return near
}

// fieldsHolding returns the fields of o whose objects have a field of that name.
func (o *object) fieldsHolding(name string) []string {
	var found []string
	for _, f := range o.fields {
		if f.shape.object != nil && f.shape.object.byName[name] != nil {
			found = append(found, f.name)
		}
	}
	return found
}

func (d *decoder) checkConstraint(n *jsonx.Node, o *object, b constraint, seen map[string]*jsonx.Node, meant map[string]bool) {
	if b.oneOf == nil {
		if f := seen[b.field]; f != nil && f.Text == b.value && seen[b.needs] == nil && !meant[b.needs] {
			d.add(f.Pos, "missing-field", fmt.Sprintf("%s %q needs the field %q", b.field, b.value, b.needs), "")
		}
		return
	}
	var present []string
	guessed := false
	for _, name := range b.oneOf {
		if seen[name] != nil {
			present = append(present, name)
		}
		guessed = guessed || meant[name]
	}
	kind := seen[b.kindField]
	switch {
	case len(present) == 0 && guessed:
	case len(present) == 0 && kind != nil && slices.Contains(b.oneOf, kind.Text):
		d.add(kind.Pos, "step-kind", fmt.Sprintf("%s of type %q needs the field %q", objectNouns[o.name], kind.Text, kind.Text), "")
	case len(present) == 0:
		d.add(at(n), "step-kind", fmt.Sprintf("%s needs one of the fields %s", objectNouns[o.name], quoted(b.oneOf)), "")
	case len(present) > 1:
		d.add(seen[present[1]].KeyPos, "step-kind",
			fmt.Sprintf("%s has one of the fields %s, this one has %s", objectNouns[o.name], quoted(b.oneOf), strings.ReplaceAll(quoted(present), " or ", " and ")), "")
	case kind != nil && kind.Text != present[0] && slices.Contains(b.oneOf, kind.Text):
		d.add(kind.Pos, "step-kind", fmt.Sprintf("type %q does not fit: the step has the field %q", kind.Text, present[0]), "")
	}
}

// at returns the position of an object as a whole: that of its name, if it has one.
func at(n *jsonx.Node) jsonx.Pos {
	if n.KeyPos.Line > 0 {
		return n.KeyPos
	}
	return n.Pos
}

func (r rule) hint() string {
	if text, ok := r.example.(string); ok {
		return "for example " + strconv.Quote(text)
	}
	return ""
}

// kind returns the kind of node that a value of the shape is, if there is only one.
func (s *shape) kind() jsonx.Kind {
	switch s.form {
	case formList:
		return jsonx.Array
	case formObject, formMap:
		return jsonx.Object
	default:
		return jsonx.String
	}
}

// plural returns a word for values of the shape.
func (s *shape) plural() string {
	switch {
	case s.form == formList:
		return "lists"
	case s.object != nil:
		return strings.ToLower(s.object.name) + "s"
	case s.form == formRaw:
		return "values"
	default:
		return "texts"
	}
}

func label(n *jsonx.Node) string {
	if n.Key == "" {
		return ""
	}
	return n.Key + " "
}
