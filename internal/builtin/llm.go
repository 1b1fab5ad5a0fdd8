// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"context"
	"encoding/json"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/provider"
	"github.com/roux-engine/roux/internal/provider/prompt"
)

// modelCost is what an action that calls a model declares when no provider is configured, in
// whole credits. It is never charged, because the action fails then.
const modelCost = 10

// modelProps are the input properties of an action that calls a model.
const modelProps = `
				"prompt": {"type": "string", "minLength": 1, "maxLength": 16777216, "description": "What the model is asked. It is the last message of the conversation."},
				"system": {"type": "string", "maxLength": 1048576, "description": "What the model is told before the conversation."},
				"messages": {
					"type": "array", "maxItems": 1000, "description": "The conversation before the prompt, or all of it.",
					"items": {
						"type": "object", "required": ["role", "content"], "additionalProperties": false,
						"properties": {"role": {"enum": ["system", "user", "assistant"]}, "content": {"type": "string", "maxLength": 16777216}}
					}
				},
				"files": {
					"type": "array", "maxItems": 20, "items": {"type": "string", "pattern": "^sha256_[0-9a-f]{64}$"},
					"description": "Hashes of images and PDFs that the model is to see. They have to be named: no file of the run is sent by itself."
				},
				"provider": {"type": "string", "minLength": 1, "maxLength": 64, "description": "The name of a provider of the configuration. Default: the one called default, else the first in the alphabet."},
				"model": {"type": "string", "minLength": 1, "maxLength": 200, "description": "The name of a model with a price in the configuration. Default: that of the provider."},
				"temperature": {"type": "number", "minimum": 0, "maximum": 2, "description": "Default: that of the service."},
				"maxTokens": {"type": "integer", "minimum": 1, "maximum": 10000000, "description": "Most tokens of the answer; not more than the configuration allows, which is the default."},
				"stop": {"type": "array", "maxItems": 4, "items": {"type": "string", "minLength": 1, "maxLength": 100}, "description": "Texts at which the answer ends."},
				"outputSchema": {"type": "object", "description": "JSON Schema of the answer, which is then a JSON document. An answer that does not fit is sent back once with what is wrong; both calls are one charge."},
				"stream": {"type": "boolean", "default": true, "description": "Whether the answer is shown while it is written."}`

// modelOutputProps are the output properties of an action that calls a model.
const modelOutputProps = `
				"text": {"type": "string", "description": "The answer."},
				"json": {"description": "The answer as a value, if all of it is one JSON document; else null."},
				"media": {
					"type": "array", "description": "Images and other media of the answer.",
					"items": {
						"type": "object", "additionalProperties": false,
						"properties": {"file": {"type": "string", "format": "file"}, "url": {"type": "string"}, "mimeType": {"type": "string"}}
					}
				},
				"usage": {
					"type": "object", "additionalProperties": false, "required": ["inputTokens", "cachedTokens", "outputTokens", "calls"],
					"properties": {
						"inputTokens": {"type": "integer", "minimum": 0, "description": "With those that were cached."},
						"cachedTokens": {"type": "integer", "minimum": 0},
						"outputTokens": {"type": "integer", "minimum": 0},
						"calls": {"type": "integer", "minimum": 1, "description": "2 if the answer was sent back once."}
					}
				},
				"model": {"type": "string", "description": "As the service names it."},
				"provider": {"type": "string"},
				"stopReason": {"type": "string", "description": "In the words of the service, such as stop, end_turn, length or max_tokens."}`

var modelLimits = []string{
	"Needs a provider in the configuration, and a price of the model there.",
	"Answers up to 8 MiB of text and 16 media.",
	"Up to 20 files, together up to 20 MiB. Services of the kind openai take images only.",
	"One call has one request: the engine tries again, as retryPolicy says. 429 is RATE_LIMITED; 408, 425, 503 and 529 are SERVICE_UNAVAILABLE, all other from 500 on PROVIDER_ERROR; Retry-After is honoured.",
	"The effect key goes along as Idempotency-Key, which not every service honours.",
	"A service that is silent for as long as `stall` of its configuration says is STEP_TIMEOUT.",
	"A call costs what its tokens cost, rounded up once to a millionth of a credit, and at most the ceiling that the run pinned when it started.",
}

var modelFaults = []fault.Code{
	fault.ProviderNotConfigured, fault.PriceUnknown, fault.SecretNotFound, fault.InputInvalid, fault.FileNotFound, fault.FileUnsupported, fault.FileTooLarge,
	fault.RateLimited, fault.ServiceUnavailable, fault.ProviderError, fault.HTTPStatus, fault.StepTimeout, fault.OutputTooLarge, fault.OutputContractViolation, fault.EgressRefused,
}

