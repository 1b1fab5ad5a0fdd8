// SPDX-License-Identifier: Apache-2.0

package jsonschema

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/jsonx"
)

var fastSchemas = []string{
	`true`, `{}`, `{"type":"object"}`, `{"type":["string","null"]}`, `{"type":"integer","minimum":0,"maximum":9}`, `{"type":"number"}`, `{"minimum":3}`,
	`{"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"string","enum":["x","y"]}},"required":["a"],"additionalProperties":false}`,
	`{"properties":{"a":{"items":{"type":"string"}},"b":true,"f":{"type":"string","format":"file"}},"title":"t","description":"d","default":{}}`,
	`{"enum":["x"]}`, `{"type":"array","items":{"type":"object","required":["a"]}}`, `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"boolean"}`,
	`{"properties":{},"additionalProperties":false}`, `{"format":"file"}`,
}

var otherSchemas = []string{
	`false`, `{"type":"string","minLength":1}`, `{"anyOf":[{}]}`, `{"$ref":"#"}`, `{"const":1}`, `{"enum":[1]}`, `{"format":"date"}`, `{"minimum":1.5}`,
	`{"properties":{"a":{"pattern":"x"}}}`, `{"additionalProperties":{"type":"string"}}`, `{"items":{"type":"string","maxLength":2}}`,
	`{"$schema":"http://json-schema.org/draft-07/schema#"}`, `{"not":{}}`, `{"properties":{"a":false}}`,
}

// The library finds no violation in a value that the fast path accepts (X172).
func TestQuickSchemaOnlyAgrees(t *testing.T) {
	dice := rand.New(rand.NewPCG(1, 2))
	var draw func(depth int) any
	draw = func(depth int) any {
		most := 12
		if depth == 0 {
			most = 9
		}
		switch dice.IntN(most) {
		case 0:
			return nil
		case 1:
			return dice.IntN(2) == 0
		case 2, 3:
			return int64(dice.IntN(12) - 1)
		case 4:
			return float64(dice.IntN(8)) / 2
		case 5, 6:
			return []string{"x", "y", "", "sha256_" + strings.Repeat("a", 64)}[dice.IntN(4)]
		case 7:
			return jsonx.Large{Hash: "sha256_" + strings.Repeat("a", 64), Size: 5, Bytes: 5}
		case 8:
			return map[string]any{}
		case 9:
			return []any{draw(depth - 1), draw(depth - 1)}
		}
		m := map[string]any{}
		for range dice.IntN(4) {
			m[[]string{"a", "b", "f", "z"}[dice.IntN(4)]] = draw(depth - 1)
		}
		return m
	}
	for _, src := range fastSchemas {
		s, err := Compile([]byte(src))
		if err != nil {
			t.Fatal(err)
		}
		if s.fast == nil {
			t.Errorf("the fast path does not support %s", src)
			continue
		}
		whole, err := compile([]byte(src))
		if err != nil {
			t.Fatal(err)
		}
		yes := 0
		for range 3_000 {
			v := draw(3)
			if !s.fast.fits(v) {
				continue
			}
			yes++
			if bad := whole.check(v); bad != nil {
				t.Fatalf("%s takes %s, the library says %+v", src, fmt.Sprint(v), bad)
			}
		}
		if yes == 0 {
			t.Errorf("%s never fits", src)
		}
	}
	for _, src := range otherSchemas {
		if s, err := Compile([]byte(src)); err != nil || s.fast != nil {
			t.Errorf("the fast path supports %s (%v)", src, err)
		}
	}
}
