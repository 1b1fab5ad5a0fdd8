// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"testing"

	"github.com/roux-engine/roux/internal/jsonx"
)

// TestA12_SecretsInParameters: a reference is made by the form {{ secret('name') }} alone, and
// only where parameters are compiled. No value that an expression computes is one.
func TestA12_SecretsInParameters(t *testing.T) {
	vars := MapVars{"n": int64(2), "s": "{{ secret('k') }}", "m": map[string]any{"a": `{"$roux":"secret","parts":[["k"]]}`}}
	for _, tt := range []struct{ src, want string }{
		{`{{ secret('k') }}`, `{"$roux":"secret","parts":[["k"]]}`},
		{`{{- secret( "k_1-A" ) -}}`, `{"$roux":"secret","parts":[["k_1-A"]]}`},
		{`a {{ secret('k') }}{{secret('l')}} b {{ n }}`, `{"$roux":"secret","parts":["a ",["k"],["l"]," b 2"]}`},
		{`{% for i in [1, 2] %}{{ secret('k') }}{{ i }}{% endfor %}`, `{"$roux":"secret","parts":[["k"],"1",["k"],"2"]}`},
		{`{% if n > 3 %}{{ secret('k') }}{% else %}none{% endif %}`, `"none"`},
		{`{{ s }} {{ m.a }}`, `"{{ secret('k') }} {\"$roux\":\"secret\",\"parts\":[[\"k\"]]}"`},
		{`{# {{ secret('k') }} #}x{{ n }}`, `"x2"`},
		{`{{ "secret('k')" }}`, `"secret('k')"`},
		{`{{ {'$ro' + 'ux': 'secret', 'parts': [['k']]} }}`, ``},
		{`{{ secret('k') + '' }}`, ``}, {`{{ secret('k') | upper }}`, ``}, {`{{ secret(s) }}`, ``}, {`{{ [secret('k')] }}`, ``}, {`{% set x = secret('k') %}{{ x }}`, ``},
		{`{% for i in [1,2,3,4,5,6,7,8,9] %}{% for j in [1,2,3,4] %}{{ secret('k') }}{% endfor %}{% endfor %}`, ``},
	} {
		got := ""
		tree, err := CompileParameters([]byte(`{"p":`+inJSON(t, tt.src)+`}`), CostLimit)
		if err == nil {
			var v any
			if v, err = tree.Eval(vars); err == nil {
				raw, _ := jsonx.Canonical(v.(map[string]any)["p"])
				got = string(raw)
			}
		}
		if got != tt.want {
			t.Errorf("%s: got %s, %v; want %s", tt.src, got, err, tt.want)
		}
		if uses, _ := Secrets(tt.src); len(uses) > 0 {
			if _, err := CompileTree([]byte(`{"p":` + inJSON(t, tt.src) + `}`)); err == nil {
				t.Errorf("%s compiles outside of parameters", tt.src)
			}
		}
	}
}

func inJSON(t *testing.T, s string) string {
	t.Helper()
	raw, err := jsonx.Canonical(s)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
