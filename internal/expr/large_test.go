// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"

	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"

	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/jsonschema"
	"github.com/roux-engine/roux/internal/jsonx"
)

var (
	bigText  = jsonx.Large{Hash: "sha256_" + strings.Repeat("a", 64), Size: 3_000_000, Bytes: 3_100_000}
	otherBig = jsonx.Large{Hash: "sha256_" + strings.Repeat("b", 64), Size: 3_000_000, Bytes: 3_100_000}
	smallBig = jsonx.Large{Hash: "sha256_" + strings.Repeat("c", 64), Size: 3, Bytes: 3}
	bigList  = jsonx.Large{Hash: "sha256_" + strings.Repeat("d", 64), List: true, Size: 2, Bytes: 2_000_000}
)

func largeVars() MapVars {
	return MapVars{
		"read":  map[string]any{"output": map[string]any{"text": bigText, "again": bigText, "other": otherBig, "three": smallBig, "list": bigList, "title": "T"}},
		"pages": []any{map[string]any{"page": int64(1), "text": bigText}, map[string]any{"page": int64(2), "text": "short"}},
		"whole": bigText,
	}
}

// What an expression can do with a value in a file (design section 7).
func TestLargeValues(t *testing.T) {
	for _, tt := range []struct {
		src  string
		want any
	}{
		{"read.output.text", bigText},
		{"whole", bigText},
		{"read.output", largeVars()["read"].(map[string]any)["output"]},
		{`{"a": read.output.text, "b": [read.output.list]}`, map[string]any{"a": bigText, "b": []any{bigList}}},
		{"pages[0].text", bigText},
		{"pages.map(p, p.text)[0]", bigText},
		{"true ? whole : ''", bigText},
		{"read.output.text.size", int64(3_000_000)},
		{"read.output['text'].size > 10", true},
		{"read.output.list.size", int64(2)},
		{"size(read.output.text) + read.output.list.size()", int64(3_000_002)},
		{"pages.map(p, p.text.size)", []any{int64(3_000_000), int64(5)}},
		{"pages.filter(p, p.text.size > 9).size", int64(1)},
		{"has(read.output.text)", true},
		{"read.output.text == read.output.again", true},
		{"read.output.text != read.output.again", false},
		{"read.output.text == read.output.other", false},
		{"read.output.text == read.output.list", false},
		{"read.output.text != ''", true},
		{"'' == read.output.text", false},
		{"read.output.text == null || read.output.list == [] || read.output.text == 3000000", false},
		{"read.output.three == 'abcd'", false},
		{"read.output.list == ['a', 'b', 'c']", false},
		{"[whole] == [read.output.text]", true},
		{"[whole] == ['x']", false},
		{"{'a': whole, 'b': 1} == {'a': read.output.text, 'b': 2}", false},
		{"whole in [1, read.output.again]", true},
		{"'x' in [whole]", false},
		{"pages == pages", true},
		{"sets.contains([whole, 1], [read.output.text])", true},
		{"[whole, read.output.text].distinct().size()", int64(1)},
		// .size works for inline values too, so that a recipe need not distinguish them.
		{"read.output.title.size", int64(1)},
		{"pages.size", int64(2)},
		{"{'size': 7}.size", int64(7)},
	} {
		p, err := Compile(tt.src)
		if err != nil {
			t.Errorf("%s: %v", tt.src, err)
			continue
		}
		if got, err := p.Eval(largeVars()); err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%s = %v, %v; want %v", tt.src, got, err, tt.want)
		}
	}
}

