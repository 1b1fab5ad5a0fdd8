// SPDX-License-Identifier: Apache-2.0

package recipe

import (
	"bytes"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/yamlx"
)

// TestFieldsAreWhole: each field of the format has a default or is required, and has an
// example that is valid YAML for the field as printed.
func TestFieldsAreWhole(t *testing.T) {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("mem:///recipe", doc); err != nil {
		t.Fatal(err)
	}
	for _, name := range Form.Objects() {
		for _, f := range Form.Fields(name) {
			if f.Required == (f.Default != "") {
				t.Errorf("%s.%s: required %t, default %q", name, f.Name, f.Required, f.Default)
			}
			if strings.Contains(f.Doc, "efault ") {
				t.Errorf("%s.%s: the default stands in its description", name, f.Name)
			}
			node, problems := yamlx.Parse([]byte(f.Example), jsonx.Limits{})
			if node == nil {
				t.Errorf("%s: %v", f.Example, problems)
				continue
			}
			schema, err := c.Compile("mem:///recipe#/$defs/" + name + "/properties/" + f.Name)
			if err != nil {
				t.Fatal(err)
			}
			raw, err := jsonx.Canonical(node.Value())
			if err != nil {
				t.Fatal(err)
			}
			value, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
			if err != nil {
				t.Fatal(err)
			}
			if err := schema.Validate(value.(map[string]any)[f.Name]); err != nil {
				t.Errorf("%s.%s does not take its example %s: %v", name, f.Name, f.Example, err)
			}
		}
	}
}
