// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"regexp"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonx"
)

// Design section 7: the actions that VALUE_TOO_LARGE recommends exist and
// accept values too large for an expression.
func TestActionsThatReachInside(t *testing.T) {
	p, err := expr.Compile("x + x")
	if err != nil {
		t.Fatal(err)
	}
	named := 0
	for _, list := range []bool{false, true} {
		_, err := p.Eval(expr.MapVars{"x": jsonx.Large{Hash: "sha256_" + strings.Repeat("0", 64), List: list, Size: 9, Bytes: 9}})
		_, advice, _ := strings.Cut(err.Error(), "an action such as ")
		for _, name := range regexp.MustCompile(`[a-z]+-[a-z]+`).FindAllString(advice, -1) {
			input := string(find(t, name).Input)
			if want := map[bool]string{false: `"text"`, true: `"value"`}[list]; !strings.Contains(input, want) {
				t.Errorf("%s takes no %s: %s", name, want, input)
			}
			named++
		}
	}
	if named != 4 {
		t.Errorf("%d actions are named", named)
	}
}
