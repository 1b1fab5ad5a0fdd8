// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/roux-engine/roux/fault"
)

func renderTemplate(src string, v Vars) (any, error) {
	p, err := CompileTemplate(src)
	if err != nil {
		return nil, err
	}
	return p.Eval(v)
}

// X37, X39, X40, R11: {{ }} with filters, alone and in text, and the blocks.
func TestX37_X39_X40_R11_Templates(t *testing.T) {
	for _, tt := range []struct {
		src  string
		want any
	}{
		// A single placeholder keeps its type.
		{"{{ list }}", vars["list"]},
		{"{{big}}", int64(9007199254740993)},
		{"{{ null }}", nil},
		{"{{ ratio }}", 0.5},
		{"{{ inspection.extended.pageCount > 10 }}", true},
		{"{{- list -}}", vars["list"]},
		{"{{ {'a': {'b': 1}} }}", map[string]any{"a": map[string]any{"b": int64(1)}}},
		{"{{ multiply(inspection.extended.pageCount, 2) }}", int64(160)},
		{"{{ steps.fetch.status == 'completed' }}", true},
		{"{{ steps.fetch.output != null }}", true},
		// In text it is text.
		{" {{ big }}", " 9007199254740993"},
		{"{{ list }}{{ null }}", "[3,1,2]null"},
		{"a{{ true }}b{{ 1.0 }}c{{ 0.1 }}", "atrueb1c0.1"},
		{"{{ {'b': [1, 'x'], 'a': null} }} ", `{"a":null,"b":[1,"x"]} `},
		{"Dear {{ input.name }},\n{{steps['fetch-data'].output}}", "Dear Ada,\ndashed"},
		// Delimiters inside strings and brackets do not count.
		{"{{ '}}' }}{{ '%}' }}{{ \"{{\" }}", "}}%}{{"},
		{"{{ 'a\\'}}' }}.", "a'}}."},
		{"{{ r'\\' }}.", "\\."},
		{"{{ '''}}''' }}.", "}}."},
		{"{{ '|' + \"|\" | length }}", int64(2)},
		{"{{ true || false | tojson }}", "true"},
		{"{{ ['a|b', 'c'] | join('|') }}", "a|b|c"},
		{"{% if '%}' == '%}' %}ok{% endif %}", "ok"},
		{"{ {x} %} }} #}", "{ {x} %} }} #}"},
		// Filters.
		{"{{ nobody | default('d') }}", "d"},
		{"{{ input.nope.deep | default(1) }}", int64(1)},
		{"{{ list[9] | default(list[0]) }}", int64(3)},
		{"{{ '' | default('d') }}", ""},
		{"{{ '' | default('d', true) }}", "d"},
		{"{{ nobody | default(null) | default('x') }}", nil},
		{"{{ input.name | upper | lower }}", "ada"},
		{"{{ ' x ' | trim }}", "x"},
		{"{{ list | length }}", int64(3)},
		{"{{ 'añb' | length }}", int64(3)},
		{"{{ list | first }}", int64(3)},
		{"{{ list | last }}", int64(2)},
		{"{{ [] | first | default('none') }}", "none"},
		{"{{ 'a.b' | replace('.', '-') }}", "a-b"},
		{"{{ input | tojson }}", `{"fileHashes":["sha256_a"],"name":"Ada","parameters":{"lang":"de"}}`},
		{"{{ 2.5 | round }}", int64(3)},
		{"{{ -2.5 | round }}", int64(-3)},
		{"{{ 3.14159 | round(2) }}", 3.14},
		{"{{ 7 | round(2) }}", int64(7)},
		// Blocks.
		{"{% if list %}some{% else %}none{% endif %}", "some"},
		{"{% if null %}a{% elif '' %}b{% elif 0 %}c{% else %}d{% endif %}", "d"},
		{"{% for x in list %}{{ x }}{% if !loop.last %}, {% endif %}{% endfor %}", "3, 1, 2"},
		{"{% for x in list %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.length }}{{ loop.first }} {% endfor %}", "1033true 2123false 3213false "},
		{"{% for x in [] %}x{% else %}none{% endfor %}", "none"},
		{"{% for k, v in input.parameters %}{{ k }}={{ v }}{% endfor %}", "lang=de"},
		{"{% for k in {'b': 1, 'a': 2} %}{{ k }}{% endfor %}", "ab"},
		{"{% for a, b in [[1, 2], [3, 4]] %}{{ a + b }};{% endfor %}", "3;7;"},
		{"{% for x in list %}{% for y in list %}{{ x * y }} {% endfor %}{{ loop.index }};{% endfor %}", "9 3 6 1;3 1 2 2;6 2 4 3;"},
		{"{% for loop2 in list %}{{ 'loop' }}{{ {'loop': 1}.loop }}{% endfor %}", "loop1loop1loop1"},
		{"{% set a = 1 %}{% for x in list %}{% set a = a + x %}{{ a }} {% endfor %}{{ a }}", "4 2 3 1"},
		{"{% set s = input.name | upper %}{{ s }}", "ADA"},
		{"{% if true %}{% set in_if = 1 %}{% endif %}{{ in_if }}", "1"},
		{"a {#- comment {{ nobody }} -#} b", "ab"},
		{"a\n{%- if true -%}\n b \n{%- endif -%}\nc", "abc"},
		{"", ""},
		{"plain", "plain"},
	} {
		got, err := renderTemplate(tt.src, vars)
		if err != nil || !reflect.DeepEqual(got, tt.want) {
			t.Errorf("%q = %#v, %v; want %#v", tt.src, got, err, tt.want)
		}
	}
}