// An access to the content is an error with the name of the value and a remedy.
func TestLargeValuesAreOpaque(t *testing.T) {
	const text, list = "read.output.text is a text of 3,000,000 characters", "read.output.list is a list of 2 elements"
	for src, want := range map[string]string{
		"read.output.text.hash":                                text,
		"has(read.output.text.size)":                           "the value is a text of 3,000,000 characters", // has() is an error for an inline text too, which has no fields
		"read.output.list.?size.orValue(0)":                    list,
		"read.output.list[?0].orValue(1)":                      list,
		"read.output['text']['size']":                          text,
		"read.output.text['x']":                                text,
		"read.output.text[0]":                                  text,
		"has(read.output.text.foo) ? 1 : read.output.text.foo": text,
		"read.output.list[0]":                                  list,
		"read.output.list[0].name":                             list,
		"read.output.list.exists(x, x == 1)":                   list,
		"read.output.list.map(x, 1)":                           list,
		"read.output.list.filter(x, true)":                     list,
		"read.output.list + [1]":                               list,
		"[1] + read.output.list":                               list,
		"1 in read.output.list":                                list,
		"read.output.list.reverse()":                           list,
		"read.output.list.join(',')":                           list,
		"read.output.list.sort()":                              list,
		"read.output.list.slice(0, 1)":                         list,
		"read.output.list == ['a', 'b']":                       list,
		"[read.output.list] == [['a', 'b']]":                   list,
		"[['a', 'b']] == [read.output.list]":                   list,
		"['a', 'b'] != read.output.list":                       list,
		"['a', 'b'] in [read.output.list]":                     list,
		"read.output.text + 'x'":                               text,
		"'x' + read.output.text":                               text,
		"read.output.text.contains('x')":                       text,
		"'x'.contains(read.output.text)":                       text,
		"read.output.text.startsWith('x')":                     text,
		"read.output.text.endsWith('x')":                       text,
		"read.output.text.matches('x')":                        text,
		"read.output.text.split(',')":                          text,
		"read.output.text.replace('a', 'b')":                   text,
		"read.output.text.upperAscii()":                        text,
		"read.output.text.substring(1)":                        text,
		"read.output.text.indexOf('x')":                        text,
		"read.output.text.charAt(0)":                           text,
		"read.output.text < 'x'":                               text,
		"'x' < read.output.text":                               text,
		"string(read.output.text)":                             text,
		"int(read.output.text)":                                text,
		"timestamp(read.output.text)":                          text,
		"[read.output.text, 'x'].join(',')":                    text,
		"[read.output.text, 'x'].sort()":                       text,
		"-read.output.text":                                    text,
		"!read.output.text":                                    text,
		"read.output.three == 'abc'":                           "read.output.three is a text of 3 characters",
		"pages.map(p, p.text.contains('x'))":                   "pages[0].text is a text of 3,000,000 characters",
		"pages.exists(p, p.text.startsWith('s'))":              "", // true: another page decides
	} {
		p, err := Compile(src)
		if err != nil {
			t.Errorf("%s: %v", src, err)
			continue
		}
		got, err := p.Eval(largeVars())
		if want == "" {
			if err != nil && !errors.Is(err, fault.ValueTooLarge) {
				t.Errorf("%s: %v", src, err)
			}
			continue
		}
		if !errors.Is(err, fault.ValueTooLarge) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "in file sha256_") {
			t.Errorf("%s = %v, %v\nwant VALUE_TOO_LARGE: … %s", src, got, err, want)
		}
	}
	_, err := mustCompile(t, "read.output.text.split(',')").Eval(largeVars())
	const whole = `VALUE_TOO_LARGE: "read.output.text.split(',')": read.output.text is a text of 3,000,000 characters, which is kept in file sha256_`
	if !strings.HasPrefix(err.Error(), whole) || !strings.HasSuffix(err.Error(),
		": expressions can read its .size and pass it on; an action such as text-split, text-replace or word-count reaches inside") {
		t.Errorf("said %v", err)
	}
	_, err = mustCompile(t, "read.output.list[0]").Eval(largeVars())
	if !strings.HasSuffix(err.Error(), "a loop runs over it, and an action such as json-path reaches inside") {
		t.Errorf("said %v", err)
	}
}

