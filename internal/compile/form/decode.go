// SPDX-License-Identifier: Apache-2.0

package form

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
	"github.com/roux-engine/roux/internal/plan"
)

// A Placed value is told the JSON pointer of the object that it is decoded from.
type Placed interface{ SetPlace(pointer string) }

// A Decoder fills values from the tree of a text and reports everything that does not fit. It
// continues after a problem, so that a person can fix all of them at once.
type Decoder struct {
	file    string
	src     *Source
	path    jsonx.Path
	diags   []fault.Diagnostic
	always  Instead
	instead []Instead
}

// Instead may decode an object within a document in its own way, and reports whether it has. v is a
// pointer to what the object is decoded into.
type Instead func(d *Decoder, n *jsonx.Node, v any) bool

// Always has a function look at each object within the document, and within those that it has
// decoded. It is set once.
func (d *Decoder) Always(f Instead) { d.always = f }

// Pointer returns the JSON pointer of what is being decoded.
func (d *Decoder) Pointer() string { return d.path.Pointer() }

// Refuse reports a field that this program cannot use.
func (d *Decoder) Refuse(n *jsonx.Node, rule, msg, hint string) {
	d.path.Push(n.Key)
	d.report(fault.NotAvailable, n.KeyPos, rule, msg, hint)
	d.path.Pop()
}

// maxKept bounds the problems kept while reading; at most MaxDiagnostics are returned.
const maxKept = 10_000

// Add adds a problem at the place that is being decoded.
func (d *Decoder) Add(pos jsonx.Pos, rule, msg, hint string) {
	d.report(fault.RecipeInvalid, pos, rule, msg, hint)
}

// AddSemantic adds a problem to those of [Source.SemanticErrors]: at a JSON pointer relative to n, which is being
// decoded.
func (d *Decoder) AddSemantic(code fault.Code, n *jsonx.Node, pointer, rule, msg, hint string) {
	pos := n.Pos
	if at := n.Find(pointer); at != nil {
		pos = at.Pos
	}
	d.src.addSemantic(fault.Diagnostic{Code: code, Rule: rule, Msg: msg, Hint: hint, Pos: place(d.file, pos), Pointer: d.path.Pointer() + pointer})
}

func (d *Decoder) report(code fault.Code, pos jsonx.Pos, rule, msg, hint string) {
	if len(d.diags) < maxKept {
		d.diags = append(d.diags, fault.Diagnostic{
			Code: code, Rule: rule, Msg: msg, Hint: hint,
			Pos: place(d.file, pos), Pointer: d.path.Pointer(),
		})
	}
}

func place(file string, p jsonx.Pos) fault.Pos {
	return fault.Pos{File: file, Line: int(p.Line), Col: int(p.Col), Len: int(p.Len)}
}

// wrongKind reports a value of the wrong kind.
func (d *Decoder) wrongKind(n *jsonx.Node, want, hint string) {
	d.Add(n.Pos, "wrong-type", fmt.Sprintf("%s: want %s", d.describe(n), want), hint)
}

