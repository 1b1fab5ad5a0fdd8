// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
	"github.com/roux-engine/roux/internal/journal"
	"github.com/roux-engine/roux/internal/jsonx"
	"github.com/roux-engine/roux/internal/plan"
	"github.com/roux-engine/roux/internal/store/memory"
)

// poisonedInput returns a plan of n steps whose inputs cannot be rendered: their
// parameters are a string instead of an object. No recipe compiles to it, but a damaged
// plan may contain it.
func poisonedInput(t *testing.T, n int) *plan.Plan {
	p := planOf(t, strings.ReplaceAll(fan(n), "{name: noop}", "{name: noop, parameters: {a: 1}}"), noop())
	for i := range p.Steps {
		p.Steps[i].Params = []byte(`"text"`)
	}
	if err := p.Freeze(); err != nil {
		t.Fatal(err)
	}
	return p
}

// A panic while an attempt's input is rendered fails that attempt. The process, the
// loop and the other runs continue, whether the loop or the executor carries out the
// attempt.
func TestI16_PanicWhileRendering(t *testing.T) {
	for name, n := range map[string]int{"by the loop": 1, "by the executor": 20} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := openEngine(t, memory.New(memory.Options{}), Config{}, noop())
				bad := start(t, e, poisonedInput(t, n), nil)
				good := start(t, e, planOf(t, chain(3), noop()), nil)
				head := waitForEnd(t, e, bad)
				if head.Status != "failed" || head.Code != fault.InternalError || !strings.Contains(head.Message, "preparing step") {
					t.Errorf("the run is %s: %s %s", head.Status, head.Code, head.Message)
				}
				if head := waitForEnd(t, e, good); head.Status != "completed" {
					t.Errorf("the run beside it is %s: %s %s", head.Status, head.Code, head.Message)
				}
				// The steps that the first failure withdrew free their slots when the
				// executor reaches them, which may be after the run has ended.
				synctest.Wait()
				if n := e.core.attempts.Arbiter.InUse(); n != 0 {
					t.Errorf("%d slots are still held", n)
				}
			})
		})
	}
}

// panickingFiles panic in one of their methods.
type panickingFiles struct {
	action.Files
	open, read, put bool
}

func (b panickingFiles) Open(ctx context.Context, hash string) (action.File, error) {
	if b.open {
		panic("hunter2 in Open")
	}
	f, err := b.Files.Open(ctx, hash)
	if b.read && err == nil {
		f = &panickingFile{File: f}
	}
	return f, err
}

func (b panickingFiles) Put(ctx context.Context, r io.Reader, name, mime string) (action.FileInfo, error) {
	if b.put && mime == "application/json" {
		panic("hunter2 in Put")
	}
	return b.Files.Put(ctx, r, name, mime)
}

type panickingFile struct{ action.File }

func (*panickingFile) Read([]byte) (int, error) { panic("hunter2 in Read") }

// A panic while a loop reads its items or collects its outputs fails that loop.
func TestI16_PanicInALoopsFiles(t *testing.T) {
	lines := strings.Repeat("{\"n\":1}\n", 300)
	for name, b := range map[string]panickingFiles{
		"opening items": {open: true}, "reading items": {read: true}, "collecting outputs": {put: true},
	} {
		t.Run(name, func(t *testing.T) {
			files := blobs(t)
			info, err := files.Put(t.Context(), acc, strings.NewReader(lines), "rows.jsonl", "application/jsonl")
			if err != nil {
				t.Fatal(err)
			}
			b.Files = files.Files(acc)
			e := openEngine(t, memory.New(memory.Options{}), Config{Files: func(string) action.Files { return b }}, echo(), noop())
			s, err := e.Start(t.Context(), StartRequest{
				Account: acc, Plan: planOf(t, fileLoop, echo()), Parameters: map[string]any{"pad": strings.Repeat("x", 8<<10)},
				Files: []journal.File{{Hash: info.Hash, Name: info.Name, MimeType: info.MimeType, Size: info.Size}},
			})
			if err != nil {
				t.Fatal(err)
			}
			head := waitForEnd(t, e, s.Run)
			if head.Status != "failed" || head.Code != fault.InternalError || !strings.Contains(head.Message, "panicked") {
				t.Errorf("the run is %s: %s %s", head.Status, head.Code, head.Message)
			}
			if strings.Contains(head.Message, "hunter2") {
				t.Errorf("the message contains what only the log may contain: %s", head.Message)
			}
			if head := waitForEnd(t, e, start(t, e, planOf(t, chain(2), noop()), nil)); head.Status != "completed" {
				t.Errorf("the next run is %s", head.Status)
			}
		})
	}
}