func mustCompile(t *testing.T, src string) *Program {
	t.Helper()
	p, err := Compile(src)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A single placeholder passes a large value on; a template refuses to render it as text.
func TestLargeValuesInTemplates(t *testing.T) {
	for src, want := range map[string]any{
		"{{ read.output.text }}":                       bigText,
		"{{ read.output.text | default('') }}":         bigText,
		"{{ read.output.nothing | default(whole) }}":   bigText,
		"{{ read.output.text | length }}":              int64(3_000_000),
		"{{ read.output.text.size }} characters":       "3000000 characters",
		"{% if whole %}yes{% endif %}":                 "yes",
		"{{ [whole] | first }}":                        bigText,
		"{% set x = whole %}{{ x.size }}":              "3000000",
		"{% for p in pages %}{{ p.page }}{% endfor %}": "12",
	} {
		p, err := CompileTemplate(src)
		if err != nil {
			t.Errorf("%s: %v", src, err)
			continue
		}
		if got, err := p.Eval(largeVars()); err != nil || got != want {
			t.Errorf("%s = %v, %v; want %v", src, got, err, want)
		}
	}
	for _, src := range []string{
		"Text: {{ read.output.text }}", "{{ read.output }} as JSON", "{{ [whole] | join(',') }}", "{{ read.output | tojson }}", "{{ whole | tojson }}",
		"{{ whole | upper }}", "{{ whole | trim }}", "{{ whole | first }}", "{{ whole | round }}", "{{ whole | replace('a', 'b') }}",
		"{{ 'a' | replace('a', whole) }}", "{% for x in read.output.list %}{{ x }}{% endfor %}", "{% for a, b in [whole] %}{% endfor %}",
		"{{ whole | join(',') }}", "{% set x = whole %}{{ x }}",
	} {
		p, err := CompileTemplate(src)
		if err != nil {
			t.Errorf("%s: %v", src, err)
			continue
		}
		if got, err := p.Eval(largeVars()); !errors.Is(err, fault.ValueTooLarge) || !strings.Contains(err.Error(), "in file sha256_") {
			t.Errorf("%s = %v, %v; want VALUE_TOO_LARGE", src, got, err)
		}
	}
	tree, err := CompileTree([]byte(`{"text":"{{ whole }}","n":1,"list":["{{ read.output.list }}"]}`))
	if err != nil {
		t.Fatal(err)
	}
	if got, err := tree.Eval(largeVars()); err != nil || !reflect.DeepEqual(got, map[string]any{"text": bigText, "n": int64(1), "list": []any{bigList}}) {
		t.Errorf("%v, %v", got, err)
	}
	tree, _ = CompileTree([]byte(`{"text":"= {{ whole }}"}`))
	if _, err := tree.Eval(largeVars()); !errors.Is(err, fault.ValueTooLarge) || !strings.Contains(err.Error(), "/text: ") || !strings.Contains(err.Error(), "whole is a text") {
		t.Errorf("%v", err)
	}
}

// A13: no expression can create a value that would be read as a reference.
func TestA13_ReferencesAreNotForged(t *testing.T) {
	for _, src := range []string{
		`{"$roux": "ref", "hash": key, "type": "string", "size": 1, "bytes": 1}`, `{key: 1}`, `[{key: 1}]`, `{"a": {key: 1}}`,
	} {
		got, err := mustCompile(t, src).Eval(MapVars{"key": "$roux"})
		if !errors.Is(err, fault.TemplateError) || !strings.Contains(err.Error(), `"$roux" is reserved`) {
			t.Errorf("%s = %v, %v", src, got, err)
		}
	}
	for _, raw := range []string{`{"$roux":1}`, `{"a":[{"$roux":"{{ x }}"}]}`} {
		if _, err := CompileTree([]byte(raw)); err == nil || !strings.Contains(err.Error(), `"$roux" is reserved`) {
			t.Errorf("%s: %v", raw, err)
		}
		if ps := CheckTree([]byte(raw), nil); len(ps) == 0 {
			t.Errorf("%s passes the check", raw)
		}
	}
}

// The checker supports .size and refuses nothing that works.
func TestCheckOfSize(t *testing.T) {
	env := &Env{Vars: map[string]json.RawMessage{
		"text": json.RawMessage(`{"type":"string"}`), "list": json.RawMessage(`{"type":"array","items":{"type":"string"}}`),
		"obj": json.RawMessage(`{"type":"object","properties":{"a":{"type":"string"}},"additionalProperties":false}`),
	}}
	for src, ok := range map[string]bool{
		"text.size > 3": true, "list.size": true, "obj.a.size": true, "list.all(x, x.size > 1)": true, "size(text)": true,
		"text.length": false, "obj.size": false, "text.size.foo + obj.b": false,
	} {
		if ps := Check(src, false, env, ""); (len(ps) == 0) != ok {
			t.Errorf("%s: %v", src, ps)
		}
	}
}

// A schema checks only the type of a large value, because the worker has checked its
// content.
func TestContractsOfLargeValues(t *testing.T) {
	s, err := jsonschema.Compile([]byte(`{"type":"object","properties":{
		"text":{"type":"string","minLength":1,"pattern":"^x","maxLength":5},
		"list":{"type":"array","items":{"type":"integer"},"minItems":9},
		"n":{"type":"integer"}},"required":["text"]}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := s.Validate(map[string]any{"text": bigText, "list": bigList, "n": int64(1)}); got != nil {
		t.Errorf("%v", got)
	}
	for _, v := range []map[string]any{{"text": bigList}, {"text": bigText, "list": bigText}, {"text": bigText, "n": bigText}, {"list": bigList}} {
		if got := s.Validate(v); len(got) != 1 {
			t.Errorf("%v: %v", v, got)
		}
	}
}

// A watched list counts accesses to its elements.
type watched struct {
	traits.Lister
	looks *int
}

func (w watched) Get(i ref.Val) ref.Val {
	*w.looks++
	return w.Lister.Get(i)
}

// A11: the work of a comparison is proportional to its cost: a large list that differs at
// once, or is compared with a word, is not walked.
func TestA11_ComparingCostsItsPrice(t *testing.T) {
	var elems []ref.Val
	for i := range 50_000 {
		elems = append(elems, types.Int(i))
	}
	looks := 0
	long := watched{types.NewRefValList(types.DefaultTypeAdapter, elems), &looks}
	other := types.NewRefValList(types.DefaultTypeAdapter, append([]ref.Val{types.Int(-1)}, elems[1:]...))
	word := types.String("x")
	words := types.NewRefValList(types.DefaultTypeAdapter, []ref.Val{word})
	for name, work := range map[string]func(){
		"list == word":          func() { equal(long, word) },
		"word == list":          func() { equal(word, long) },
		"list == another":       func() { equal(long, other) },
		"list in words":         func() { contains(words, long) },
		"cost of list == word":  func() { compareCost(long, word) },
		"cost of word == list":  func() { compareCost(word, long) },
		"cost of list in words": func() { costIn([]ref.Val{long, words}) },
	} {
		looks = 0
		work()
		if looks > 1_000 {
			t.Errorf("%s looks at %d elements", name, looks)
		}
	}
	if n := compareCost(long, long); n < 50_000 {
		t.Errorf("comparing two lists of 50,000 costs %d", n)
	}
	if n := costIn([]ref.Val{word, long}); n < 50_000 {
		t.Errorf("looking for a word among 50,000 elements costs %d", n)
	}
}
