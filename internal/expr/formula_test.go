// SPDX-License-Identifier: Apache-2.0

package expr

import (
	"errors"
	"testing"

	"github.com/roux-engine/roux/fault"
)

// R14, X148: integers stay integers; an integer and a double give a double.
func TestR14_Formula(t *testing.T) {
	vars := MapVars{
		"pageCount": int64(12), "sizeBytes": int64(3 << 20), "size_mb": 2.5, "base_cost": int64(10),
		"page_count": int64(4), "per_page_cost": int64(5), "per_mb_cost": int64(2),
	}
	for _, tt := range []struct {
		src  string
		want any
	}{
		{"10 + (pageCount*5) + (sizeBytes/1048576*2)", int64(76)},
		{"base_cost + page_count * per_page_cost + size_mb * per_mb_cost", 35.0},
		{"7 / 2", int64(3)},
		{"7 / 2.0", 3.5},
		{"1 - 0.25 * 2", 0.5},
		{"pageCount > 10 ? base_cost * 1.5 : 0.0", 15.0},
	} {
		p, err := CompileFormula(tt.src)
		if err != nil {
			t.Errorf("%s: %v", tt.src, err)
			continue
		}
		if got, err := p.Eval(vars); err != nil || got != tt.want {
			t.Errorf("%s = %v (%T), %v; want %v", tt.src, got, got, err, tt.want)
		}
	}
	if _, err := CompileFormula("1 +"); !errors.Is(err, fault.TemplateError) {
		t.Errorf("half a formula: %v", err)
	}
	if p, err := CompileFormula("pages * 2"); err != nil {
		t.Error(err)
	} else if _, err := p.Eval(vars); !errors.Is(err, fault.TemplateError) {
		t.Errorf("an unknown name: %v", err)
	}
}
