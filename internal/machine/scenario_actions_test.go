// SPDX-License-Identifier: Apache-2.0

package machine

import (
	"encoding/json"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/catalogue"
	"github.com/roux-engine/roux/internal/compile"
)

// testActions are the actions that scenario recipes may call. `work` accepts and
// returns anything; the others differ from it in one declared property each.
func testActions() catalogue.Actions {
	anything := json.RawMessage(`{"type":"object"}`)
	no := false
	return catalogue.New(
		&action.Action{Name: "work", Version: "1.0.0", Input: anything, Cost: 2},
		&action.Action{Name: "priced", Version: "1.0.0", Input: anything, Price: "0.4"},
		&action.Action{Name: "once", Version: "1.0.0", Input: anything, Delivery: action.AtMostOnce},
		&action.Action{Name: "undo", Version: "1.0.0", Input: anything, Cost: 1},
		&action.Action{Name: "alone", Version: "1.0.0", Input: anything, Metadata: action.Metadata{Parallelizable: &no}},
		&action.Action{Name: "needs-text", Version: "1.0.0", Input: json.RawMessage(`{"type":"object","required":["text"],"properties":{"text":{"type":"string"}}}`)},
		&action.Action{Name: "sleep", Version: "1.0.0", Waits: "duration", Input: json.RawMessage(`{"type":"object","required":["duration"],"properties":{"duration":{"type":"string"}}}`)},
		&action.Action{Name: "takes-file", Version: "1.0.0", Input: json.RawMessage(`{"type":"object","required":["file"],"properties":{"file":{"type":"string","format":"file"}}}`)},
	)
}

// testOptions are what scenario recipes are compiled against.
func testOptions() compile.Options {
	return compile.Options{Actions: testActions(), Lenses: catalogue.NewLenses(
		&catalogue.Lens{ID: "greet", Version: "1", Template: "Hello {{ who }} from {{ place }}"},
		&catalogue.Lens{ID: "greet", Version: "2", Template: "{{ who }}", Model: "small",
			Input: json.RawMessage(`{"properties":{"who":{"type":"string"}}}`), Output: json.RawMessage(`{"type":"string","maxLength":5}`)},
		&catalogue.Lens{ID: "ask", Version: "1", Template: "{{ q }} of {{ list }}"},
	)}
}
