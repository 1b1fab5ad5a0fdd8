// SPDX-License-Identifier: Apache-2.0

//go:build !small

package workspace

import (
	"encoding/json"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

// The bounds of what the actions below put into one workspace, and of what they return as text.
const (
	maxFiles = 10_000
	maxBytes = 1 << 30
	maxText  = 16 << 20
)

const (
	pathProp  = `"path": {"type": "string", "minLength": 1, "maxLength": 512, "description": "The file's path in the workspace of the run, such as pages/1.txt, with / between its parts."}`
	sizeProp  = `"sizeBytes": {"type": "integer", "minimum": 0, "description": "How many bytes the file has."}`
	limitText = "10,000 files and 1 GiB together in a workspace, and paths of 16 parts."
)

// Actions returns the actions on the files of a workspace.
func Actions() []action.Action {
	return []action.Action{writeAction(), readAction(), listAction()}
}

func declared(a action.Action) action.Action {
	parallel := true
	a.Version, a.Cost = "1.0.0", 1
	a.Metadata.Parallelizable, a.Metadata.DurationRange = &parallel, &action.DurationRange{Min: "1ms", Max: "30s"}
	a.Limits = append(a.Limits, "Only in a run that has a workspace: a step with `workspace` has started it.")
	a.Faults = append(a.Faults, fault.InputInvalid, fault.NotAvailable, fault.FileInvalid, fault.StoreFull, fault.StoreReadOnly, fault.StoreFailed)
	return a
}

func writeAction() action.Action {
	return declared(action.Action{
		Name:        "workspace-write",
		Description: "Writes a text or a file to a path in the workspace of the run, in place of what is there.",
		Input: json.RawMessage(`{
			"type": "object",
			"properties": {
				` + pathProp + `,
				"text": {"type": "string", "description": "A text, written as UTF-8."},
				"file": {"type": "string", "format": "file", "pattern": "^sha256_[0-9a-f]{64}$", "description": "Hash of any file. A step that is given no text gets the run's only file."}
			},
			"required": ["path"],
			"x-exactlyOne": ["text", "file"],
			"additionalProperties": false
		}`),
		Output: json.RawMessage(`{
			"type": "object",
			"properties": {
				"path": {"type": "string", "description": "The file's path in the workspace."},
				` + sizeProp + `
			},
			"required": ["path", "sizeBytes"],
			"additionalProperties": false
		}`),
		Metadata: action.Metadata{
			InputTypes:  types("content", "A text, or any file.", "*/*"),
			OutputTypes: types("written", "Where it was written, and how much.", "application/json"),
		},
		Limits: []string{limitText},
		Faults: []fault.Code{fault.FileNotFound, fault.FileTooLarge},
		Examples: []action.Example{
			{Title: "A text.", Input: json.RawMessage(`{"path":"notes/today.txt","text":"hello"}`)},
			{Title: "The run's file.", Input: json.RawMessage(`{"file":"file","path":"in/original"}`)},
		},
		Run: write,
	})
}

func readAction() action.Action {
	return declared(action.Action{
		Name:        "workspace-read",
		Description: "Reads a file in the workspace of the run, as a text or into the files of the account.",
		Input: json.RawMessage(`{
			"type": "object",
			"properties": {
				` + pathProp + `,
				"output": {"enum": ["inline", "file"], "default": "inline", "description": "file stores the content as a file and returns its hash, for contents that are large, no text, or wanted as a file."},
				"name": {"type": "string", "minLength": 1, "maxLength": 255, "description": "With output: file. The name of the file. Default: the last part of the path."}
			},
			"required": ["path"],
			"additionalProperties": false
		}`),
		Output: json.RawMessage(`{
			"type": "object",
			"properties": {
				"text": {"type": "string", "description": "The content; missing with output: file."},
				"file": {"type": "string", "format": "file", "description": "With output: file. Its hash."},
				"name": {"type": "string", "description": "With output: file. The name of the file."},
				` + sizeProp + `
			},
			"required": ["sizeBytes"],
			"additionalProperties": false
		}`),
		Metadata: action.Metadata{
			InputTypes:  types("path", "A path.", "text/plain"),
			OutputTypes: types("content", "The content of the file.", "*/*"),
			BranchConditions: []action.BranchCondition{
				{Name: "is-empty", Expression: `output.sizeBytes == 0`, Description: "The file is empty."},
			},
		},
		Limits: []string{"Texts up to 16 MiB; a file has any size that the store takes."},
		Faults: []fault.Code{fault.FileNotFound, fault.FileTooLarge},
		Examples: []action.Example{
			{Title: "A text.", Input: json.RawMessage(`{"path":"notes/today.txt"}`)},
			{Title: "A file that outlives the run.", Input: json.RawMessage(`{"name":"report.pdf","output":"file","path":"out/report.pdf"}`)},
		},
		Run: read,
	})
}

func listAction() action.Action {
	return declared(action.Action{
		Name:        "workspace-list",
		Description: "Lists the files in the workspace of the run, sorted by path. Links are no files.",
		Input: json.RawMessage(`{
			"type": "object",
			"properties": {
				"under": {"type": "string", "minLength": 1, "maxLength": 512, "description": "A directory in the workspace, of which alone the files are listed. Default: the workspace."}
			},
			"additionalProperties": false
		}`),
		Output: json.RawMessage(`{
			"type": "object",
			"properties": {
				"files": {
					"type": "array", "description": "The files; empty if there is no such directory.",
					"items": {
						"type": "object",
						"properties": {
							"path": {"type": "string", "description": "The file's path in the workspace."},
							` + sizeProp + `
						},
						"required": ["path", "sizeBytes"],
						"additionalProperties": false
					}
				},
				"count": {"type": "integer", "minimum": 0, "description": "How many files there are."},
				"totalBytes": {"type": "integer", "minimum": 0, "description": "How many bytes they have together."}
			},
			"required": ["files", "count", "totalBytes"],
			"additionalProperties": false
		}`),
		Metadata: action.Metadata{
			InputTypes:  types("path", "A path, or nothing.", "text/plain"),
			OutputTypes: types("files", "Paths and sizes.", "application/json"),
			BranchConditions: []action.BranchCondition{
				{Name: "is-empty", Expression: `output.count == 0`, Description: "There are no files."},
			},
		},
		Limits: []string{"10,000 files, and paths of 16 parts."},
		Faults: []fault.Code{fault.FileTooLarge},
		Examples: []action.Example{
			{Title: "All files.", Input: json.RawMessage(`{}`)},
			{Title: "Those of one directory.", Input: json.RawMessage(`{"under":"pages"}`)},
		},
		Run: list,
	})
}

func types(name, description string, mimeTypes ...string) []action.TypeDefinition {
	return []action.TypeDefinition{{Name: name, MimeTypes: mimeTypes, Description: description}}
}
