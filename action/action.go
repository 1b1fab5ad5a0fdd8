// SPDX-License-Identifier: Apache-2.0

// Package action defines the types with which actions are written.
//
// An [Action] declares what a step may call: name and version, the schemas of its input and output,
// what it costs, how long it takes, and the Go function that does the work. The engine decides when it
// runs, how often it is tried and what happens with its result; an action decides only that result.
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
	"os"
	"time"

	"github.com/roux-engine/roux/fault"
)

// Delivery is what the engine does after an attempt whose outcome is unknown: its process died
// before the outcome was recorded, it took too long, or its error says so.
type Delivery string

// The two kinds of delivery. AtLeastOnce is the default: a lost attempt is tried again
// with the same effect key, and one that failed as its retry policy says. With AtMostOnce the
// step fails at the first attempt whose outcome is unknown: with INTERRUPTED if it was lost.
const (
	AtLeastOnce Delivery = "at_least_once"
	AtMostOnce  Delivery = "at_most_once"
)

// An Action is the declaration of an action with the function that implements
// it.
type Action struct {
	Name string // [a-z][a-z0-9-]{0,63}
	// Aliases are other names that recipes may use for it, such as its name in other
	// systems: [a-z][a-z0-9_-]{0,63}. A plan always holds Name. If a name is the Name of
	// one action and an alias of another, it means the former.
	Aliases []string
	Version string // semantic version, "1.0.0"
	// Revision names the configuration of an action that can be changed without a new version,
	// such as that of a command. A cached result of another revision is not used. "" = there is
	// nothing to change.
	Revision    string
	Description string // one sentence for people
	// Input and Output are JSON Schemas (2020-12) of an object each; nil
	// accepts everything. A property of Input with "format": "file" holds a
	// file hash (sha256_…) and is filled with the run's only file when a step
	// binds nothing to it.
	Input, Output json.RawMessage
	Metadata      Metadata
	Cost          int64 // whole credits for a completed call; never negative
	// Price is the cost of a completed call as decimal text, for a price that is not
	// whole: digits, and at most six more after a point, such as "0.0025". A run pins the
	// prices when it starts. Set Cost or Price, not both.
	Price    string
	Provider string // the outside service whose slots it needs; "" = none
	// Slots bounds how many attempts of this action run at once in an engine; 0 = no
	// bound.
	Slots    int
	Delivery Delivery // "" = AtLeastOnce
	// Limits are the limits that a caller must know, one sentence each, such as
	// "Files up to 128 MiB.".
	Limits []string
	// Faults are the codes that it returns, in addition to those that any action may fail
	// with (INPUT_INVALID, STEP_TIMEOUT and the like).
	Faults []fault.Code
	// Examples are valid inputs, the simplest first.
	Examples []Example
	// Streams names inputs that hold lists and that Run reads with [Task.Items]. Such a
	// list may have any size if it is stored in a file: it is read while Run iterates, and
	// is not in the task's Input. For a list over 64 MiB only the type is checked; Run must
	// check the rest of its schema.
	Streams []string
	// Waits names an input that holds a duration ("90s") or a point in time (RFC 3339). A
	// step that calls such an action is a durable wait: it holds no worker, survives
	// restarts, costs nothing, and its output is null. Run is nil, and the other inputs
	// are only informative. "" = an ordinary action.
	Waits string
	Run   Func
}

// An Example is an input with a sentence that describes it. A file input holds "file"
// instead of a hash.
type Example struct {
	Title string          `json:"title"`
	Input json.RawMessage `json:"input"`
}

// A Func does the work of one attempt. It returns the output, or an error: a
// *fault.Error keeps its code, any other error becomes STEP_FAILED. An error says that nothing
// happened outside, or that the service has failed, unless it is one of [fault.Unsure]. It must return
// soon after ctx ends; what it returns then is ignored. Its goroutine is reused, so it
// must leave the goroutine unchanged and undo every [runtime.LockOSThread].
type Func func(ctx context.Context, task *Task) (Result, error)

// A Result is the outcome of a successful attempt.
type Result struct {
	// Output is any value that encoding/json can encode; it becomes the step's output, at
	// most 64 MiB. A json.RawMessage is used as it is. Beyond 1 MiB the largest texts and
	// lists are stored in files: expressions can then read their size and pass them on,
	// and the next action gets them whole. The field name "$roux" is reserved.
	Output any
	// Job, when set, says that the work goes on outside: the step waits for the job, holds no
	// worker meanwhile, and Output, Cost and Price are ignored. How the job ended is found out
	// through its provider, by a webhook or by asking.
	Job *Job
	// Cost overrides the declared cost, in whole credits; nil = as declared.
	Cost *int64
	// Price is what the call cost, as decimal text, of an action with a price; "" = the
	// declared price, which is also the most that is charged. With an error it is what
	// the failed call cost: that is recorded and not charged.
	Price string
	// Tokens is how many tokens of a model the call used, for limits of tokens; 0 = not known.
	// Give it with an error, too.
	Tokens int64
}

// A Job is work that an action has submitted to an outside service and that goes on when the
// action has returned (X128): what the orchestration-engine source calls ExternalJobSubmitted.
type Job struct {
	Provider string // the provider that knows how to ask about it, by its configured name
	ID       string // the id that the service has given it
	// Handle is what the provider needs to ask about it beyond the id, such as an address:
	// JSON, at most 4 KiB, without secrets. nil = nothing.
	Handle json.RawMessage
	// TTL is how long the job may take; after that the step fails with JOB_EXPIRED.
	// Default 24 h.
	TTL time.Duration
}

