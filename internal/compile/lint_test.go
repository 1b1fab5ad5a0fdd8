// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/catalogue"
)

// X11: there is a warning when a file is passed to an action that does not accept its
// type, and none when the types may match or are not declared.
func TestX11_FileTypes(t *testing.T) {
	const file = `{"type":"object","properties":{"file":{"type":"string","format":"file"}}}`
	act := func(name, takes, gives string) *action.Action {
		a := &action.Action{Name: name, Version: "1.0.0", Input: json.RawMessage(file), Output: json.RawMessage(file)}
		if takes != "" {
			a.Metadata.InputTypes = []action.TypeDefinition{{Name: "in", MimeTypes: strings.Fields(takes)}}
		}
		if gives != "" {
			a.Metadata.OutputTypes = []action.TypeDefinition{{Name: "out", MimeTypes: strings.Fields(gives)}}
		}
		return a
	}
	actions := catalogue.New(act("csv", "", "text/csv"), act("png", "image/*", "image/png"), act("any", "*/*", "*/*"),
		act("text", "text/*", "application/json text/markdown"), act("facts", "*/*", "application/json"), act("bare", "", ""))
	for _, tt := range []struct {
		from, to, bind string
		want           string
	}{
		{"csv", "png", "made.file", "csv gives text/csv, and png takes image/*"},
		{"csv", "png", "steps.a.output.file", "csv gives text/csv, and png takes image/*"},
		{"csv", "png", "steps['a'].result.file", "csv gives text/csv, and png takes image/*"},
		{"text", "png", "made.file", "text gives text/markdown, and png takes image/*"},
		{"csv", "text", "made.file", ""},
		{"png", "png", "made.file", ""},
		{"any", "png", "made.file", ""},
		{"csv", "any", "made.file", ""},
		{"facts", "png", "made.file", ""}, // JSON describes the value
		{"csv", "bare", "made.file", ""},
		{"bare", "png", "made.file", ""},
		{"csv", "png", "true ? made.file : made.file", ""}, // too complex for the file to be known
	} {
		text := "name: r\nsteps:\n  - {id: a, action: {name: " + tt.from + ", parameters: {file: sha256_" + strings.Repeat("0", 64) + "}}, outputBinding: made}\n" +
			"  - id: b\n    action: {name: " + tt.to + "}\n    inputBindings: {file: \"" + tt.bind + "\"}\n"
		p, _, _, diags := Source("r.yaml", []byte(text), Options{Actions: actions})
		if p == nil {
			t.Fatalf("%s: %v", text, diags)
		}
		got := ""
		for _, d := range diags {
			if strings.HasSuffix(d.Rule, "file-type") {
				got = d.Msg
				if d.Pos.Line != 6 {
					t.Errorf("%s to %s: the warning is at line %d, want 6", tt.from, tt.to, d.Pos.Line)
				}
			}
		}
		if !strings.Contains(got, tt.want) || tt.want == "" && got != "" {
			t.Errorf("%s to %s by %s: %q, want %q", tt.from, tt.to, tt.bind, got, tt.want)
		}
	}
}