// describe returns the field and its value for messages.
func (d *Decoder) describe(n *jsonx.Node) string {
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
func (d *Decoder) sourceText(n *jsonx.Node) string {
	line := []rune(d.src.Line(int(n.Pos.Line)))
	from := min(int(n.Pos.Col)-1, len(line))
	return shorten(string(line[from:min(from+int(n.Pos.Len), len(line))]))
}

func (d *Decoder) decode(n *jsonx.Node, s *shape, v reflect.Value) {
	if n.Kind == jsonx.Refused || n.Kind == jsonx.Null && s.rule.Null {
		return
	}
	if v.Kind() == reflect.Pointer {
		if s.rule.Toggle && n.Kind == jsonx.Bool && !n.Bool {
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
		if d.other(n, v) {
			return
		}
		f := s.object.byName[s.rule.Short]
		switch {
		case s.rule.Toggle && n.Kind == jsonx.Bool: // true
		case s.rule.Toggle && n.Kind != jsonx.Object:
			d.wrongKind(n, "true, false or "+s.object.noun+", which is an object", "")
		case f != nil && n.Kind == jsonx.String:
			d.decode(n, f.shape, v.FieldByIndex(f.index))
		case f != nil && n.Kind != jsonx.Object:
			d.wrongKind(n, fmt.Sprintf("%s, which is text or an object with %q", s.object.noun, f.name), d.quoteHint(n, f.shape))
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

func (d *Decoder) text(n *jsonx.Node, s *shape, v reflect.Value) {
	if n.Kind != jsonx.String {
		d.wrongKind(n, wantText(s), d.quoteHint(n, s))
		return
	}
	v.SetString(n.Text)
	switch {
	case s.form == formDuration:
		ms, err := plan.ParseDuration(n.Text)
		switch {
		case err != nil:
			d.Add(n.Pos, "bad-duration", label(n)+err.Error(), "")
		case s.rule.Positive && ms == 0:
			d.Add(n.Pos, "bad-duration", d.describe(n)+": want a duration longer than zero", "")
		}
	case s.rule.Enum != nil:
		if !slices.Contains(s.rule.Enum, n.Text) {
			d.Add(n.Pos, "unknown-value", d.describe(n)+": want "+quoted(s.rule.Enum), didYouMean(n.Text, s.rule.Enum))
		}
	case s.pattern != nil && !s.pattern.MatchString(n.Text):
		d.Add(n.Pos, "bad-text", d.describe(n)+": want "+s.rule.Pattern.Want, "")
	}
}

func wantText(s *shape) string {
	switch {
	case s.form == formDuration:
		return `a duration such as "5m"`
	case s.rule.Enum != nil:
		return quoted(s.rule.Enum)
	case s.rule.Pattern != nil && s.rule.Pattern != Text:
		return s.rule.Pattern.Want
	default:
		return "text"
	}
}

// quoteHint returns a hint for a scalar that should be text.
func (d *Decoder) quoteHint(n *jsonx.Node, s *shape) string {
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
func (d *Decoder) integer(n *jsonx.Node, s *shape, v reflect.Value) {
	f, isNumber := float64(n.Int), n.Kind == jsonx.Int
	if n.Kind == jsonx.Float {
		f, isNumber = n.Float, n.Float == math.Trunc(n.Float)
	}
	if !isNumber {
		d.wrongKind(n, "a whole number"+between(s), unquoteHint(n))
		return
	}
	if f < *s.rule.Min || f > *s.rule.Max {
		d.Add(n.Pos, "out-of-range", fmt.Sprintf("%s: want a whole number%s", d.describe(n), between(s)), "")
		return
	}
	v.SetInt(int64(f)) // exact within the bounds
}

func (d *Decoder) number(n *jsonx.Node, s *shape, v reflect.Value) {
	f := n.Float
	switch n.Kind {
	case jsonx.Int:
		f = float64(n.Int)
	case jsonx.Float:
	default:
		d.wrongKind(n, "a number"+between(s), unquoteHint(n))
		return
	}
	if f < *s.rule.Min || f > *s.rule.Max {
		d.Add(n.Pos, "out-of-range", fmt.Sprintf("%s: want a number%s", d.describe(n), between(s)), "")
		return
	}
	v.SetFloat(f)
}

func between(s *shape) string {
	return fmt.Sprintf(" from %s to %s", strconv.FormatFloat(*s.rule.Min, 'f', -1, 64), strconv.FormatFloat(*s.rule.Max, 'f', -1, 64))
}

func unquoteHint(n *jsonx.Node) string {
	if n.Kind == jsonx.String {
		if _, ok, _ := jsonx.ParseNumber(n.Text); ok {
			return "write it without quotes"
		}
	}
	return ""
}

func (d *Decoder) raw(n *jsonx.Node, s *shape, v reflect.Value) {
	if s.rule.Shape == JSONSchema && n.Kind != jsonx.Object {
		d.wrongKind(n, `a JSON Schema, which is an object such as {"type": "object"}`, "")
		return
	}
	if s.rule.Shape == Amount && !d.amount(n, s) {
		return
	}
	raw, err := jsonx.Canonical(n.Value())
	if err != nil {
		d.Add(n.Pos, "bad-value", err.Error(), "")
		return
	}
	v.Set(reflect.ValueOf(json.RawMessage(raw)))
}

// maxAmount is the largest amount that is written as a number.
const maxAmount = 999_999_999_999

// amount reports whether a value is an amount of credits. A fraction is text, because a number
// is not kept exactly.
func (d *Decoder) amount(n *jsonx.Node, s *shape) bool {
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
	d.Add(n.Pos, "bad-amount", fmt.Sprintf("%s: want %s, or a whole number", d.describe(n), s.rule.Pattern.Want), hint)
	return false
}

func (d *Decoder) list(n *jsonx.Node, s *shape, v reflect.Value) {
	if n.Kind != jsonx.Array {
		hint := ""
		if n.Kind == s.elem.kind() {
			hint = "put it in a list: [ ... ]"
		}
		d.wrongKind(n, "a list of "+s.elem.plural(), hint)
		return
	}
	if len(n.Children) < s.rule.MinItems {
		d.Add(n.Pos, "too-few", n.Key+" is empty: want at least one entry", "")
	}
	list := reflect.MakeSlice(v.Type(), len(n.Children), len(n.Children))
	for i, c := range n.Children {
		d.path.PushIndex(i)
		d.decode(c, s.elem, list.Index(i))
		d.path.Pop()
	}
	v.Set(list)
}

func (d *Decoder) entries(n *jsonx.Node, s *shape, v reflect.Value) {
	if n.Kind != jsonx.Object {
		d.wrongKind(n, "an object of names and "+s.elem.plural(), "")
		return
	}
	m := reflect.MakeMapWithSize(v.Type(), len(n.Children))
	for _, c := range n.Children {
		d.path.Push(c.Key)
		d.entry(c, s, m)
		d.path.Pop()
	}
	v.Set(m)
}

// entry adds a value to a map under its name.
func (d *Decoder) entry(n *jsonx.Node, s *shape, m reflect.Value) {
	item := reflect.New(m.Type().Elem()).Elem()
	d.decode(n, s.elem, item)
	m.SetMapIndex(reflect.ValueOf(n.Key), item)
}

func (d *Decoder) object(n *jsonx.Node, o *object, v reflect.Value) {
	if n.Kind != jsonx.Object {
		d.wrongKind(n, o.noun+", which is an object", "")
		return
	}
	if p, ok := v.Addr().Interface().(Placed); ok {
		p.SetPlace(d.path.Pointer())
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
			d.field(c, f.shape.pick(n), v.FieldByIndex(f.index))
		} else if o.rest != nil {
			all := v.FieldByIndex(o.rest.index)
			if all.IsNil() {
				all.Set(reflect.MakeMap(all.Type()))
			}
			d.entry(c, o.rest.shape, all)
		} else if near := d.unknown(c, o); near != "" {
			// Decode it under its right name too: problems inside it are reported, and
			// the recovered recipe has it, so that fields that need it are not reported.
			f := o.byName[near]
			into, rename := reflect.New(v.FieldByIndex(f.index).Type()).Elem(), !has(near) && !meant[near]
			if rename {
				into = v.FieldByIndex(f.index)
				d.path.Pop()
				d.path.Push(near)
			}
			meant[near] = true
			d.field(c, f.shape.pick(n), into)
			if rename {
				c.Key = near // pointers into the recovered recipe use this name
			}
		}
		d.path.Pop()
	}
	for _, f := range o.fields {
		if f.shape.rule.Required && seen[f.name] == nil && !meant[f.name] && seen[f.shape.rule.Unless] == nil {
			d.Add(at(n), "missing-field", fmt.Sprintf("%s needs the field %q", o.noun, f.name), f.shape.rule.hint())
		}
	}
	for _, b := range o.bonds {
		d.checkConstraint(n, o, b, seen, meant)
	}
}

// other reports whether an object was decoded in another way.
func (d *Decoder) other(n *jsonx.Node, v reflect.Value) bool {
	if n.Kind != jsonx.Object {
		return false
	}
	for _, f := range d.instead {
		if f(d, n, v.Addr().Interface()) {
			return true
		}
	}
	return d.always != nil && d.always(d, n, v.Addr().Interface())
}

// field decodes a field of an object. A variant is a pointer to what it is.
func (d *Decoder) field(n *jsonx.Node, s *shape, v reflect.Value) {
	if v.Kind() != reflect.Interface {
		d.decode(n, s, v)
		return
	}
	p := reflect.New(s.of)
	d.decode(n, s, p.Elem())
	v.Set(p)
}

// unknown reports a field that o does not have and returns the one that was probably
// meant.
func (d *Decoder) unknown(c *jsonx.Node, o *object) string {
	near := synonymOf(c.Key, o.names())
	if near == "" {
		near = Nearest(c.Key, o.names())
	}
	hint := "known fields: " + strings.Join(o.names(), ", ")
	if near != "" {
		hint = "did you mean " + strconv.Quote(near) + "?"
	} else if inner := o.fieldsHolding(c.Key); inner != nil {
		hint = "it is a field of " + quoted(inner)
	}
	d.Add(c.KeyPos, "unknown-field", fmt.Sprintf("%s has no field %q", o.noun, shorten(c.Key)), hint)
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

func (d *Decoder) checkConstraint(n *jsonx.Node, o *object, b Constraint, seen map[string]*jsonx.Node, meant map[string]bool) {
	if b.AnyOf != nil {
		if f := seen[b.Field]; b.Field != "" && (f == nil || f.Text != b.Value) {
			return
		}
		if !slices.ContainsFunc(b.AnyOf, func(name string) bool { return seen[name] != nil || meant[name] }) {
			d.Add(at(n), "missing-field", fmt.Sprintf("%s needs one of the fields %s", o.noun, quoted(b.AnyOf)), "")
		}
		return
	}
	if b.OneOf == nil {
		if f := seen[b.Field]; f != nil && f.Text == b.Value && seen[b.Needs] == nil && !meant[b.Needs] {
			d.Add(f.Pos, "missing-field", fmt.Sprintf("%s %q needs the field %q", b.Field, b.Value, b.Needs), "")
		}
		return
	}
	var present []string
	guessed := false
	for _, name := range b.OneOf {
		if seen[name] != nil {
			present = append(present, name)
		}
		guessed = guessed || meant[name]
	}
	kind := seen[b.KindField]
	switch {
	case len(present) == 0 && guessed:
	case len(present) == 0 && kind != nil && slices.Contains(b.OneOf, kind.Text):
		d.Add(kind.Pos, "step-kind", fmt.Sprintf("%s of type %q needs the field %q", o.noun, kind.Text, kind.Text), "")
	case len(present) == 0:
		d.Add(at(n), "step-kind", fmt.Sprintf("%s needs one of the fields %s", o.noun, quoted(b.OneOf)), "")
	case len(present) > 1:
		d.Add(seen[present[1]].KeyPos, "step-kind",
			fmt.Sprintf("%s has one of the fields %s, this one has %s", o.noun, quoted(b.OneOf), strings.ReplaceAll(quoted(present), " or ", " and ")), "")
	case kind != nil && kind.Text != present[0] && slices.Contains(b.OneOf, kind.Text):
		d.Add(kind.Pos, "step-kind", fmt.Sprintf("type %q does not fit: the step has the field %q", kind.Text, present[0]), "")
	}
}

// at returns the position of an object as a whole: that of its name, if it has one.
func at(n *jsonx.Node) jsonx.Pos {
	if n.KeyPos.Line > 0 {
		return n.KeyPos
	}
	return n.Pos
}

func (r Rule) hint() string {
	if text, ok := r.Example.(string); ok {
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
