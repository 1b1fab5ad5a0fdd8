// SPDX-License-Identifier: Apache-2.0

package builtin

import "testing"

// Every action that makes a file of a result calls it as it is asked to, and says
// so, also where equal bytes are stored under another name already.
func TestResultsHaveTheNamesAskedFor(t *testing.T) {
	for name, in := range map[string]map[string]any{
		"csv-to-json":      {"text": "a,b\n1,2\n"},
		"json-to-csv":      {"rows": []any{map[string]any{"a": int64(1)}}},
		"json-path":        {"value": map[string]any{"a": int64(1)}, "path": "a"},
		"text-split":       {"text": "one\ntwo\n", "by": "lines"},
		"text-join":        {"items": []any{"one", "two"}},
		"text-replace":     {"text": "one", "rules": []any{map[string]any{"find": "o", "replace": "0"}}},
		"html-to-markdown": {"text": "<p>one</p>"},
		"markdown-to-html": {"text": "# one"},
	} {
		t.Run(name, func(t *testing.T) {
			s := store(t)
			for _, want := range []string{"first.dat", "second one.dat"} {
				in["output"], in["name"] = "file", want
				out, err := call(t, s, name, in)
				if err != nil {
					t.Fatal(err)
				}
				if out["name"] != want {
					t.Errorf("the output says %v, want %s", out["name"], want)
				}
			}
			delete(in, "name")
			if out, err := call(t, s, name, in); err != nil || out["name"] == "" || out["name"] == nil {
				t.Errorf("without a name: %v, %v", out, err)
			}
		})
	}
}