// Models is the provider of actions that call a model, whichever service that is of.
const Models = "llm"

// ModelKind is the kind of the service that an action prefers where the step names none.
func ModelKind(action string) string {
	if action == "claude" {
		return provider.Anthropic
	}
	return ""
}

// priced sets what an action costs that makes up to calls of a model.
func priced(a action.Action, models *provider.Set, calls int64) action.Action {
	a.Provider = Models
	if len(models.Names()) == 0 {
		a.Cost = modelCost
		return a
	}
	a.Revision = models.Revision()
	if most := models.Ceiling(calls); most > 0 {
		a.Price = most.String()
	}
	return a
}

// llm returns the action llm, which asks a language model (X101, X129, X164, X173, X174).
func llm(models *provider.Set) action.Action {
	return priced(action.Action{
		Name:        "llm",
		Aliases:     []string{"llm_service"},
		Version:     "1.0.0",
		Description: "Asks a language model, and gives its answer as text and, where it is one, as a JSON value.",
		Input:       schema(`{"type": "object", "properties": {` + modelProps + `}, "additionalProperties": false}`),
		Output: schema(`{"type": "object", "properties": {` + modelOutputProps + `},
			"required": ["text", "json", "media", "usage", "model", "provider", "stopReason"], "additionalProperties": false}`),
		Metadata: action.Metadata{
			InputTypes:  types("prompt", "A question, with images or PDFs.", "text/plain", "image/*", typePDF),
			OutputTypes: types("answer", "The answer of the model.", "text/plain", "application/json"),
			BranchConditions: []action.BranchCondition{
				condition("is-json", `output.json != null`, "The answer is a JSON document."),
				condition("is-cut", `output.stopReason == "length" || output.stopReason == "max_tokens"`, "The answer ended because it had maxTokens."),
			},
			Parallelizable: boolTrue(),
			DurationRange:  &action.DurationRange{Min: "500ms", Max: "5m"},
		},
		Limits: modelLimits,
		Faults: modelFaults,
		Examples: []action.Example{
			example("A question.", map[string]any{"prompt": "Why is the sky blue? One sentence."}),
			example("An answer of a known form.", map[string]any{
				"system": "You sort letters of customers.", "prompt": "Where is my parcel?",
				"outputSchema": map[string]any{"type": "object", "required": []any{"topic"}, "properties": map[string]any{"topic": map[string]any{"enum": []any{"delivery", "invoice", "other"}}}},
			}),
		},
		Run: func(ctx context.Context, task *action.Task) (action.Result, error) {
			var in prompt.Input
			if err := decode(task, &in); err != nil {
				return action.Result{}, err
			}
			out, err := prompt.Ask(ctx, task, models, &in, "")
			return out.Result(out.Value()), err
		},
	}, models, 2)
}

// claude returns the action claude: llm with the fields of a JSON answer beside the others, so
// that conditions read them directly (`steps.detect.result.type`).
func claude(models *provider.Set) action.Action {
	a := llm(models)
	a.Name, a.Aliases = "claude", nil
	a.Description = "Asks Claude or another language model. The fields of an answer that is a JSON object are fields of the output, too."
	a.Output = schema(`{"type": "object", "properties": {` + modelOutputProps + `}, "required": ["text", "json", "media", "usage", "model", "provider", "stopReason"], "additionalProperties": true}`)
	a.Limits = append([]string{
		"Of several providers the first of the kind anthropic is the default.",
		"A field of the answer that is called as one of this output (text, json, media, usage, model, provider, stopReason) is in json only.",
	}, modelLimits...)
	a.Examples = []action.Example{
		example("A question whose answer conditions read.", map[string]any{"prompt": `What is the type of this: 1,2,3? Answer with JSON such as {"type": "text"}.`}),
	}
	a.Run = func(ctx context.Context, task *action.Task) (action.Result, error) {
		var in prompt.Input
		if err := decode(task, &in); err != nil {
			return action.Result{}, err
		}
		said, err := prompt.Ask(ctx, task, models, &in, provider.Anthropic)
		out := said.Value()
		var fields map[string]json.RawMessage
		if said.JSON != nil && json.Unmarshal(said.JSON, &fields) == nil {
			for name, value := range fields {
				if _, taken := out[name]; !taken {
					out[name] = value
				}
			}
		}
		return said.Result(out), err
	}
	return a
}
