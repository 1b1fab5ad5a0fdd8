// SPDX-License-Identifier: Apache-2.0

package roux_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/roux-engine/roux"
)

// TestX214_X237_Isolation: a child run reads its own bindings, and those of its parent only if the step hands its
// context on, with its own first; whatever it binds, those of its parent stay as they are. A name that neither has
// is refused before anything runs.
func TestX214_X237_Isolation(t *testing.T) {
	e, err := roux.Open(t.Context(), roux.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	names := []string{"a", "b", "c", "d"}
	rapid.Check(t, func(rt *rapid.T) {
		of := rapid.MapOf(rapid.SampledFrom(names), rapid.IntRange(0, 9))
		above, own := of.Draw(rt, "above"), of.Draw(rt, "own")
		reads := rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, 4, rapid.ID).Draw(rt, "reads")
		inherits := rapid.Bool().Draw(rt, "inherits")
		text, outputs := "name: above\nsteps:\n", "outputs:\n  child: steps.child.output\n"
		for _, name := range names {
			if v, ok := above[name]; ok {
				text += fmt.Sprintf("  - {transform: {expression: '%d', outputBinding: %s}}\n", v, name)
				outputs += fmt.Sprintf("  %s: %s\n", name, name)
			}
		}
		text += "  - id: child\n    recipe:\n      result: last\n      inline:\n        result: steps\n        name: below\n        steps:\n"
		want, missing := []any{}, false
		for _, name := range names {
			if v, ok := own[name]; ok {
				text += fmt.Sprintf("          - {transform: {expression: '%d', outputBinding: %s}}\n", v, name)
			}
		}
		for _, name := range reads {
			v, ok := own[name]
			if !ok && inherits {
				v, ok = above[name]
			}
			missing = missing || !ok
			want = append(want, float64(v))
		}
		text += "          - {id: read, transform: {expression: '[" + strings.Join(reads, ", ") + "]'}}\n"
		if inherits {
			text += "      inherit: [context]\n"
		}
		id, err := e.Start(t.Context(), roux.Request{Recipe: []byte(text + outputs)})
		if (err != nil) != missing {
			rt.Fatalf("a name is missing: %v, and starting says %v\n%s", missing, err, text)
		}
		if missing {
			return
		}
		res, err := e.Wait(t.Context(), id)
		if err != nil || res.Status != "completed" {
			rt.Fatalf("%v %+v\n%s", err, res, text)
		}
		var got map[string]any
		if err := json.Unmarshal(res.Outputs, &got); err != nil {
			rt.Fatal(err)
		}
		all := map[string]any{"child": want}
		for name, v := range above {
			all[name] = float64(v)
		}
		if !reflect.DeepEqual(got, all) {
			rt.Fatalf("%v, want %v\n%s", got, all, text)
		}
	})
}
