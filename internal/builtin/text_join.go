// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"strings"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

// textJoin returns the action text-join, which joins texts.
func textJoin() action.Action {
	return action.Action{
		Name:        "text-join",
		Version:     "1.0.0",
		Description: "Joins a list of texts into one, with a separator between them.",
		Cost:        1,
		Input: schema(`{
			"type": "object",
			"properties": {
				"items": {"type": "array", "maxItems": 1000000, "description": "The texts in their order. Numbers and booleans are written as JSON writes them, null as nothing.",
					"items": {"type": ["string", "number", "boolean", "null"]}},
				"separator": {"type": "string", "maxLength": 10000, "default": "\n", "description": "Stands between two texts."},
				"prefix": {"type": "string", "maxLength": 10000, "default": "", "description": "Stands before each text."},
				"suffix": {"type": "string", "maxLength": 10000, "default": "", "description": "Stands after each text."},
				"skipEmpty": {"type": "boolean", "default": false, "description": "true leaves out texts that are empty or white space."},
				` + outputProp + `
			},
			"required": ["items"],
			"additionalProperties": false
		}`),
		Output: schema(`{
			"type": "object",
			"properties": {
				"text": {"type": "string", "description": "The joined text; missing with output: file."},
				"file": {"type": "string", "format": "file", "description": "With output: file. The joined text."},
				` + fileNameProp + `,
				"count": {"type": "integer", "minimum": 0, "description": "How many texts were joined."}
			},
			"required": ["count"],
			"additionalProperties": false
		}`),
		Metadata: action.Metadata{
			InputTypes:  types("texts", "A list of texts.", "application/json"),
			OutputTypes: types("text", "One text.", "text/plain", "text/markdown"),
			BranchConditions: []action.BranchCondition{
				condition("is-empty", `output.count == 0`, "There was nothing to join."),
			},
			Parallelizable: boolTrue(),
			DurationRange:  &action.DurationRange{Min: "1ms", Max: "5s"},
		},
		Streams: []string{"items"},
		Limits:  []string{"1,000,000 texts.", "A result of 32 MiB inline, 1 GiB in a file."},
		Faults:  []fault.Code{fault.InputInvalid, fault.OutputTooLarge},
		Examples: []action.Example{
			example("Lines.", map[string]any{"items": []any{"one", "two", 3}}),
			example("A Markdown list.", map[string]any{"items": []any{"bread", "milk"}, "prefix": "- ", "skipEmpty": true}),
		},
		Run: runTextJoin,
	}
}

type joinInput struct {
	Separator string `json:"separator"`
	Prefix    string `json:"prefix"`
	Suffix    string `json:"suffix"`
	SkipEmpty bool   `json:"skipEmpty"`
	target
}

func runTextJoin(ctx context.Context, task *action.Task) (action.Result, error) {
	in := joinInput{Separator: "\n"}
	if err := decode(task, &in); err != nil {
		return action.Result{}, err
	}
	// The size is computed before anything is written, because short lists with
	// long separators can become very large.
	size, count := int64(0), int64(0)
	err := in.each(ctx, task, func(text string) error {
		count++
		size += int64(len(text) + len(in.Separator) + len(in.Prefix) + len(in.Suffix))
		return nil
	})
	if err != nil {
		return action.Result{}, err
	}
	if in.Output == "file" && size > maxResultFile || in.Output != "file" && size > maxResultInMemory {
		return action.Result{}, fault.New(fault.OutputTooLarge, "the joined text would have %d bytes: join fewer texts, or with a shorter separator, prefix and suffix", size)
	}
	if in.Output != "file" {
		var b strings.Builder
		b.Grow(int(size))
		if err := in.write(ctx, task, &b); err != nil {
			return action.Result{}, err
		}
		return action.Result{Output: map[string]any{"text": b.String(), "count": count}}, nil
	}
	info, err := storeOutput(ctx, task, in.fileName("text.txt"), "text/plain", func(w *bufio.Writer) error { return in.write(ctx, task, w) })
	if err != nil {
		return action.Result{}, err
	}
	return action.Result{Output: map[string]any{"file": info.Hash, "name": info.Name, "count": count}}, nil
}

// each calls use for the texts that are to be joined.
func (in *joinInput) each(ctx context.Context, task *action.Task, use func(text string) error) error {
	i := 0
	for raw, err := range task.Items(ctx, "items") {
		if err == nil && i == maxJoined {
			err = fault.New(fault.InputInvalid, "there are more than %d texts: join a part of them at a time", maxJoined)
		}
		if err != nil {
			return err
		}
		text, kind := asText(raw)
		if kind != nil {
			return fault.New(fault.InputInvalid, "items[%d] is %s: want a text, a number, a boolean or null", i, kind)
		}
		i++
		if in.SkipEmpty && strings.TrimSpace(text) == "" {
			continue
		}
		if err := use(text); err != nil {
			return err
		}
	}
	return nil
}

// maxJoined is the most texts in a list.
const maxJoined = 1_000_000

func (in *joinInput) write(ctx context.Context, task *action.Task, w io.StringWriter) error {
	first := true
	return in.each(ctx, task, func(text string) error {
		parts := [...]string{in.Separator, in.Prefix, text, in.Suffix}
		if first {
			parts[0] = ""
		}
		first = false
		for _, s := range parts {
			if _, err := w.WriteString(s); err != nil {
				return err
			}
		}
		return nil
	})
}

// asText returns the text of a JSON value. The error names any other type.
func asText(raw json.RawMessage) (string, error) {
	switch raw[0] {
	case '"':
		var s string
		err := json.Unmarshal(raw, &s)
		return s, err
	case '[':
		return "", kindError("a list")
	case '{':
		return "", kindError("an object")
	case 'n':
		return "", nil
	}
	return string(raw), nil
}

type kindError string

func (k kindError) Error() string { return string(k) }
