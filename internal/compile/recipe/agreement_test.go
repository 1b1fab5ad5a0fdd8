// SPDX-License-Identifier: Apache-2.0

package recipe

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"sort"
	"testing"

	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

func compileSchema(t *testing.T) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{})
	if err := c.AddResource("mem:///recipe", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("mem:///recipe")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSchemaAgreesWithParse mutates documents as value trees and checks that the published
// schema and Parse agree on whether each is a recipe (A07: no validator accepts what the
// engine reads differently).
func TestSchemaAgreesWithParse(t *testing.T) {
	schema := compileSchema(t)
	documents := 20_000
	if os.Getenv("ROUX_LONG") != "" {
		documents = 500_000
	}
	m := &mutator{r: rand.New(rand.NewPCG(2, 11))}
	accepted, disagreements := 0, 0
	covered := map[string]int{}
	for i := range documents {
		doc := m.recipe()
		for range m.r.IntN(4) {
			doc = m.mutate(doc, root)
		}
		text, err := jsonx.Canonical(doc)
		if err != nil {
			t.Fatal(err)
		}
		value, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
		if err != nil {
			t.Fatal(err)
		}
		invalid := schema.Validate(value)
		r, _, diags := Parse("m.json", text, Options{})
		if r != nil {
			accepted++
			cover(reflect.ValueOf(r).Elem(), covered)
		}
		if (invalid == nil) != (r != nil) {
			disagreements++
			if disagreements <= 5 {
				t.Errorf("document %d: schema says %v, Parse says %v\n%s", i, invalid, diags, text)
			}
		}
	}
	if disagreements > 0 {
		t.Fatalf("%d disagreements in %d documents", disagreements, documents)
	}
	// The comparison is meaningful only if both results are frequent and every field has
	// been accepted at least once.
	if accepted < documents/10 || accepted > documents*9/10 {
		t.Errorf("%d of %d documents were accepted: the mutations are too weak or too wild", accepted, documents)
	}
	for key := range rules {
		if covered[key] == 0 {
			t.Errorf("no accepted document had the field %s", key)
		}
	}
	t.Logf("%d documents, %d accepted, %d disagreements", documents, accepted, disagreements)
}

// cover counts the fields of the model that are set.
func cover(v reflect.Value, seen map[string]int) {
	switch v.Kind() {
	case reflect.Pointer:
		if !v.IsNil() {
			cover(v.Elem(), seen)
		}
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[json.RawMessage]() {
			return
		}
		for i := range v.Len() {
			cover(v.Index(i), seen)
		}
	case reflect.Struct:
		o := objects()[v.Type().Name()]
		for _, f := range o.fields {
			// A number that was written as 0 cannot be told from an absent one.
			if item := v.Field(f.index); !item.IsZero() {
				seen[o.name+"."+f.name]++
				cover(item, seen)
			}
		}
	}
}

// objects returns all objects of the model by name.
func objects() map[string]*object {
	all := map[string]*object{}
	var visit func(*shape)
	visit = func(s *shape) {
		switch {
		case s.elem != nil:
			visit(s.elem)
		case s.object != nil && all[s.object.name] == nil:
			all[s.object.name] = s.object
			for _, f := range s.object.fields {
				visit(f.shape)
			}
		}
	}
	visit(root)
	return all
}

// A mutator generates value trees from the shapes of the model, then mutates them.
type mutator struct{ r *rand.Rand }

func (m *mutator) recipe() any {
	v := m.object(root.object, 0)
	if m.r.IntN(10) == 0 {
		return map[string]any{"plan_definition": v}
	}
	return v
}

func (m *mutator) pick(list []string) string { return list[m.r.IntN(len(list))] }

// value generates a value that fits the shape.
func (m *mutator) value(s *shape, depth int) any {
	switch s.form {
	case formText:
		switch {
		case s.rule.enum != nil:
			return m.pick(s.rule.enum)
		case s.rule.pattern == idPattern:
			return m.pick([]string{"a", "fetch-data", "step_1", "0", "-"})
		case s.rule.pattern == bindingPattern:
			return m.pick([]string{"a", "_x", "markdown"})
		case s.rule.pattern == semverPattern, s.rule.pattern == versionPattern:
			return m.pick([]string{"1.0.0", "0.1.0-rc.1+x", "12.3.4"})
		case s.rule.pattern == refPattern:
			return m.pick([]string{"digest", "a b@1", "x@1.2", "y@1.2.3-rc.1"})
		case s.rule.pattern == pathPattern:
			return m.pick([]string{"final", "a.b.c", "fetch-data.0"})
		case s.rule.pattern == codePattern:
			return m.pick([]string{"A", "TOO_LARGE", "x.y-z"})
		default:
			return m.pick([]string{"x", "a.b == 1", "ä\u0000\"", " x "})
		}
	case formDuration:
		return m.pick([]string{"5m", "1.5h", "42m30s", "250ms", "PT5M", "P1DT2H", "P2W", "1h30m"})
	case formBool:
		return m.r.IntN(2) == 0
	case formInt:
		return m.between(s)
	case formNumber:
		return *s.rule.min + m.r.Float64()*(*s.rule.max-*s.rule.min)
	case formRaw:
		switch s.rule.shape {
		case anyValue:
			return m.scalar()
		case amount:
			return []any{"0.1", "12", int64(0), int64(7), 2.0}[m.r.IntN(5)]
		}
		return map[string]any{"type": "object", "x": m.scalar()}
	case formList:
		list := []any{}
		if s.elem.rule.short != "" && m.r.IntN(2) == 0 {
			list = append(list, m.value(s.elem.object.byName[s.elem.rule.short].shape, depth+1))
		}
		for range s.rule.minItems + m.r.IntN(3) {
			list = append(list, m.value(s.elem, depth+1))
		}
		return list
	case formMap:
		o := map[string]any{}
		for range m.r.IntN(3) {
			o[m.pick([]string{"a", "b c", "", "ü"})] = m.value(s.elem, depth+1)
		}
		return o
	default:
		if s.rule.toggle && m.r.IntN(2) == 0 {
			return m.r.IntN(2) == 0
		}
		return m.object(s.object, depth)
	}
}

func (m *mutator) between(s *shape) any {
	switch low, high := int64(*s.rule.min), int64(*s.rule.max); m.r.IntN(3) {
	case 0:
		return low
	case 1:
		return high
	default:
		return low + m.r.Int64N(min(high-low, 10)+1)
	}
}

func (m *mutator) object(o *object, depth int) any {
	v := map[string]any{}
	chosen := map[string]bool{}
	for _, b := range o.bonds {
		if b.oneOf != nil {
			// Beyond some depth only kinds that hold no steps.
			kinds := b.oneOf
			if o.name == "Step" && depth > 4 {
				kinds = []string{"action", "transform", "wait", "fail", "recipe"}
			}
			if o.name == "Child" && depth > 4 {
				kinds = []string{"ref", "file"}
			}
			kind := m.pick(kinds)
			chosen[kind] = true
			if b.kindField != "" && m.r.IntN(2) == 0 {
				v[b.kindField] = kind
			}
		}
	}
	exclusive := func(name string) bool {
		for _, b := range o.bonds {
			if slices.Contains(b.oneOf, name) || b.kindField == name {
				return true
			}
		}
		return false
	}
	for _, f := range o.fields {
		wanted := f.shape.rule.required || m.r.IntN(6) == 0 && (depth <= 6 || f.shape.object == nil)
		if chosen[f.name] || wanted && !exclusive(f.name) {
			v[f.name] = m.value(f.shape, depth+1)
		}
	}
	for _, b := range o.bonds {
		if b.oneOf == nil && v[b.field] == b.value {
			v[b.needs] = m.value(o.byName[b.needs].shape, depth+1)
		}
	}
	return v
}

// scalar generates values that violate types, ranges and patterns.
func (m *mutator) scalar() any {
	all := []any{
		nil, true, false, int64(0), int64(-1), int64(1), int64(2), int64(64), int64(65), int64(1<<53 - 1), int64(1 << 53), int64(1 << 62),
		0.0, 0.5, 1.0, 1.5, -0.5, 2.0, 1e3, 1e18, 1e300, "", " ", "x", "X", "a b", "a/b", "..", "\u202e", "5m", "5", "-5m", "0s", "0.5ms",
		"P1Y", "PT", "P", "PT0S", "1h1h", "5M", "pt5m", "0.001s", "0.0001s", "1234567890s", "999999999h", "1d", "5mm", " 5m", "5m\n", "PT1.5S", "P1W2D",
		"all", "ALL", "some", "active", "fallback", "retry", "fixed", "per_file", "calculated", "action", "wait", "1.0", "01.0.0", "1.0.0", "v1", "x@", "x@1.2.3.4", "@1", "a..b", ".a", "a@b@1",
		[]any{}, map[string]any{}, []any{"a"}, []any{int64(1)}, map[string]any{"a": "b"}, map[string]any{"a": int64(1)}, string(make([]byte, 65)),
	}
	return all[m.r.IntN(len(all))]
}

// mutate changes one place of a tree, guided by the shape where it still fits.
func (m *mutator) mutate(v any, s *shape) any {
	if m.r.IntN(12) == 0 {
		return m.scalar()
	}
	switch v := v.(type) {
	case map[string]any:
		return m.mutateObject(v, s)
	case []any:
		if len(v) == 0 || m.r.IntN(6) == 0 {
			return append(slices.Clone(v), m.scalar())
		}
		i := m.r.IntN(len(v))
		if m.r.IntN(6) == 0 {
			return slices.Delete(slices.Clone(v), i, i+1)
		}
		v = slices.Clone(v)
		v[i] = m.mutate(v[i], elem(s))
		return v
	default:
		if s != nil && m.r.IntN(3) == 0 {
			return m.value(s, 5)
		}
		return m.scalar()
	}
}

func elem(s *shape) *shape {
	if s == nil {
		return nil
	}
	return s.elem
}

func (m *mutator) mutateObject(v map[string]any, s *shape) any {
	names := make([]string, 0, len(v))
	copied := map[string]any{}
	for name, item := range v {
		names = append(names, name)
		copied[name] = item
	}
	sort.Strings(names) // map order would make the run differ from run to run
	inner := func(name string) *shape {
		switch {
		case s == nil:
			return nil
		case s.object != nil && s.object.byName[name] != nil:
			return s.object.byName[name].shape
		case name == "plan_definition":
			return root
		default:
			return s.elem
		}
	}
	switch choice := m.r.IntN(10); {
	case choice == 0 && len(names) > 0:
		delete(copied, m.pick(names))
	case choice == 1 && len(names) > 0: // a name that is nearly right
		name := m.pick(names)
		item := copied[name]
		delete(copied, name)
		copied[m.pick([]string{name + "s", name + "_", "x" + name, fmt.Sprintf("%.3s", name)})] = item
	case choice == 2 && s != nil && s.object != nil: // any field of the object, well formed
		f := s.object.fields[m.r.IntN(len(s.object.fields))]
		copied[f.name] = m.value(f.shape, 5)
	case choice == 3 && s != nil && s.object != nil:
		f := s.object.fields[m.r.IntN(len(s.object.fields))]
		copied[f.name] = m.scalar()
	case choice == 4:
		copied[m.pick([]string{"workflow", "nodes", "edges", "plan_definition", "dialect", "zzz", ""})] = m.scalar()
	case len(names) > 0:
		name := m.pick(names)
		copied[name] = m.mutate(copied[name], inner(name))
	}
	return copied
}
