// SPDX-License-Identifier: Apache-2.0

package compile

import (
	"encoding/json"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/internal/catalogue"
)

// testOptions are what golden definitions are compiled against.
func testOptions() Options {
	return Options{Actions: testActions(), Lenses: catalogue.NewLenses(
		&catalogue.Lens{ID: "summary", Version: "1", Template: "In {{ language }}: {{ text | upper }}", Model: "small"},
		&catalogue.Lens{ID: "topics", Version: "1", Template: "{% for t in text %}{{ t }}{% endfor %}",
			Input:  []byte(`{"properties":{"text":{"type":"array"}}}`),
			Output: []byte(`{"type":"array","items":{"$ref":"#/$defs/topic"},"$defs":{"topic":{"type":"string"}}}`)},
		&catalogue.Lens{ID: "broken", Version: "1", Template: "{{ text | nosuch }} {{ now() }}"},
		&catalogue.Lens{ID: "untyped", Version: "1", Template: "{{ text }}", Input: []byte(`{"type":3}`)},
		&catalogue.Lens{ID: "dressed", Version: "1", Template: "{{ text }}", Model: "{{ input.text }}"},
		&catalogue.Lens{ID: "answers", Version: "1", Template: "{{ text }}", Model: "small", Output: []byte(`{"items":{"$id":"urn:roux:field"}}`)},
		&catalogue.Lens{ID: "now", Version: "1", Template: "{{ now() }}"},
	)}
}

// testActions returns declarations with the properties that the rules check: schemas,
// versions, file inputs, and one action that must not run in parallel.
func testActions() *catalogue.Catalogue {
	no := false
	file := `{"type":"object","required":["file"],"additionalProperties":false,"properties":{"file":{"type":"string","format":"file"}}}`
	return catalogue.New(
		&action.Action{Name: "@approval", Version: "1.0.0", Output: json.RawMessage(`{"type":"object","properties":{"decision":{"type":"string"},"values":{"type":"object"}}}`)},
		&action.Action{
			Name: "file-inspect", Version: "1.0.0", Input: json.RawMessage(file),
			Output: json.RawMessage(`{"type":"object","additionalProperties":false,"properties":{
				"mimeType":{"type":"string"},"sizeBytes":{"type":"integer"},
				"extended":{"type":"object","additionalProperties":false,"properties":{"pageCount":{"type":"integer"},"encrypted":{"type":"boolean"}}}}}`),
		},
		&action.Action{
			Name: "pdf-to-markdown", Version: "1.2.0",
			Input: json.RawMessage(`{"type":"object","required":["file"],"additionalProperties":false,"properties":{
				"file":{"type":"string","format":"file"},"preserveFormatting":{"type":"boolean"},"maxPages":{"type":"integer","minimum":1}}}`),
			Output: json.RawMessage(`{"type":"object","properties":{"content":{"type":"string"},"pages":{"type":"integer"}}}`),
		},
		&action.Action{
			Name: "translate-text", Version: "1.0.0",
			Input: json.RawMessage(`{"type":"object","required":["text","targetLanguage","tone"],"additionalProperties":false,"properties":{
				"text":{"type":"string"},"targetLanguage":{"type":"string"},"style":{"type":"string","enum":["plain","formal"]},
				"tone":{"type":"string","default":"neutral"}}}`),
			Output: json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}}}`),
		},
		&action.Action{
			Name: "resize-image", Version: "1.0.0",
			Input:  json.RawMessage(`{"type":"object","required":["file"],"properties":{"file":{"type":"string","format":"file"},"size":{"enum":["thumbnail","medium","large"]}}}`),
			Output: json.RawMessage(`{"type":"object","properties":{"file":{"type":"string","format":"file"}}}`),
		},
		&action.Action{
			Name: "join-files", Version: "1.0.0",
			Input: json.RawMessage(`{"type":"object","required":["left","right"],"properties":{"left":{"type":"string","format":"file"},"right":{"type":"string","format":"file"}}}`),
		},
		&action.Action{
			Name: "stamp", Version: "1.0.0",
			Input: json.RawMessage(`{"type":"object","required":["file"],"properties":{"file":{"type":"string","format":"file"},"mark":{"type":"string","format":"file"}}}`),
		},
		&action.Action{
			Name: "count", Version: "1.0.0",
			Input: json.RawMessage(`{"type":"object","x-exactlyOne":["text","file"],"properties":{"text":{"type":"string"},"file":{"type":"string","format":"file"}}}`),
		},
		&action.Action{
			Name: "print", Version: "1.0.0", Metadata: action.Metadata{Parallelizable: &no},
		},
		&action.Action{
			Name: "sleep", Version: "1.0.0", Waits: "duration",
			Input: json.RawMessage(`{"type":"object","required":["duration"],"additionalProperties":false,"properties":{"duration":{"type":"string"},"reason":{"type":"string"}}}`),
		},
		&action.Action{
			Name: "ask", Version: "1.0.0",
			Input: json.RawMessage(`{"type":"object","required":["prompt"],"additionalProperties":false,"properties":{
				"prompt":{"type":"string"},"model":{"type":"string"},"maxTokens":{"type":"integer"}}}`),
			Output: json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}}}`),
		},
		&action.Action{Name: "draw", Version: "1.0.0", Input: json.RawMessage(`{"type":"object","additionalProperties":false,"properties":{"prompt":{"type":"string"}}}`),
			Output: json.RawMessage(`{"type":"object","additionalProperties":false,"properties":{"file":{"type":"string"}}}`)},
		&action.Action{Name: "echo", Version: "1.0.0"},
		&action.Action{Name: "echo", Version: "1.10.0"},
		&action.Action{Name: "echo", Version: "1.9.3"},
		&action.Action{Name: "echo", Version: "2.0.0-beta.1"},
	)
}
