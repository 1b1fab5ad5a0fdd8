// SPDX-License-Identifier: Apache-2.0

package dag

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/roux-engine/roux/internal/compile/recipe"
)

// What a workflow cannot say is refused with its step; ids are those that compile gives.
func TestEncode(t *testing.T) {
	for text, want := range map[string]string{
		`{"name":"x","steps":[{"id":"a","action":{"name":"wait"}}]}`:                                                                         `"a" calls an action that is called "wait"`,
		`{"name":"x","steps":[{"id":"a","timeout":"soon","action":{"name":"b"}}]}`:                                                           `the timeout of the step "a"`,
		`{"name":"x","steps":[{"id":"a"}]}`:                                                                                                  `"a" has no kind`,
		`{"name":"x","steps":[{"id":"a-b","transform":{"expression":"1"}},{"id":"c","action":{"name":"d","parameters":{"p":"{{ a-b }}"}}}]}`: "write a - b",
	} {
		if _, err := Encode(read(t, text), false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	w, err := Encode(read(t, `{"name":"x","steps":[{"transform":{"expression":"1"}},{"id":"s0","transform":{"expression":"1"}},{"timeout":"PT1.5S","action":{"name":"b","version":"1"}}]}`), false)
	if err != nil || len(w.Nodes) != 3 || w.Nodes[0].ID != "s0-2" || w.Nodes[2].ID != "s2" || w.Nodes[2].Handler != "b@1" || w.Nodes[2].TimeoutSeconds != 1.5 {
		t.Errorf("%+v, %v", w, err)
	}
}

func read(t *testing.T, text string) *recipe.Recipe {
	t.Helper()
	r := new(recipe.Recipe)
	if err := json.Unmarshal([]byte(text), r); err != nil {
		t.Fatal(err)
	}
	return r
}
