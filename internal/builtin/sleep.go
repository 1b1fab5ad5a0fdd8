// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"github.com/roux-engine/roux/action"
)

// sleep returns the action sleep, which is a durable wait. A step that calls it is a wait step of the plan: it
// holds no worker, a restart neither shortens nor lengthens it, and it is free.
func sleep() action.Action {
	return action.Action{
		Name:        "sleep",
		Version:     "1.0.0",
		Description: "Waits for a while or until a point in time; restarts change nothing about it.",
		Waits:       "duration",
		Input: schema(`{
			"type": "object",
			"properties": {
				"duration": {
					"type": "string",
					"description": "How long, such as 90s, 1h30m or PT90S; or until when, such as 2027-01-31T18:00:00Z. A time that has passed is no wait."
				}
			},
			"required": ["duration"],
			"additionalProperties": false
		}`),
		Metadata: action.Metadata{
			InputTypes:     types("time", "A duration or a point in time (RFC 3339)."),
			OutputTypes:    types("nothing", "The output is null."),
			Parallelizable: boolTrue(),
			DurationRange:  &action.DurationRange{Min: "1ms", Max: "48h"},
		},
		Limits: []string{
			"As long as the run may live, its ttl, which is 48 hours where the recipe says nothing.",
			"Whole milliseconds; it never ends early.",
			"It takes no retryPolicy and no contracts. A timeout ends it with STEP_TIMEOUT.",
		},
		Examples: []action.Example{
			example("Wait a minute and a half.", map[string]any{"duration": "90s"}),
			example("Wait until a point in time.", map[string]any{"duration": "2027-01-31T18:00:00Z"}),
		},
	}
}
