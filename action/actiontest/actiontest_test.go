// SPDX-License-Identifier: Apache-2.0

package actiontest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

// greet is a minimal action.
var greet = action.Action{
	Name: "greet", Version: "1.0.0", Description: "Greets a person by name.",
	Input:  json.RawMessage(`{"type":"object","properties":{"name":{"type":"string","minLength":1}},"required":["name"],"additionalProperties":false}`),
	Output: json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`),
	Run: func(_ context.Context, task *action.Task) (action.Result, error) {
		var in struct{ Name string }
		err := task.Decode(&in)
		return action.Result{Output: map[string]any{"text": "Hello, " + in.Name + "!"}}, err
	},
}

// shout is a published action: it reads a file and makes one.
var shout = func() action.Action {
	yes := true
	return action.Action{
		Name: "shout", Version: "1.2.3", Description: "Puts a text into capitals.", Cost: 2,
		Input:  json.RawMessage(`{"type":"object","properties":{"file":{"type":"string","format":"file"}},"required":["file"]}`),
		Output: json.RawMessage(`{"type":"object","properties":{"file":{"type":"string"},"size":{"type":"integer"}},"required":["file","size"]}`),
		Metadata: action.Metadata{
			InputTypes:       []action.TypeDefinition{{Name: "text", MimeTypes: []string{"text/*"}, Description: "A text."}},
			OutputTypes:      []action.TypeDefinition{{Name: "text", MimeTypes: []string{"text/plain"}, Description: "The text, louder."}},
			BranchConditions: []action.BranchCondition{{Name: "is-short", Expression: "output.size < 10", Description: "Less than ten bytes."}},
			Parallelizable:   &yes, DurationRange: &action.DurationRange{Min: "1ms", Max: "1s"},
		},
		Limits: []string{"Texts up to 1 MiB."}, Faults: []fault.Code{fault.FileInvalid},
		Examples: []action.Example{{Title: "A file.", Input: json.RawMessage(`{"file":"file"}`)}},
		Run: func(ctx context.Context, task *action.Task) (action.Result, error) {
			var in struct{ File string }
			if err := task.Decode(&in); err != nil {
				return action.Result{}, err
			}
			f, err := task.Files.Open(ctx, in.File)
			if err != nil {
				return action.Result{}, err
			}
			defer func() { _ = f.Close() }()
			text, err := io.ReadAll(f)
			if err != nil {
				return action.Result{}, err
			}
			made, err := task.Files.Put(ctx, strings.NewReader(strings.ToUpper(string(text))), "loud-"+f.Info().Name, "text/plain")
			return action.Result{Output: map[string]any{"file": made.Hash, "size": made.Size}}, err
		},
	}
}()

// problems returns the problems that Check would report.
func problems(t *testing.T, act action.Action, opts ...Option) []string {
	s := settingsOf(opts)
	s.files = NewFiles(t)
	c := checker{s: s, act: act}
	c.run()
	return c.problems
}

func TestCheckPasses(t *testing.T) {
	Check(t, greet)
	Check(t, shout, Published(), Sample("file", "note.txt", []byte("quiet")))
	Check(t, shout, Published(), NoRun("nobody is here to listen"))
}

// X10, X11, X12: each possible mistake in a declaration is found and named.
func TestX10_X11_X12_CheckFinds(t *testing.T) {
	for want, spoil := range map[string]func(a *action.Action){
		`name "Shout"`:                         func(a *action.Action) { a.Name = "Shout" },
		`version "1.2"`:                        func(a *action.Action) { a.Version = "1.2" },
		`description "loud"`:                   func(a *action.Action) { a.Description = "loud" },
		`cost -1`:                              func(a *action.Action) { a.Cost = -1 },
		`price ".5", cost 0`:                   func(a *action.Action) { a.Cost, a.Price = 0, ".5" },
		`price "0.5", cost 2`:                  func(a *action.Action) { a.Price = "0.5" },
		`delivery "maybe"`:                     func(a *action.Action) { a.Delivery = "maybe" },
		`limit "big"`:                          func(a *action.Action) { a.Limits = []string{"big"} },
		`fault code "oops"`:                    func(a *action.Action) { a.Faults = []fault.Code{"oops"} },
		`input schema:`:                        func(a *action.Action) { a.Input = json.RawMessage(`{"type":"object","properties":7}`) },
		`output schema: want "type": "object"`: func(a *action.Action) { a.Output = json.RawMessage(`{"type":"string"}`) },
		`it has no function Run`:               func(a *action.Action) { a.Run = nil },
		`has a function Run, which nobody`:     func(a *action.Action) { a.Waits = "file" },
		`which costs nothing and gives null`:   func(a *action.Action) { a.Waits, a.Run = "file", nil },
		`Waits names the input "until"`:        func(a *action.Action) { a.Waits, a.Run = "until", nil },
		`inputTypes[0] has no name`:            func(a *action.Action) { a.Metadata.InputTypes = []action.TypeDefinition{{Name: "x"}} },
		`"text" is no MIME pattern`: func(a *action.Action) {
			a.Metadata.OutputTypes = []action.TypeDefinition{{Name: "x", Description: "X.", MimeTypes: []string{"text"}}}
		},
		`schema of outputTypes[0]`: func(a *action.Action) {
			a.Metadata.OutputTypes = []action.TypeDefinition{{Name: "x", Description: "X.", Schema: json.RawMessage(`{"type":"nothing"}`)}}
		},
		`durationRange "5s" to "1s"`: func(a *action.Action) { a.Metadata.DurationRange = &action.DurationRange{Min: "5s", Max: "1s"} },
		`examples[0] has no title`:   func(a *action.Action) { a.Examples = []action.Example{{Input: json.RawMessage(`{"file":"file"}`)}} },
		`does not fit the input schema: /file`: func(a *action.Action) {
			a.Examples = []action.Example{{Title: "T", Input: json.RawMessage(`{"file":"f"}`)}}
		},
		`the input is no JSON object`: func(a *action.Action) { a.Examples = []action.Example{{Title: "T", Input: json.RawMessage(`[1]`)}} },
		`failed: STEP_FAILED: no voice`: func(a *action.Action) {
			a.Run = func(context.Context, *action.Task) (action.Result, error) {
				return action.Result{}, errors.New("no voice")
			}
		},
		`branch condition b: `: func(a *action.Action) {
			a.Metadata.BranchConditions = []action.BranchCondition{{Name: "b", Expression: "output.", Description: "B."}}
		},
		`gave 5, <nil>: want true or`: func(a *action.Action) {
			a.Metadata.BranchConditions = []action.BranchCondition{{Name: "b", Expression: "output.size", Description: "B."}}
		},
		`branch condition "b": want a name`: func(a *action.Action) {
			a.Metadata.BranchConditions = []action.BranchCondition{{Name: "b", Expression: "true"}}
		},
		`needs an input schema`:         func(a *action.Action) { a.Input, a.Examples = nil, nil },
		`needs an output schema`:        func(a *action.Action) { a.Output = nil },
		`needs metadata.inputTypes`:     func(a *action.Action) { a.Metadata.InputTypes = nil },
		`needs metadata.outputTypes`:    func(a *action.Action) { a.Metadata.OutputTypes = nil },
		`needs metadata.parallelizable`: func(a *action.Action) { a.Metadata.Parallelizable = nil },
		`needs metadata.durationRange`:  func(a *action.Action) { a.Metadata.DurationRange = nil },
		`needs an example`:              func(a *action.Action) { a.Examples = nil },
		`needs a limit`:                 func(a *action.Action) { a.Limits = nil },
		`needs a cost`:                  func(a *action.Action) { a.Cost = 0 },
	} {
		t.Run(want, func(t *testing.T) {
			a := shout
			spoil(&a)
			got := problems(t, a, Published(), Sample("file", "note.txt", []byte("quiet")))
			if !strings.Contains(strings.Join(got, "\n"), want) {
				t.Errorf("got %q", got)
			}
		})
	}
}

// A durable wait has no function; its examples have a duration.
func TestCheckOfAWait(t *testing.T) {
	wait := action.Action{
		Name: "rest", Version: "1.0.0", Description: "Rests.", Waits: "for",
		Input: json.RawMessage(`{"type":"object","properties":{"for":{"type":"string"}},"required":["for"]}`),
		Examples: []action.Example{
			{Title: "A while.", Input: json.RawMessage(`{"for":"90s"}`)},
			{Title: "Until a day.", Input: json.RawMessage(`{"for":"2030-01-02T03:04:05Z"}`)},
		},
	}
	Check(t, wait)
	wait.Examples[1].Input = json.RawMessage(`{"for":"a bit"}`)
	if got := problems(t, wait); len(got) != 1 || !strings.Contains(got[0], `for is "a bit": want a duration`) {
		t.Errorf("got %q", got)
	}
}

func TestCall(t *testing.T) {
	out, err := Call(t, greet, struct {
		Name string `json:"name"`
	}{"Ada"})
	if err != nil || string(out.JSON) != `{"text":"Hello, Ada!"}` || out.Object()["text"] != "Hello, Ada!" || out.Cost != 0 {
		t.Errorf("%s, %v", out.JSON, err)
	}
	var in struct{ Text string }
	if err := out.Decode(&in); err != nil || in.Text != "Hello, Ada!" {
		t.Errorf("%+v, %v", in, err)
	}
	files := NewFiles(t)
	out, err = Call(t, shout, map[string]any{"file": files.Add("note.txt", []byte("quiet"))}, WithFiles(files))
	if err != nil || out.Cost != 2 || out.Object()["size"] != int64(5) {
		t.Fatalf("%s for %d credits, %v", out.JSON, out.Cost, err)
	}
	if text, info := files.Read(out.Object()["file"].(string)); string(text) != "QUIET" || info.Name != "loud-note.txt" || info.MimeType != "text/plain" {
		t.Errorf("made %q, %+v", text, info)
	}
}

// The kit refuses what a run would refuse, with the same code.
func TestCallFails(t *testing.T) {
	as := func(fn action.Func) action.Action { a := greet; a.Run = fn; return a }
	gives := func(v any) action.Action {
		return as(func(context.Context, *action.Task) (action.Result, error) { return action.Result{Output: v}, nil })
	}
	ada := map[string]any{"name": "Ada"}
	bad := greet
	bad.Output = json.RawMessage(`{"type":7}`)
	for _, tt := range []struct {
		name  string
		act   action.Action
		input any
		code  fault.Code
	}{
		{"an input that does not fit", greet, nil, fault.InputContractViolation},
		{"an output that does not fit", gives(map[string]any{"txt": 1}), ada, fault.OutputContractViolation},
		{"an output that is no JSON", gives(make(chan int)), ada, fault.StepFailed},
		{"a schema that does not compile", bad, ada, fault.RecipeInvalid},
		{"a panic", as(func(context.Context, *action.Task) (action.Result, error) { panic("no") }), ada, fault.StepFailed},
		{"a fault of its own", as(func(context.Context, *action.Task) (action.Result, error) {
			return action.Result{}, fault.New("ACME_DOWN", "no")
		}), ada, "ACME_DOWN"},
		{"a foreign file", as(func(ctx context.Context, task *action.Task) (action.Result, error) {
			_, err := task.Files.Open(ctx, "sha256_"+strings.Repeat("0", 64))
			return action.Result{}, err
		}), ada, fault.FileNotFound},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var f *fault.Error
			if _, err := Call(t, tt.act, tt.input); !errors.As(err, &f) || f.Code != tt.code {
				t.Errorf("%v, want %s", err, tt.code)
			}
		})
	}
}

// The action sees the same task as in a run, and its reports are captured.
func TestCallGivesAnAttempt(t *testing.T) {
	var said Reports
	a := greet
	a.Run = func(ctx context.Context, task *action.Task) (action.Result, error) {
		deadline, ok := ctx.Deadline()
		if left := time.Until(deadline); !ok || left <= 0 || left > 5*time.Second {
			t.Errorf("the deadline is in %v", left)
		}
		task.Report.Progress(0.5, "half")
		task.Report.Log("warning", "slow")
		task.Report.Delta("Hel")
		task.Report.Preview(map[string]any{"b": 1, "a": 2})
		task.Report.Preview(make(chan int))
		return action.Result{Output: map[string]any{"text": fmt.Sprint(task.Attempt, " ", task.EffectKey, " ", task.TraceParent)}}, nil
	}
	out, err := Call(t, a, map[string]any{"name": "Ada"}, Capture(&said), WithAttempt(3), WithEffectKey("k"), WithTraceParent("t"), WithTimeout(5*time.Second))
	if err != nil || out.Object()["text"] != "3 k t" {
		t.Errorf("%s, %v", out.JSON, err)
	}
	want := Reports{
		Progress: []Progress{{0.5, "half"}}, Logs: []Log{{"warn", "slow"}}, Deltas: []string{"Hel"},
		Previews: []json.RawMessage{json.RawMessage(`{"a":2,"b":1}`)}, Dropped: 1,
	}
	if !reflect.DeepEqual(said, want) {
		t.Errorf("said %+v", said)
	}
}

// X96, X115: the timeout and the end of the caller's context reach the action, and an
// action that ignores them is detected.
func TestX96_X115_CallEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listens := greet
		listens.Run = func(ctx context.Context, _ *action.Task) (action.Result, error) {
			<-ctx.Done()
			return action.Result{}, ctx.Err()
		}
		ada := map[string]any{"name": "Ada"}
		if _, err := Call(t, listens, ada, WithTimeout(time.Second)); !errors.Is(err, fault.StepTimeout) {
			t.Errorf("after its time: %v", err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := Call(t, listens, ada, WithContext(ctx)); !errors.Is(err, fault.ExecutionCancelled) {
			t.Errorf("after a cancel: %v", err)
		}
		deaf := greet
		deaf.Run = func(context.Context, *action.Task) (action.Result, error) {
			time.Sleep(time.Minute)
			return action.Result{}, nil
		}
		s := settingsOf([]Option{WithTimeout(time.Second), WithFiles(NewFiles(t))})
		if _, stuck, err := s.attempt(deaf, json.RawMessage(`{"name":"Ada"}`)); !stuck || !errors.Is(err, fault.StepTimeout) {
			t.Errorf("deaf: stuck %t, %v", stuck, err)
		}
		time.Sleep(time.Minute)
	})
}

// Values that are too large for an event are in the files of the call, as in a
// run.
func TestCallOfALargeOutput(t *testing.T) {
	text, files := strings.Repeat("text ", 400_000), NewFiles(t)
	a := greet
	a.Run = func(context.Context, *action.Task) (action.Result, error) {
		return action.Result{Output: map[string]any{"text": text}}, nil
	}
	out, err := Call(t, a, map[string]any{"name": "Ada"}, WithFiles(files))
	if err != nil {
		t.Fatal(err)
	}
	ref, _ := out.Object()["text"].(map[string]any)
	hash, _ := ref["hash"].(string)
	if content, _ := files.Read(hash); ref["$roux"] != "ref" || string(content) != text {
		t.Errorf("output %s, %d bytes in its file", out.JSON, len(content))
	}
}

func TestCallOfAnActionThatSubmits(t *testing.T) {
	act := action.Action{Name: "draw", Version: "1.0.0", Provider: "studio", Run: func(_ context.Context, task *action.Task) (action.Result, error) {
		return action.Result{Job: &action.Job{Provider: "studio", ID: "job-" + task.EffectKey}}, nil
	}}
	out, err := Call(t, act, nil, WithEffectKey("k"))
	if err != nil || out.Job == nil || out.Job.ID != "job-k" || out.Value != nil {
		t.Errorf("the output is %+v (%v), want the job", out, err)
	}
}
