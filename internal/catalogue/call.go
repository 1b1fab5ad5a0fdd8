// SPDX-License-Identifier: Apache-2.0

package catalogue

import (
	"encoding/json"
	"fmt"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/ledger"
)

// CallText returns the text of a recipe that calls one action, whose output is the field
// output of its outputs. The input of the action is that of the run: input has its fields, of
// which only the names are used, because values are data even if they look like a template.
// binds has fields that are given by other expressions. With checked, the input of the run is
// checked against the schema of the action before the run begins.
//
// What is reserved is what the action costs, without the quarter more of other recipes (X154).
func CallText(a *action.Action, input map[string]any, binds map[string]string, checked bool) ([]byte, error) {
	bound := make(map[string]string, len(input)+len(binds))
	for name := range input {
		quoted, err := json.Marshal(name)
		if err != nil {
			return nil, fmt.Errorf("the name of a field: %w", err)
		}
		bound[name] = "input[" + string(quoted) + "]"
	}
	for name, expression := range binds {
		bound[name] = expression
	}
	doc := map[string]any{
		"name": "call-" + a.Name, "version": "1.0.0", "outputs": map[string]string{"output": "steps.call.output"},
		"steps": []any{map[string]any{"id": "call", "action": map[string]any{"name": a.Name, "version": a.Version}, "inputBindings": bound}},
	}
	if checked && len(a.Input) > 0 {
		doc["inputSchema"] = a.Input
	}
	price, err := Price(a) // beside the whole credits of its cost
	if err != nil {
		return nil, err
	}
	if most := price.Plus(ledger.Whole(a.Cost)).Ceil(); most > 0 {
		doc["creditEstimation"] = map[string]any{"strategy": "fixed", "fixedCredits": most, "maxCredits": most}
	}
	return json.Marshal(doc)
}
