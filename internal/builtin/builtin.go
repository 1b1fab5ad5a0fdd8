// SPDX-License-Identifier: Apache-2.0

// Package builtin holds the actions that come with Roux.
//
// It decides what they take, give and cost, and turns files into values. It
// never parses an untrusted file itself (media does, under limits), opens no
// path and dials nobody itself: files come from and go to the task's Files,
// requests go through egress.
package builtin

import (
	"context"
	"encoding/json"
	"path"
	"strings"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/egress"
	"github.com/roux-engine/roux/internal/media"
)

// Config is what the actions work with. Fields left zero take the default
// their comment names.
type Config struct {
	// Egress sends the requests of actions that speak to the outside. Default:
	// a client of its own, which reaches public addresses only.
	Egress *egress.Client
}

// Actions returns the actions of this release.
//
// Credits are whole and count the work: 1 for looking at a file and for work on
// text, 2 for making an image anew, 5 for reading all of a document, 10 for
// asking a model; waiting is free.
func Actions(cfg Config) []action.Action {
	if cfg.Egress == nil {
		cfg.Egress = egress.New(egress.Config{})
	}
	reader := media.New(media.Config{})
	return []action.Action{
		fileInspect(reader),
		pdfToMarkdown(reader),
		resizeImage(reader),
		convertImage(reader),
		httpRequest(cfg.Egress),
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
		sleep(),
		translateText(),
	}
}

const typePDF = "application/pdf"

// fileSchema is the schema of a file hash as input or output.
const fileSchema = `{"type":"string","format":"file","pattern":"^sha256_[0-9a-f]{64}$","description":"Hash of the file."}`

// openFile opens the file that the input names.
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

// report is the task's reporter, or one that nobody hears.
func report(task *action.Task) action.Reporter {
	if task.Report == nil {
		return silent{}
	}
	return task.Report
}

type silent struct{}

func (silent) Progress(float64, string) {}
func (silent) Log(string, string)       {}
func (silent) Delta(string)             {}
func (silent) Preview(any)              {}

func yes() *bool { t := true; return &t }

func schema(text string) json.RawMessage { return json.RawMessage(text) }

// stem is a file's name without its extension.
func stem(name, without string) string {
	if s := strings.TrimSuffix(name, path.Ext(name)); s != "" {
		return s
	}
	return without
}