// A panickingError is an action's error that panics when it is asked for a type that
// the pool does not know.
type panickingError struct{}

func (panickingError) Error() string { return "tricky" }
func (panickingError) As(target any) bool {
	switch target.(type) {
	case **fault.Error, *fault.Code, **jsonx.Error:
		return false
	}
	panic("asked for what the pool does not know")
}

// The engine calls no method of an action's error where a panic would not be contained.
func TestI16_MethodsOfActionErrorsAreNotCalled(t *testing.T) {
	failing := newAction("noop", func(context.Context, *action.Task) (action.Result, error) {
		return action.Result{}, errors.Join(panickingError{})
	})
	e := openEngine(t, memory.New(memory.Options{}), Config{}, failing)
	if head := waitForEnd(t, e, start(t, e, planOf(t, chain(1), failing), nil)); head.Code != fault.StepFailed {
		t.Errorf("the run is %s: %s %s", head.Status, head.Code, head.Message)
	}
}

// An input that is nothing but the whole output of a step reaches the action as it was
// recorded, whatever kind of value it is, from memory as from the journal.
func TestWholeOutputAsTheOnlyInput(t *testing.T) {
	for _, output := range []any{map[string]any{"a": int64(1), "b": []any{"x"}}, []any{int64(1), nil}, "text", int64(7), true, nil} {
		want, err := jsonx.Canonical(map[string]any{"in": output})
		if err != nil {
			t.Fatal(err)
		}
		var got []byte
		producer := newAction("giver", func(context.Context, *action.Task) (action.Result, error) {
			return action.Result{Output: output}, nil
		})
		consumer := newAction("taker", func(_ context.Context, task *action.Task) (action.Result, error) {
			got = append([]byte(nil), task.Input...)
			return action.Result{}, nil
		})
		for _, expr := range []string{"steps.one.output", "steps['one'].result", "one.output"} {
			for _, wait := range []string{"1ms", "1h"} { // within an hour the run is suspended
				synctest.Test(t, func(t *testing.T) {
					p := planOf(t, "name: whole\nsteps:\n  - {id: one, action: {name: giver}}\n  - {id: nap, wait: {duration: "+wait+"}}\n"+
						"  - {id: two, action: {name: taker}, inputBindings: {in: \""+expr+"\"}}\n", producer, consumer)
					e := openEngine(t, memory.New(memory.Options{}), Config{}, producer, consumer)
					got = nil
					if head := waitForEnd(t, e, start(t, e, p, nil)); head.Status != "completed" {
						t.Errorf("%s after %s of %v: the run is %s: %s %s", expr, wait, output, head.Status, head.Code, head.Message)
					}
					if string(got) != string(want) {
						t.Errorf("%s after %s: the action got %s, want %s", expr, wait, got, want)
					}
				})
			}
		}
	}
}

// The output of a step that did not run, as the only input, is a failure with a clear
// message.
func TestAbsentOutputAsTheOnlyInput(t *testing.T) {
	p := planOf(t, "name: absent\nsteps:\n  - {id: one, when: 'false', action: {name: noop}}\n"+
		"  - {id: two, action: {name: noop}, inputBindings: {in: steps.one.output}}\n", noop())
	e := openEngine(t, memory.New(memory.Options{}), Config{}, noop())
	head := waitForEnd(t, e, start(t, e, p, nil))
	if head.Status != "failed" || head.Code != fault.TemplateError || !strings.Contains(head.Message, `input "in"`) {
		t.Errorf("the run is %s: %s %s", head.Status, head.Code, head.Message)
	}
}
