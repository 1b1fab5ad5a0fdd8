// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

var shorten = action.Action{
	Name: "shorten", Version: "1.0.0", Description: "Cuts a text after a number of characters.", Cost: 1,
	Input:  json.RawMessage(`{"type": "object", "properties": {"text": {"type": "string"}, "most": {"type": "integer"}}, "required": ["text", "most"]}`),
	Output: json.RawMessage(`{"type": "object", "properties": {"text": {"type": "string"}, "cut": {"type": "boolean"}}, "required": ["text", "cut"]}`),
	Run: func(_ context.Context, task *action.Task) (action.Result, error) {
		var in struct {
			Text string
			Most int
		}
		if err := task.Decode(&in); err != nil || in.Most < 1 {
			return action.Result{}, fault.New(fault.InputInvalid, "most is %d: want 1 or more", in.Most)
		}
		letters := []rune(in.Text)
		cut := letters[:min(len(letters), in.Most)]
		return action.Result{Output: map[string]any{"text": string(cut), "cut": len(cut) < len(letters)}}, nil
	},
}
