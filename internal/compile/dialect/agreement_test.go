// SPDX-License-Identifier: Apache-2.0

package dialect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

func compileSchema(t *testing.T, text []byte) *jsonschema.Schema {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.UseLoader(jsonschema.SchemeURLLoader{})
	if err := c.AddResource("mem:///schema", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("mem:///schema")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSchemaAgreesWithParse mutates documents as value trees and checks that the published schema
// of each dialect and Parse agree on whether each is a text of it (A07: no validator accepts what the
// engine reads differently).
func TestSchemaAgreesWithParse(t *testing.T) {
	documents := 8_000
	if os.Getenv("ROUX_LONG") != "" {
		documents = 500_000
	}
	for _, l := range All() {
		t.Run(l.Name, func(t *testing.T) {
			t.Parallel()
			schema := compileSchema(t, l.Schema())
			m := &mutator{r: rand.New(rand.NewPCG(2, 11)), covered: map[string]int{}, compiled: map[uintptr]*jsonschema.Schema{}}
			if err := json.Unmarshal(l.Schema(), &m.root); err != nil {
				t.Fatal(err)
			}
			m.defs = m.root["$defs"].(map[string]any)
			accepted, disagreements := 0, 0
			for i := range documents {
				doc := m.value(m.root, 0)
				if step, ok := m.defs["Step"].(map[string]any)["else"].(map[string]any); ok && l.Name == "pipeline" && i%4 == 0 {
					// Steps of recipes are rare there.
					doc = map[string]any{"workflow": map[string]any{"name": "a", "steps": []any{map[string]any{
						"name": "a", "type": "fail", "onError": map[string]any{"strategy": "fallback", "fallbackStep": m.value(step, 3)},
					}}}}
				}
				for range m.r.IntN(4) {
					doc = m.mutate(doc, m.root)
				}
				if o, ok := doc.(map[string]any); ok && dialectOf(t, o) != l.Name {
					continue // it has become one of another dialect
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
				r, _, diags := Parse("m.json", text, form.Options{})
				if r != nil {
					accepted++
					m.cover(doc, m.root)
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
			for name, def := range m.defs {
				if strings.Contains(name, ".") || name == "document" || name == "unwrapped" {
					continue // of documents within, which have a test as texts of their own
				}
				for _, o := range m.ways(def.(map[string]any)) {
					properties, _ := o["properties"].(map[string]any)
					for field := range properties {
						if m.covered[name+"."+field] == 0 && (l.Name != "pipeline" || name+"."+field != "Step.type") { // with it, it is no Step there
							t.Errorf("no accepted document had the field %s.%s", name, field)
						}
					}
				}
			}
			t.Logf("%d documents, %d accepted, %d disagreements", documents, accepted, disagreements)
		})
	}
}

func dialectOf(t *testing.T, doc any) string {
	t.Helper()
	text, err := jsonx.Canonical(doc)
	if err != nil {
		t.Fatal(err)
	}
	n, _ := jsonx.Parse(text, jsonx.Limits{})
	name, _ := tell(form.Unwrapped(n))
	return name
}

// A mutator generates value trees from a schema, then mutates them.
type mutator struct {
	r          *rand.Rand
	root, defs map[string]any
	covered    map[string]int                 // by definition and field
	compiled   map[uintptr]*jsonschema.Schema // by the address of their map
}

func (m *mutator) pick(list []string) string { return list[m.r.IntN(len(list))] }

// ref follows a reference. name is that of the definition; "" = it is none.
func (m *mutator) ref(s map[string]any) (to map[string]any, name string) {
	if ref, ok := s["$ref"].(string); ok {
		name = ref[len("#/$defs/"):]
		return m.defs[name].(map[string]any), name
	}
	return s, ""
}

// ways are the schemas of which a value fits one.
func (m *mutator) ways(s map[string]any) []map[string]any {
	var list []map[string]any
	add := func(v any) {
		if o, ok := v.(map[string]any); ok {
			list = append(list, o)
		}
	}
	any, _ := s["anyOf"].([]any)
	for _, v := range any {
		add(v)
	}
	if s["if"] != nil {
		add(s["then"])
		add(s["else"])
	}
	if list == nil {
		list = append(list, s)
	}
	return list
}

// samples are values of texts that have a pattern, beside its example.
var samples = []string{"a", "fetch-data", "step_1", "_x", "1.0.0", "12.3.4", "digest", "a b@1", "x@1.2", "a.b.c", "TOO_LARGE", "5m", "1.5h", "42m30s", "250ms", "PT5M", "P1DT2H", "P2W", "1h30m", "a.b == 1", "ä\u0000\"", " x ",
	"pipeline", "for_loop", "set_variable", "transform", "condition", "parallel", "wait", "fail", "claude"}

// value generates a value that fits a schema.
func (m *mutator) value(s map[string]any, depth int) any {
	s, _ = m.ref(s)
	if ways := m.ways(s); len(ways) > 1 || s["if"] != nil {
		return m.value(ways[m.r.IntN(len(ways))], depth)
	}
	if enum, ok := s["enum"].([]any); ok {
		return enum[m.r.IntN(len(enum))]
	}
	switch s["type"] {
	case "string":
		examples, _ := s["examples"].([]any)
		if s["pattern"] == nil {
			return m.pick(samples)
		}
		for range 20 {
			if text := m.pick(samples); m.matches(s, text) && (depth <= 4 || !slices.Contains(scopes, text)) {
				return text
			}
		}
		if len(examples) > 0 {
			return examples[0]
		}
		return "a"
	case "boolean":
		return m.r.IntN(2) == 0
	case "integer":
		return m.between(s)
	case "number":
		low, high := s["minimum"].(float64), s["maximum"].(float64)
		return low + m.r.Float64()*(high-low)
	case "array":
		list := []any{}
		least, _ := s["minItems"].(float64)
		for range int(least) + m.r.IntN(3) {
			list = append(list, m.value(s["items"].(map[string]any), depth+1))
		}
		return list
	case "object":
		return m.object(s, depth)
	}
	if examples, ok := s["examples"].([]any); ok && m.r.IntN(2) == 0 {
		return examples[0]
	}
	return m.scalar()
}

// matches reports whether a value fits a schema without references.
func (m *mutator) matches(s map[string]any, v any) bool {
	at := reflect.ValueOf(s).Pointer()
	schema := m.compiled[at]
	if schema == nil {
		c := jsonschema.NewCompiler()
		if err := c.AddResource("mem:///s", s); err != nil {
			panic(err)
		}
		schema = c.MustCompile("mem:///s")
		m.compiled[at] = schema
	}
	return schema.Validate(plain(v)) == nil
}

// plain returns a value as the validator knows it.
func plain(v any) any {
	if n, ok := v.(int64); ok {
		return json.Number(strconv.FormatInt(n, 10))
	}
	o, ok := v.(map[string]any)
	if !ok {
		return v
	}
	copied := make(map[string]any, len(o)) // conditions look at fields and their texts alone
	for name, item := range o {
		if _, ok := item.(string); !ok {
			item = nil
		}
		copied[name] = item
	}
	return copied
}

func (m *mutator) between(s map[string]any) any {
	switch low, high := int64(s["minimum"].(float64)), int64(s["maximum"].(float64)); m.r.IntN(3) {
	case 0:
		return low
	case 1:
		return high
	default:
		return low + m.r.Int64N(min(high-low, 10)+1)
	}
}

// scopes are fields and values that hold more steps, which are not chosen beyond some depth.
var scopes = []string{"condition", "parallel", "loop", "inline", "recipe", "fallbackStep", "fallback", "then", "else", "branches", "pipeline", "for_loop", "steps"}

// object generates an object: what it must have, and some of the rest.
func (m *mutator) object(s map[string]any, depth int) any {
	v := map[string]any{}
	properties, _ := s["properties"].(map[string]any)
	if each, ok := s["additionalProperties"].(map[string]any); ok {
		for range m.r.IntN(3) {
			v[m.pick([]string{"a", "b c", "", "ü"})] = m.value(each, depth+1)
		}
		if properties == nil {
			return v
		}
	}
	rules, _ := s["allOf"].([]any)
	exclusive := map[string]bool{}
	for _, rule := range rules {
		if one, ok := rule.(map[string]any)["oneOf"].([]any); ok {
			var names []string
			for _, o := range one {
				name := o.(map[string]any)["required"].([]any)[0].(string)
				if exclusive[name] = true; depth <= 7 || !slices.Contains(scopes, name) {
					names = append(names, name)
				}
			}
			name := m.pick(names)
			v[name] = m.value(properties[name].(map[string]any), depth+1)
			exclusive["type"] = true
			if kind, ok := properties["type"].(map[string]any); ok && m.r.IntN(2) == 0 && m.matches(kind, name) {
				v["type"] = name
			}
		}
	}
	required, _ := s["required"].([]any)
	for _, rule := range rules {
		if one, ok := rule.(map[string]any)["anyOf"].([]any); ok && m.r.IntN(8) > 0 { // the first, unless there is the second
			required = append(slices.Clone(required), one[0].(map[string]any)["required"].([]any)...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		p := properties[name].(map[string]any)
		inner, _ := m.ref(p)
		wanted := slices.Contains(required, any(name)) || m.r.IntN(6) == 0 && (depth <= 6 || inner["type"] != "object" && inner["if"] == nil) && (depth <= 4 || !slices.Contains(scopes, name))
		if v[name] == nil && wanted && !exclusive[name] {
			v[name] = m.value(p, depth+1)
		}
	}
	for _, rule := range rules {
		m.conditional(v, rule.(map[string]any), properties, depth)
	}
	return v
}

// conditional applies a rule about fields whose form, or presence, depends on another one.
func (m *mutator) conditional(v map[string]any, rule, properties map[string]any, depth int) {
	cond, ok := rule["if"].(map[string]any)
	if !ok {
		return
	}
	by := cond["required"].([]any)[0].(string)
	is := cond["properties"].(map[string]any)[by].(map[string]any)
	if one, ok := is["enum"].([]any); ok && m.r.IntN(2*len(one)) == 0 && rule["then"] != nil && (depth <= 4 || !slices.Contains(scopes, one[0].(string))) {
		v[by] = one[0]
	}
	branch, _ := rule["else"].(map[string]any)
	if text, ok := v[by].(string); ok && (is["const"] == text || slices.Contains(asList(is["enum"]), any(text))) {
		branch, _ = rule["then"].(map[string]any)
	}
	if need, ok := branch["required"].([]any); ok && v[need[0].(string)] == nil {
		if p, ok := properties[need[0].(string)].(map[string]any); ok && p["type"] != nil || ok && p["$ref"] != nil {
			v[need[0].(string)] = m.value(p, depth+1)
		}
	}
	inner, _ := branch["properties"].(map[string]any)
	for name, p := range inner {
		v[name] = m.value(p.(map[string]any), depth+1)
	}
}

func asList(v any) []any {
	list, _ := v.([]any)
	return list
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

// within returns the schema of a field of a value, or of an entry of a list; nil = it is not known.
func (m *mutator) within(v any, s map[string]any, name string) map[string]any {
	for _, way := range m.fitting(v, s) {
		if p, ok := way["properties"].(map[string]any); ok && p[name] != nil {
			found := p[name].(map[string]any)
			rules, _ := way["allOf"].([]any)
			for _, rule := range rules { // of a field whose form depends on another one
				cond, ok := rule.(map[string]any)["if"].(map[string]any)
				if !ok {
					continue
				}
				by := cond["required"].([]any)[0].(string)
				is := cond["properties"].(map[string]any)[by].(map[string]any)
				branch, _ := rule.(map[string]any)["else"].(map[string]any)
				if text, ok := v.(map[string]any)[by].(string); ok && slices.Contains(asList(is["enum"]), any(text)) {
					branch, _ = rule.(map[string]any)["then"].(map[string]any)
				}
				if inner, ok := branch["properties"].(map[string]any); ok && inner[name] != nil {
					return inner[name].(map[string]any)
				}
			}
			return found
		}
		if each, ok := way["additionalProperties"].(map[string]any); ok {
			return each
		}
		if items, ok := way["items"].(map[string]any); ok && name == "" {
			return items
		}
	}
	return nil
}

// fitting are the schemas that may be meant for a value.
func (m *mutator) fitting(v any, s map[string]any) []map[string]any {
	s, _ = m.ref(s)
	if cond, ok := s["if"].(map[string]any); ok {
		branch := "else"
		if m.matches(cond, v) {
			branch = "then"
		}
		return m.fitting(v, s[branch].(map[string]any))
	}
	list := []map[string]any{}
	for _, way := range m.ways(s) {
		way, _ = m.ref(way)
		list = append(list, way)
	}
	return list
}

// mutate changes one place of a tree, guided by the schema where it still fits.
func (m *mutator) mutate(v any, s map[string]any) any {
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
		inner := m.within(v, s, "")
		v = slices.Clone(v)
		v[i] = m.mutate(v[i], inner)
		return v
	default:
		if s != nil && m.r.IntN(3) == 0 {
			return m.value(s, 5)
		}
		return m.scalar()
	}
}

func (m *mutator) mutateObject(v, s map[string]any) any {
	names, copied := slices.Sorted(maps.Keys(v)), maps.Clone(v)
	var fields []string
	for _, way := range m.fitting(v, s) {
		properties, _ := way["properties"].(map[string]any)
		fields = append(fields, slices.Sorted(maps.Keys(properties))...)
	}
	switch choice := m.r.IntN(10); {
	case choice == 0 && len(names) > 0:
		delete(copied, m.pick(names))
	case choice == 1 && len(names) > 0: // a name that is nearly right
		name := m.pick(names)
		item := copied[name]
		delete(copied, name)
		copied[m.pick([]string{name + "s", name + "_", "x" + name, fmt.Sprintf("%.3s", name)})] = item
	case choice == 2 && len(fields) > 0: // any field of the object, well formed
		name := m.pick(fields)
		copied[name] = m.value(m.within(v, s, name), 5)
	case choice == 3 && len(fields) > 0:
		copied[m.pick(fields)] = m.scalar()
	case choice == 4:
		copied[m.pick([]string{"workflow", "nodes", "edges", "handler", "plan_definition", "dialect", "zzz", ""})] = m.scalar()
	case len(names) > 0:
		name := m.pick(names)
		copied[name] = m.mutate(copied[name], m.within(v, s, name))
	}
	return copied
}

// cover counts the fields of a document.
func (m *mutator) cover(v any, s map[string]any) {
	if s == nil {
		return
	}
	switch v := v.(type) {
	case map[string]any:
		for _, way := range m.fitting(v, s) {
			for name, def := range m.defs {
				for _, o := range m.ways(def.(map[string]any)) {
					if same(o, way) {
						for field := range v {
							m.covered[name+"."+field]++
						}
					}
				}
			}
		}
		for name, item := range v {
			m.cover(item, m.within(v, s, name))
		}
	case []any:
		for _, item := range v {
			m.cover(item, m.within(v, s, ""))
		}
	}
}

func same(a, b map[string]any) bool {
	return fmt.Sprintf("%p", a) == fmt.Sprintf("%p", b)
}
