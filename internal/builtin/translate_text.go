// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"context"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

// translateText returns the action translate-text, which translates with a
// language model (X160). Model providers come with a later release. The action exists already so that recipes can be
// written, checked and estimated; it fails before anything is charged.
func translateText() action.Action {
	return action.Action{
		Name:        "translate-text",
		Version:     "1.0.0",
		Description: "Translates a text into another language with a language model.",
		Cost:        10,
		Provider:    "llm",
		Input: schema(`{
			"type": "object",
			"properties": {
				"text": {"type": "string", "description": "The text to translate; Markdown keeps its marks."},
				"content": {"type": "string", "description": "The same as text, under the name that pdf-to-markdown gives it."},
				"file": {"type": "string", "format": "file", "pattern": "^sha256_[0-9a-f]{64}$", "description": "Hash of a file with the text, in UTF-8. A step that is given neither text nor content gets the run's only file."},
				"targetLanguage": {"type": "string", "pattern": "^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*$", "description": "Language tag (BCP 47) of the translation, such as de or pt-BR."},
				"sourceLanguage": {"type": "string", "pattern": "^[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*$", "description": "Language tag of the text. Default: found out."},
				"name": {"type": "string", "minLength": 1, "maxLength": 255, "description": "The name of the translation as a file. Default: made from the name of the input, where it has one."}
			},
			"required": ["targetLanguage"],
			` + exactlyOne + `: ["text", "content", "file"],
			"additionalProperties": false
		}`),
		Output: schema(`{
			"type": "object",
			"properties": {
				"text": {"type": "string", "description": "The translation."},
				"translatedFileHash": {"type": "string", "format": "file", "description": "The translation as a file."},
				"sourceLanguage": {"type": "string", "description": "Language tag of the text."},
				"targetLanguage": {"type": "string", "description": "Language tag of the translation."},
				"wordCount": {"type": "integer", "minimum": 0, "description": "Words of the translation."}
			},
			"required": ["text", "translatedFileHash", "targetLanguage", "wordCount"],
			"additionalProperties": false
		}`),
		Metadata: action.Metadata{
			InputTypes:  types("text", "A text or Markdown.", "text/plain", "text/markdown"),
			OutputTypes: types("translation", "The translated text.", "text/plain", "text/markdown"),
			BranchConditions: []action.BranchCondition{
				condition("has-text", `output.wordCount > 0`, "There was something to translate."),
			},
			Parallelizable: boolTrue(),
			DurationRange:  &action.DurationRange{Min: "1s", Max: "2m"},
		},
		Limits:   []string{"Needs a model provider, which this release does not have yet.", "Texts up to 16 MiB."},
		Faults:   []fault.Code{fault.ProviderNotConfigured, fault.InputInvalid, fault.FileNotFound},
		Examples: []action.Example{example("Into German.", map[string]any{"text": "Good morning", "targetLanguage": "de"})},
		Run: func(_ context.Context, task *action.Task) (action.Result, error) {
			var in struct {
				source
				Content *string `json:"content"`
			}
			if err := decode(task, &in); err != nil {
				return action.Result{}, err
			}
			if in.Text != nil && in.Content != nil {
				return action.Result{}, fault.New(fault.InputInvalid, `"text" and "content" are both given: want one of them`)
			}
			if err := checkOneSource("text", in.Text != nil || in.Content != nil, in.File); err != nil {
				return action.Result{}, err
			}
			return action.Result{}, fault.New(fault.ProviderNotConfigured, "translate-text needs a language model, and this release has no model providers: "+
				"they come with a later one. Until then give the step `onError: {strategy: skip}` or a fallback step, or register an action of your own under this name. Nothing was charged")
		},
	}
}