// R13: only the default filter accepts an absent value in a template.
func TestR13_TemplateErrors(t *testing.T) {
	for src, want := range map[string]string{
		"{{ nobody }}":                                         "undefined: nobody",
		"x {{ input.nope }}":                                   "no such key: nope",
		"{{ nobody | upper }}":                                 "undefined: nobody",
		"{{ nobody | upper | default('x') }}":                  "undefined: nobody",
		"{{ 1 / 0 | default(1) }}":                             "division by zero",
		"{{ nobody | default(nobody2) }}":                      "undefined: nobody2",
		"{% if nobody %}{% endif %}":                           "undefined: nobody",
		"{% for x in nobody %}{% endfor %}":                    "undefined: nobody",
		"{% for x in 5 %}{% endfor %}":                         "a loop over a number",
		"{% for a, b in list %}{% endfor %}":                   "2 variables",
		"{% for x in list %}{% endfor %}{{ x }}":               "undefined: x",
		"{% for x in [1] %}{% set y = 1 %}{% endfor %}{{ y }}": "undefined: y",
		"{{ 5 | upper }}":                                      "wants a text",
		"{{ 'x' | join }}":                                     "wants a list",
		"{{ 'x' | round }}":                                    "wants a number",
		"{{ 1.5 | round(99) }}":                                "digits",
		"{{ true | length }}":                                  "wants a text, a list or a map",
		"{{ [] | last }}":                                      "empty",
		"{% set = 1 %}":                                        "set needs a name",
		"{% set x %}y{% endset %}":                             "set needs a name",
		"{% for %}{% endfor %}":                                "no variable",
		"{% for x list %}{% endfor %}":                         `no "in"`,
		"{% if true %}":                                        "not closed by {% endif %}",
		"{% if true %}{% endfor %}":                            "found {% endfor %}, want {% endif %}",
		"{% endif %}":                                          "without a block that it closes",
		"{% else %}":                                           "without a block that it closes",
		"{% while true %}":                                     "unknown block",
		"{{ 1":                                                 "not closed by }}",
		"{# x":                                                 "not closed by #}",
		"{% if x":                                              "not closed by %}",
		"{{ }}":                                                "an expression is missing",
		"{{ | upper }}":                                        "an expression is missing",
		"{{ 1 | }}":                                            "unknown filter",
		"{{ 1 | shell('ls') }}":                                "unknown filter",
		"{{ 1 | upper(2) }}":                                   "takes no argument",
		"{{ 1 | default }}":                                    "1 to 2 arguments",
		"{{ 1 | default(1 }}":                                  "want (arguments)",
		"{{ a and b }}":                                        "CEL writes &&",
		"{{ loop.index }}":                                     "loop",
	} {
		_, err := renderTemplate(src, vars)
		if !errors.Is(err, fault.TemplateError) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want TEMPLATE_ERROR with %q", src, err, want)
		}
	}
}

// A13, I20: a value is data. Text from users and outputs of steps that look like templates
// are never evaluated.
func TestA13_I20_SinglePass(t *testing.T) {
	evil := vars["evil"].(string)
	for src, want := range map[string]any{
		"{{ evil }}":                evil,
		"<{{ evil }}>":              "<" + evil + ">",
		"{% set a = evil %}{{ a }}": evil,
		"{% for x in [evil] %}{{ x }}{% endfor %}":  evil,
		"{{ '{{' + ' input.name ' + '}}' }}":        "{{ input.name }}",
		"{{ nobody | default(evil) }}":              evil,
		"{{ [evil, evil] | join('') }}":             evil + evil,
		"{{ evil | replace('input', 'nobody') }}":   strings.ReplaceAll(evil, "input", "nobody"),
		"{{ '{' }}{{ '{ input.name }' }}{{ '}' }}":  "{{ input.name }}",
		"{{ '{%' }} if true {{ '%}' }}":             "{% if true %}",
		"{{ evil | upper | lower | trim | first }}": "{",
		"{{ {evil: evil} }}":                        map[string]any{evil: evil},
	} {
		got, err := renderTemplate(src, vars)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q = %#v, %v; want %#v", src, got, err, want)
		}
	}
	tree, err := CompileTree([]byte(`{"a": "{{ evil }}", "b": {"{{ input.name }}": "x"}}`))
	if err != nil {
		t.Fatal(err)
	}
	got, err := tree.Eval(vars)
	want := map[string]any{"a": evil, "b": map[string]any{"{{ input.name }}": "x"}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("tree = %#v, %v", got, err)
	}
}

func TestIsTemplate(t *testing.T) {
	for s, want := range map[string]bool{
		"": false, "{": false, "}}": false, "a { {b} }": false, "{{": true, "x{%": true, "{#": true,
		"{{{": true, "{x{{": true, "{x}{": false,
	} {
		if got := IsTemplate(s); got != want {
			t.Errorf("IsTemplate(%q) = %v", s, got)
		}
	}
}
