// SPDX-License-Identifier: Apache-2.0

// Package action is what an action author writes against.
//
// An [Action] declares what a step may call: name and version, the schemas of
// its input and output, what it costs, how long it takes, and the Go function
// that does the work. The engine decides when it runs, how often it is tried
// and what becomes of its result; an action decides only that result.
//
// An action never sees the graph, other steps or the journal. Its effects are
// attempted at least once and recorded once; a service that honours
// [Task.EffectKey] makes them effectively once.
package action

import (
	"context"
	"encoding/json"
	"io"
	"iter"

	"github.com/roux-engine/roux/fault"
)

// Delivery says what a lost attempt means.
type Delivery string

// The two promises. AtLeastOnce is the default: a lost attempt is tried again
// with the same effect key. AtMostOnce fails INTERRUPTED at the first loss.
const (
	AtLeastOnce Delivery = "at_least_once"
	AtMostOnce  Delivery = "at_most_once"
)

// An Action is a declaration with the function that carries it out.
type Action struct {
	Name string // [a-z][a-z0-9-]{0,63}
	// Aliases are other names that recipes may call it by, such as what it is
	// called elsewhere: [a-z][a-z0-9_-]{0,63}. A plan holds Name, whatever the
	// recipe wrote; an action of that very name goes before an alias.
	Aliases     []string
	Version     string // semantic version, "1.0.0"
	Description string // one sentence for people
	// Input and Output are JSON Schemas (2020-12) of an object each; nil
	// accepts everything. A property of Input with "format": "file" holds a
	// file hash (sha256_…) and is filled with the run's only file when a step
	// binds nothing to it.
	Input, Output json.RawMessage
	Metadata      Metadata
	Cost          int64  // whole credits for a completed call; never negative
	Provider      string // the outside service whose slots it needs; "" = none
	// Slots bounds how many attempts run at once in this engine; 0 = no bound
	// of its own.
	Slots    int
	Delivery Delivery // "" = AtLeastOnce
	// Limits are the bounds that a caller meets, one sentence each, such as
	// "Files up to 128 MiB.".
	Limits []string
	// Faults are the codes it fails with of its own accord, beside those that
	// any action may fail with (INPUT_INVALID, STEP_TIMEOUT and the like).
	Faults []fault.Code
	// Examples are inputs that work, the plainest first.
	Examples []Example
	// Streams names inputs that hold lists and that Run reads by [Task.Items]. One
	// that lies in a file may then have any size: it is read as Run asks for it, and
	// is not in the task's Input. Of a list over 64 MiB only the type is checked; the
	// rest of its schema is for Run to judge.
	Streams []string
	// Waits names an input that holds a duration ("90s") or a point in time
	// (RFC 3339). A step that calls such an action is a durable wait: it holds
	// no worker, survives restarts, costs nothing and gives null, and Run is nil.
	// Its other inputs are for people. "" = an ordinary action.
	Waits string
	Run   Func
}

// An Example is an input with a sentence that says what it is for. A file input
// holds "file" in place of a hash.
type Example struct {
	Title string          `json:"title"`
	Input json.RawMessage `json:"input"`
}

// A Func does the work of one attempt. It returns the output, or an error: a
// *fault.Error keeps its code, any other becomes STEP_FAILED. It must return
// soon after ctx ends; what it returns then is ignored. Its goroutine is not its
// own: it must leave it as it was found, so what it locks by
// [runtime.LockOSThread] it unlocks.
type Func func(ctx context.Context, task *Task) (Result, error)

// A Result is the outcome of a successful attempt.
type Result struct {
	// Output is any value that encoding/json can encode; it becomes the step's
	// output, at most 64 MiB. A json.RawMessage is taken as it is. Past 1 MiB its
	// largest texts and lists are put into files: expressions then see their size
	// and pass them on, and the next action gets them whole. The name "$roux" is
	// reserved.
	Output any
	// Cost overrides the declared cost, in whole credits; nil = as declared.
	Cost *int64
}

// A Task is one attempt, as the action sees it.
type Task struct {
	Run     string // run id
	Step    string // scope path and step id, such as "pages[3].resize"
	Attempt int    // counts every hand-out, from 1
	Account string
	// EffectKey names the effect and stays the same while the outcome of the
	// last attempt is unknown (I4). Pass it to services as idempotency key.
	EffectKey string
	// Input is the rendered input as canonical JSON of an object.
	Input json.RawMessage
	// Lists holds those of [Action.Streams] that lie in files.
	Lists map[string]List
	Files Files
	// Report tells people how it goes; nil in tests that do not care.
	Report Reporter
}

