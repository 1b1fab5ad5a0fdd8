// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"fmt"
	"mime"
	"slices"
	"strings"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/expr"
	"github.com/roux-engine/roux/internal/jsonschema"
)

const maxDefinitions = 100 // of each list of the metadata of an action

// checkMetadata checks what an operator declares of an action for those who compose recipes (X10–X12).
// Lists that are missing are empty, as in the metadata of Roux's own actions.
func checkMetadata(m *action.Metadata) error {
	for _, of := range []struct {
		what string
		list *[]action.TypeDefinition
	}{{"inputTypes", &m.InputTypes}, {"outputTypes", &m.OutputTypes}} {
		if *of.list == nil {
			*of.list = []action.TypeDefinition{}
		}
		if len(*of.list) > maxDefinitions {
			return fmt.Errorf("%s: %d: want at most %d", of.what, len(*of.list), maxDefinitions)
		}
		for i := range *of.list {
			if err := checkType(&(*of.list)[i]); err != nil {
				return fmt.Errorf("%s[%d]: %w", of.what, i, err)
			}
		}
	}
	if len(m.BranchConditions) > maxDefinitions {
		return fmt.Errorf("branchConditions: %d: want at most %d", len(m.BranchConditions), maxDefinitions)
	}
	for i := range m.BranchConditions {
		b := &m.BranchConditions[i]
		if b.Name == "" || slices.ContainsFunc(m.BranchConditions[:i], func(o action.BranchCondition) bool { return o.Name == b.Name }) {
			return fmt.Errorf("branchConditions[%d]: name %.60q: want one of its own", i, b.Name)
		}
		if _, err := expr.Compile(b.Expression); err != nil {
			return fmt.Errorf("branchConditions[%d]: expression: %s", i, fault.Message(err))
		}
	}
	if d := m.DurationRange; d != nil {
		least, err1 := time.ParseDuration(d.Min)
		most, err2 := time.ParseDuration(d.Max)
		if err1 != nil || err2 != nil || least < 0 || least > most || most == 0 {
			return fmt.Errorf("durationRange: %.20q to %.20q: want two durations, the shorter first, such as 100ms and 5s", d.Min, d.Max)
		}
	}
	return nil
}

func checkType(t *action.TypeDefinition) error {
	if t.Name == "" {
		return fmt.Errorf("name: want the name of an input or output")
	}
	for _, pattern := range t.MimeTypes {
		main, sub, _ := strings.Cut(pattern, "/")
		if _, params, err := mime.ParseMediaType(pattern); err != nil || len(params) > 0 || main == "" || sub == "" {
			return fmt.Errorf("mimeTypes: %.60q: want patterns such as image/* or application/pdf", pattern)
		}
	}
	if t.Schema != nil {
		if _, err := jsonschema.Compile(t.Schema); err != nil {
			return fmt.Errorf("schema: %s", fault.Message(err))
		}
	}
	return nil
}

// Schema is the JSON Schema of an entry of the table `workers`.
func Schema() map[string]any {
	type object = map[string]any
	text := func(what string) object { return object{"type": "string", "description": what} }
	texts := func(what string) object {
		return object{"type": "array", "items": object{"type": "string"}, "description": what}
	}
	closed := func(what string, props object) object {
		return object{"type": "object", "additionalProperties": false, "properties": props, "description": what}
	}
	schema := func(what string) object { return object{"type": []string{"object", "boolean"}, "description": what} }
	types := func(what string) object {
		def := closed("", object{
			"name": text("Of the input or output."), "mimeTypes": texts("Patterns such as image/*, of a file."),
			"schema": schema("JSON Schema of the value."), "description": text("One sentence."),
		})
		delete(def, "description")
		def["required"] = []string{"name"}
		return object{"type": "array", "items": def, "description": what}
	}
	condition := closed("", object{"name": text("By which recipes are written."), "expression": text("CEL over `output`."), "description": text("One sentence.")})
	delete(condition, "description")
	condition["required"] = []string{"name", "expression"}
	return closed("An action that remote workers carry out.", object{
		"version":     text("Three numbers. Default 1.0.0."),
		"description": text("One sentence for people."),
		"queue":       text("The one that workers name. Default `default`."),
		"labels":      object{"type": "object", "additionalProperties": object{"type": "string"}, "description": "What a worker must have."},
		"accounts":    texts("Those whose recipes may call it; * is all. Default: local, or all for an action of Roux's own."),
		"providers":   texts("Those of `providers` to whom a worker may have submitted the work when its task ends. Default: none."),
		"price":       text("Credits for a call, as decimal text. Default 0."),
		"slots":       object{"type": "integer", "minimum": 1, "description": "Tasks that may be under way at once. Default: any number."},
		"delivery":    object{"enum": []action.Delivery{action.AtLeastOnce, action.AtMostOnce}, "description": "What follows when a worker is lost. Default at_least_once."},
		"lease":       text("How long a worker may be silent. Default 30s."),
		"timeout":     text("Of a task, with all workers that are lost meanwhile. Default 24h."),
		"input":       schema("JSON Schema of the input."),
		"output":      schema("JSON Schema of the output."),
		"faults":      texts("Codes with which it may fail, beyond those of every action."),
		"metadata": closed("recipeMetadata: what tools and people see who compose recipes.", object{
			"inputTypes": types("What it takes."), "outputTypes": types("What it returns."),
			"branchConditions": object{"type": "array", "items": condition, "description": "Conditions on the output that recipes may use."},
			"parallelizable":   object{"type": "boolean", "description": "Whether parallel branches and concurrent loops may call it. Default true."},
			"durationRange":    closed("How long a call usually takes.", object{"min": text("Such as 100ms."), "max": text("Such as 5s.")}),
		}),
	})
}
