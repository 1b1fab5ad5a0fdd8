// SPDX-License-Identifier: Apache-2.0

package action

import (
	"encoding/json"
	"testing"
)

// The names of recipeMetadata (X10), of a type definition (X11) and of a branch
// condition (X12) are public: other programs read them.
func TestX10_X11_X12_Names(t *testing.T) {
	yes := true
	raw, err := json.Marshal(Metadata{
		InputTypes:       []TypeDefinition{{Name: "file", MimeTypes: []string{"*/*"}, Schema: json.RawMessage(`{"type":"string"}`), Description: "Any file."}},
		OutputTypes:      []TypeDefinition{{Name: "facts", Description: "What is known of it."}},
		BranchConditions: []BranchCondition{{Name: "is-small", Expression: "output.sizeBytes < 10485760", Description: "Less than 10 MiB."}},
		Parallelizable:   &yes,
		DurationRange:    &DurationRange{Min: "100ms", Max: "5s"},
	})
	const want = `{"inputTypes":[{"name":"file","mimeTypes":["*/*"],"schema":{"type":"string"},"description":"Any file."}],` +
		`"outputTypes":[{"name":"facts","description":"What is known of it."}],` +
		`"branchConditions":[{"name":"is-small","expression":"output.sizeBytes \u003c 10485760","description":"Less than 10 MiB."}],` +
		`"parallelizable":true,"durationRange":{"min":"100ms","max":"5s"}}`
	if err != nil || string(raw) != want {
		t.Errorf("%v\ngot  %s\nwant %s", err, raw, want)
	}
	// Optional fields are omitted.
	if raw, err := json.Marshal(Metadata{}); err != nil || string(raw) != `{"inputTypes":null,"outputTypes":null}` {
		t.Errorf("%s, %v", raw, err)
	}
}

// A missing value means that the action may run in parallel (X10, X54).
func TestX54_Parallelizable(t *testing.T) {
	yes, no := true, false
	for _, tt := range []struct {
		said *bool
		want bool
	}{{nil, true}, {&yes, true}, {&no, false}} {
		if got := (Metadata{Parallelizable: tt.said}).MayRunInParallel(); got != tt.want {
			t.Errorf("parallelizable %v: %v, want %v", tt.said, got, tt.want)
		}
	}
}