// A Task is one attempt, as the action sees it.
type Task struct {
	Run     string // run id
	Step    string // scope path and step id, such as "pages[3].resize"
	Attempt int    // counts every dispatch, from 1
	Account string
	// EffectKey identifies the effect and stays the same while the outcome of the last
	// attempt is unknown (I4). Pass it to services as idempotency key. An attempt that sent a
	// request and got no answer returns [fault.Unsure].
	EffectKey string
	// Input is the rendered input as canonical JSON of an object.
	Input json.RawMessage
	// Lists holds the inputs named in [Action.Streams] that are stored in files.
	Lists map[string]List
	Files Files
	// TraceParent is the W3C trace context of the attempt. Send it to services as the
	// header traceparent, so that their spans are below the attempt's; "" = the run is not
	// traced.
	TraceParent string
	// Root is that of [Task.Workspace]; nil = the run has no workspace. It may be nil in tests.
	Root func() (*os.Root, error)
	// Report shows progress to people; it may be nil in tests.
	Report Reporter
}

// Workspace opens the directory of the run, which a step that runs a recipe gives it with the field
// workspace. Nothing outside of it can be reached through it. Attempts of the run share it, also at
// the same time, and an attempt finds what earlier ones have left. It is removed after the run has
// ended. It is on the disk of one machine and in no backup: what must last belongs into [Task.Files].
// The engine closes it when Run has returned. The error fault.NotAvailable means that the run has
// none: it is a root run, no step above it says workspace, or a remote worker carries it out.
func (t *Task) Workspace() (*os.Root, error) {
	if t.Root == nil {
		return nil, fault.New(fault.NotAvailable, "there is no workspace here: have the recipe run by a step that says `workspace`, and not by a remote worker")
	}
	return t.Root()
}

// Decode unmarshals the task's input into v.
func (t *Task) Decode(v any) error { return json.Unmarshal(t.Input, v) }

// Items yields the elements of a list input in order, each as canonical JSON, up to the
// first error. It may be called again. It yields nothing for an input that is missing or
// is not a list.
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

// Has reports whether an input was given; null counts as given.
func (t *Task) Has(name string) bool {
	if _, ok := t.Lists[name]; ok {
		return true
	}
	var input map[string]json.RawMessage
	return t.Decode(&input) == nil && input[name] != nil
}

// A List is a list input that is stored in a file.
type List interface {
	// Len returns the number of elements.
	Len() int64
	// Items yields the elements in order, up to the first error.
	Items(ctx context.Context) iter.Seq2[json.RawMessage, error]
}

// Files gives an action access to the files of its account, addressed by
// content.
type Files interface {
	// Open opens a file. The caller must close it.
	Open(ctx context.Context, hash string) (File, error)
	// Put stores what r yields. The file is durable when Put returns; equal content gets
	// the same hash.
	Put(ctx context.Context, r io.Reader, name, mimeType string) (FileInfo, error)
}

// A File is an open, immutable file.
type File interface {
	io.ReadSeekCloser
	io.ReaderAt
	Info() FileInfo
}

// FileInfo describes a file.
type FileInfo struct {
	Hash     string `json:"hash"` // sha256_<64 hex>
	Name     string `json:"name,omitempty"`
	MimeType string `json:"mimeType"`
	Size     int64  `json:"sizeBytes"`
	// Extended has the properties of this type of file, as file-inspect names them
	// (pageCount, width, height, orientation, durationMs, …), a JSON object. It is nil if
	// nothing was found or the file was not inspected.
	Extended json.RawMessage `json:"extended,omitempty"`
}

// A Reporter sends progress to the users who watch a run. It never blocks for long and
// never fails: reports beyond its bounds (1,000 log lines, 4 MiB per attempt) are
// dropped and counted.
type Reporter interface {
	Progress(fraction float64, text string)
	Log(level, text string)
	// Delta sends a piece of a text that is streamed. Pieces are joined for at most 100 ms
	// or up to 4 KiB before they are an event.
	Delta(text string)
	Preview(value any)
}

// Discard is a Reporter that drops everything.
var Discard Reporter = discard{}

type discard struct{}

func (discard) Progress(float64, string) {}
func (discard) Log(string, string)       {}
func (discard) Delta(string)             {}
func (discard) Preview(any)              {}

// Metadata is the recipeMetadata of the recipe-system source document
// (X10–X12).
type Metadata struct {
	InputTypes       []TypeDefinition  `json:"inputTypes"`
	OutputTypes      []TypeDefinition  `json:"outputTypes"`
	BranchConditions []BranchCondition `json:"branchConditions,omitempty"`
	// Parallelizable permits the action in parallel branches and concurrent
	// loops (X54). Missing means true.
	Parallelizable *bool          `json:"parallelizable,omitempty"`
	DurationRange  *DurationRange `json:"durationRange,omitempty"`
}

// MayRunInParallel returns Parallelizable, or its default.
func (m Metadata) MayRunInParallel() bool { return m.Parallelizable == nil || *m.Parallelizable }

// TypeDefinition describes an input or output of an action (X11).
type TypeDefinition struct {
	Name        string          `json:"name"`
	MimeTypes   []string        `json:"mimeTypes,omitempty"` // patterns such as "image/*"
	Schema      json.RawMessage `json:"schema,omitempty"`
	Description string          `json:"description"`
}

// BranchCondition is a predefined condition on `output` (X12).
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
