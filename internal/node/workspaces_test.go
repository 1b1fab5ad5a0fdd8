// SPDX-License-Identifier: Apache-2.0

//go:build !small

package node_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/roux-engine/roux"
	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

// X162: the actions of a child run have its workspace, those of a run below it another one at the same path, and
// those of the root none. Results that depend on a workspace are not cached.
func TestX162_WorkspaceOfARun(t *testing.T) {
	dir := t.TempDir()
	var mu sync.Mutex
	paths := map[string]string{}
	look := action.Action{Name: "look", Version: "1.0.0", Run: func(_ context.Context, task *action.Task) (action.Result, error) {
		root, err := task.Workspace()
		if errors.Is(err, fault.NotAvailable) {
			return action.Result{Output: map[string]any{"has": false}}, nil
		}
		if err != nil {
			return action.Result{}, err
		}
		if again, err := task.Workspace(); err != nil || again != root {
			return action.Result{}, errors.New("it was opened twice")
		}
		if _, err := root.Open("../../" + "x"); err == nil || errors.Is(err, os.ErrNotExist) {
			return action.Result{}, errors.New("it is left through ..")
		}
		mu.Lock()
		defer mu.Unlock()
		paths[task.Run] = root.Name()
		return action.Result{Output: map[string]any{"has": true}}, nil
	}}
	e, err := roux.Open(t.Context(), roux.Options{Dir: dir, Actions: []action.Action{look}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	const text = `name: look
steps:
  - {id: own, action: {name: look}}
  - id: child
    recipe:
      workspace: ./nested/${step.name}
      inline:
        name: a
        steps:
          - {id: first, action: {name: look}, cache: {}}
          - {id: below, recipe: {inline: {name: b, steps: [{id: last, action: {name: look}, cache: {}}], outputs: {has: steps.last.output.has}}}}
        outputs: {first: steps.first.output.has, below: steps.below.output.has}
outputs: {own: steps.own.output.has, child: steps.child.output}
`
	id, err := e.Start(t.Context(), roux.Request{Recipe: []byte(text), Source: "look.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	res, err := e.Wait(t.Context(), id)
	if err != nil || string(res.Outputs) != `{"child":{"below":true,"first":true},"own":false}` {
		t.Fatalf("%+v %s, %v", res, res.Outputs, err)
	}
	mu.Lock()
	defer mu.Unlock()
	seen := map[string]bool{}
	for run, path := range paths {
		seen[path] = true
		if !strings.HasSuffix(filepath.ToSlash(path), "/nested/child") {
			t.Errorf("run %s has its workspace at %s", run, path)
		}
	}
	if len(paths) != 2 || len(seen) != 2 {
		t.Errorf("the runs have %v, want two workspaces: a result was cached, or they share one", paths)
	}
}

// X104, X235: with its workspace a run loses what its completed steps have left there, so it does not go on
// after a failure: another try is another run, which does them again.
func TestX235_NoResumeWithoutWorkspace(t *testing.T) {
	var mu sync.Mutex
	var wrote []string
	leave := action.Action{Name: "leave", Version: "1.0.0", Run: func(_ context.Context, task *action.Task) (action.Result, error) {
		root, err := task.Workspace()
		if err != nil {
			return action.Result{}, err
		}
		mu.Lock()
		defer mu.Unlock()
		wrote = append(wrote, task.Run)
		return action.Result{Output: map[string]any{}}, root.WriteFile("left", nil, 0o600)
	}}
	need := action.Action{Name: "need", Version: "1.0.0", Run: func(_ context.Context, task *action.Task) (action.Result, error) {
		root, err := task.Workspace()
		if err == nil {
			_, err = root.Stat("left")
		}
		if err != nil {
			return action.Result{}, fault.Wrap(fault.FileNotFound, err, "what the first step has left is gone")
		}
		mu.Lock()
		defer mu.Unlock()
		if len(wrote) == 1 {
			return action.Result{}, fault.New(fault.ServiceUnavailable, "not there yet")
		}
		return action.Result{Output: map[string]any{}}, nil
	}}
	e, err := roux.Open(t.Context(), roux.Options{Dir: t.TempDir(), Actions: []action.Action{leave, need}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	const text = `name: again
steps:
  - id: child
    recipe:
      workspace: w
      resume: true
      inline:
        name: a
        steps:
          - {id: first, action: {name: leave}}
          - {id: then, action: {name: need}, dependsOn: [first], retryPolicy: {maxAttempts: 1}}
    retryPolicy: {maxAttempts: 2, initialDelay: 10ms}
`
	id, err := e.Start(t.Context(), roux.Request{Recipe: []byte(text), Source: "again.yaml"})
	if err != nil {
		t.Fatal(err)
	}
	if res, err := e.Wait(t.Context(), id); err != nil || res.Status != "completed" || len(wrote) != 2 || wrote[0] == wrote[1] {
		t.Errorf("%+v, %v; the first step ran in %v, want two runs", res, err, wrote)
	}
}