// Decode unmarshals the task's input into v.
func (t *Task) Decode(v any) error { return json.Unmarshal(t.Input, v) }

// Items reads the elements of a list input, each as canonical JSON, in order and up to
// the first error. It may be called again. Of an input that is missing or no list there
// are none.
func (t *Task) Items(ctx context.Context, name string) iter.Seq2[json.RawMessage, error] {
	if l, ok := t.Lists[name]; ok {
		return l.Items(ctx)
	}
	return func(yield func(json.RawMessage, error) bool) {
		var input map[string]json.RawMessage
		if err := t.Decode(&input); err != nil {
			yield(nil, err)
			return
		}
		var items []json.RawMessage
		if raw := input[name]; len(raw) > 0 && raw[0] == '[' {
			if err := json.Unmarshal(raw, &items); err != nil {
				yield(nil, err)
				return
			}
		}
		for _, item := range items {
			if !yield(item, nil) {
				return
			}
		}
	}
}

// Has says whether an input was given; null counts as given.
func (t *Task) Has(name string) bool {
	if _, ok := t.Lists[name]; ok {
		return true
	}
	var input map[string]json.RawMessage
	return t.Decode(&input) == nil && input[name] != nil
}

// A List is a list input that lies in a file.
type List interface {
	// Len is the number of its elements.
	Len() int64
	// Items reads them in order, up to the first error.
	Items(ctx context.Context) iter.Seq2[json.RawMessage, error]
}

// Files gives an action the files of its account, addressed by content.
type Files interface {
	// Open returns the file's bytes and facts. The caller closes it.
	Open(ctx context.Context, hash string) (File, error)
	// Put stores what r yields and returns its facts. The file is durable when
	// Put returns; equal content gets the same hash.
	Put(ctx context.Context, r io.Reader, name, mimeType string) (FileInfo, error)
}

// A File is an open, immutable file.
type File interface {
	io.ReadSeekCloser
	io.ReaderAt
	Info() FileInfo
}

// FileInfo is what is known of a file without reading it.
type FileInfo struct {
	Hash     string `json:"hash"` // sha256_<64 hex>
	Name     string `json:"name,omitempty"`
	MimeType string `json:"mimeType"`
	Size     int64  `json:"sizeBytes"`
	// Extended is what only files of its kind have, as file-inspect names it
	// (pageCount, width, height, orientation, durationMs, …), a JSON object.
	// nil when nothing was found, or not looked for.
	Extended json.RawMessage `json:"extended,omitempty"`
}

// A Reporter carries progress to whoever watches. It never blocks for long and
// never fails: what exceeds its bounds (1,000 log lines, 4 MiB per attempt) is
// dropped and counted.
type Reporter interface {
	Progress(fraction float64, text string)
	Log(level, text string)
	Delta(text string)
	Preview(value any)
}

// Metadata is the recipeMetadata of the recipe-system source (X10–X12).
type Metadata struct {
	InputTypes       []TypeDefinition  `json:"inputTypes"`
	OutputTypes      []TypeDefinition  `json:"outputTypes"`
	BranchConditions []BranchCondition `json:"branchConditions,omitempty"`
	// Parallelizable permits the action in parallel branches and concurrent
	// loops (X54). Missing means true.
	Parallelizable *bool          `json:"parallelizable,omitempty"`
	DurationRange  *DurationRange `json:"durationRange,omitempty"`
}

// MayRunInParallel is Parallelizable with its default.
func (m Metadata) MayRunInParallel() bool { return m.Parallelizable == nil || *m.Parallelizable }

// TypeDefinition names what an action takes or gives (X11).
type TypeDefinition struct {
	Name        string          `json:"name"`
	MimeTypes   []string        `json:"mimeTypes,omitempty"` // patterns such as "image/*"
	Schema      json.RawMessage `json:"schema,omitempty"`
	Description string          `json:"description"`
}

// BranchCondition is a ready-made predicate over `output` (X12).
type BranchCondition struct {
	Name        string `json:"name"`
	Expression  string `json:"expression"` // CEL
	Description string `json:"description"`
}

// DurationRange is how long a call usually takes, as durations ("100ms", "5s").
type DurationRange struct {
	Min string `json:"min"`
	Max string `json:"max"`
}
