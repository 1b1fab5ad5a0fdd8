// SPDX-License-Identifier: Apache-2.0

package expressions

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/roux-engine/roux/internal/expr"
)

// A selection names what CEL finds in it.
func TestSelectionsNameWhatCELFinds(t *testing.T) {
	found := 0
	rapid.Check(t, func(t *rapid.T) {
		src := "steps" + strings.Join(rapid.SliceOfN(rapid.OneOf(
			rapid.SampledFrom([]string{".a", ".output", "['b c']", `["d"]`, ".in", ".true", "[0]", "[a]", ".é", "['']", `['\n']`, "['\x00']", "['a\"b']", ".9", "..", "[", "'", " ", ".a()"}),
			rapid.Map(rapid.StringMatching(`[a-z_]{1,3}`), func(s string) string { return "." + s }),
		), 0, 5).Draw(t, "parts"), "")
		path := Selection(src)
		if path == nil {
			return
		}
		found++
		p, err := expr.Compile(src)
		if err != nil {
			t.Fatalf("%q: CEL refuses it: %v", src, err)
		}
		if refs := p.Refs(); len(refs) != 1 || refs[0].Name != "steps" || fmt.Sprint(refs[0].Path) != fmt.Sprint(path) || refs[0].Dynamic || refs[0].Offset != 0 || refs[0].Len != 5 {
			t.Fatalf("%q: CEL finds %+v, the selection is %q", src, refs, path)
		}
	})
	if found == 0 {
		t.Error("no selection was drawn")
	}
}
