// SPDX-License-Identifier: Apache-2.0

package pipeline_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
	"github.com/roux-engine/roux/internal/compile/dialect"
	"github.com/roux-engine/roux/internal/compile/dialecttest"
	"github.com/roux-engine/roux/internal/compile/form"
	"github.com/roux-engine/roux/internal/compile/pipeline"
	"github.com/roux-engine/roux/internal/yamlx"
)

func options() compile.Options {
	prompt := json.RawMessage(`{"type":"object","properties":{"prompt":{"type":"string"},"model":{"type":"string"}},"required":["prompt"],"additionalProperties":false}`)
	return compile.Options{Actions: catalogue.New(
		&action.Action{Name: "echo", Version: "1.0.0", Description: "Gives its input.", Metadata: action.Metadata{Parallelizable: new(true)}},
		&action.Action{Name: "claude", Version: "1.0.0", Description: "Asks a model.", Input: prompt, Metadata: action.Metadata{Parallelizable: new(true)}},
	), Lenses: catalogue.NewLenses(&catalogue.Lens{ID: "summarize", Version: "3", Template: "Summarize: {{ data }}"})}
}

// TestX14_Fields: every field of a pipeline, with the model that they become (X13–X19, X59).
func TestX14_Fields(t *testing.T) { dialecttest.Fields(t, pipeline.Form, options()) }

// TestDiagnostics: each broken text has all its problems reported at their places, and with what is wanted
// there (X15, A09).
func TestDiagnostics(t *testing.T) { dialecttest.Diagnostics(t, options()) }

// TestConverted: a pipeline keeps its plan in the other dialects and back.
func TestConverted(t *testing.T) {
	text, err := os.ReadFile("testdata/valid/everything.yaml")
	if err != nil {
		t.Fatal(err)
	}
	from, want := dialect.Named("pipeline"), dialecttest.Build(t, string(text), options()).Hash()
	for _, to := range []string{"recipe", "dag", "flow", "pipeline", "recipe", "pipeline"} {
		r, src, diags := dialect.Parse("test.yaml", text, form.Options{})
		if r == nil {
			t.Fatal(src.Format(diags[0]))
		}
		tree, err := dialect.Named(to).Encode(r, from)
		if err != nil {
			t.Fatal(err)
		}
		text, from = yamlx.Encode(tree), dialect.Named(to)
		if p := dialecttest.Build(t, string(text), options()); p.Hash() != want {
			t.Errorf("in %s it has another plan:\n%s", to, text)
		}
	}
	dialecttest.Golden(t, "valid/everything.converted.golden", string(text))
}
