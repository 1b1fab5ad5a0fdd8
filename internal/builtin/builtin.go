// SPDX-License-Identifier: Apache-2.0

// Package builtin has the actions that come with Roux.
//
// It decides their inputs, outputs and costs, and turns files into values. It
// never parses an untrusted file itself (media does, with limits), opens no path
// and makes no connection: files are read and written through the task's Files,
// and requests go through egress.
package builtin

import (
	"cmp"
	"context"
	"encoding/json"
	"path"
	"reflect"
	"strings"
	"sync"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/egress"
	"github.com/roux-engine/roux/internal/media"
	"github.com/roux-engine/roux/internal/provider"
	"github.com/roux-engine/roux/internal/workspace"
)

// Config configures the actions. Fields left zero take the default that their
// comment names.
type Config struct {
	// Egress sends the requests of actions that use the network. Default: a client
	// of its own, which reaches public addresses only.
	Egress *egress.Client
	// Models are the providers of language models. Default: none, and actions that need one
	// fail.
	Models *provider.Set
}

// Actions returns the actions of this release.
//
// Credits are whole numbers and measure the work: 1 for inspecting a file and for
// work on text, 2 for converting an image, 5 for reading a whole document, 10 for
// a call of a model; waiting is free.
func Actions(cfg Config) []action.Action {
	if cfg.Egress == nil {
		cfg.Egress = egress.New(egress.Config{})
	}
	reader := media.New(media.Config{})
	return append(append(pure(reader), workspace.Actions()...),
		httpRequest(cfg.Egress),
		sleep(),
		llm(cfg.Models),
		claude(cfg.Models),
		translateText(cfg.Models),
	)
}

// pure are the actions that only compute: what they return depends on their input and files
// alone, and nothing outside changes but that files are kept.
func pure(reader *media.Reader) []action.Action {
	return []action.Action{
		fileInspect(reader),
		pdfToMarkdown(reader),
		resizeImage(reader),
		convertImage(reader),
		csvToJSON(),
		jsonToCSV(),
		jsonPath(),
		rowsQuery(),
		textSplit(),
		textJoin(),
		textReplace(),
		wordCount(),
		htmlToMarkdown(reader),
		markdownToHTML(reader),
		hashAction(),
	}
}

// pureCode is the code of the actions that only compute, by their names.
var pureCode = sync.OnceValue(func() map[string]uintptr {
	code := map[string]uintptr{}
	for _, a := range pure(media.New(media.Config{})) {
		code[a.Name] = reflect.ValueOf(a.Run).Pointer()
	}
	return code
})

// Pure reports whether an action comes with Roux and only computes, so that calling it has no effect outside and
// costs nobody anything. Another one of the same name, of a program or a worker, is none.
func Pure(a *action.Action) bool {
	code, ok := pureCode()[a.Name]
	return ok && a.Run != nil && reflect.ValueOf(a.Run).Pointer() == code
}

const typePDF = "application/pdf"

// fileSchema is the schema of a file hash as input or output.
const fileSchema = `{"type":"string","format":"file","pattern":"^sha256_[0-9a-f]{64}$","description":"Hash of the file."}`

// openFile opens the file named by the input.
func openFile(ctx context.Context, task *action.Task, hash string) (action.File, error) {
	if hash == "" {
		return nil, fault.New(fault.InputMissing, `input "file" is missing: want the hash of a file, or give the run exactly one file`)
	}
	return task.Files.Open(ctx, hash)
}

func decode(task *action.Task, v any) error {
	if err := task.Decode(v); err != nil {
		return fault.Wrap(fault.InputInvalid, err, "the input does not fit the action: %v", err)
	}
	return nil
}

// report returns the task's reporter, or one that discards everything.
func report(task *action.Task) action.Reporter { return cmp.Or(task.Report, action.Discard) }

func boolTrue() *bool { t := true; return &t }

func schema(text string) json.RawMessage { return json.RawMessage(text) }

// stem returns a file name without its extension, or without if nothing is left.
func stem(name, without string) string {
	if s := strings.TrimSuffix(name, path.Ext(name)); s != "" {
		return s
	}
	return without
}
