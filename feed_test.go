// SPDX-License-Identifier: Apache-2.0

package roux_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/roux-engine/roux"
	"github.com/roux-engine/roux/action"
	"github.com/roux-engine/roux/fault"
)

// A program handles every change once, also over a restart: it stores the number of the
// last one that it has handled.
func ExampleEngine_Feed() {
	dir, _ := os.MkdirTemp("", "roux")
	defer os.RemoveAll(dir)
	ctx := context.Background()
	work := action.Action{Name: "work", Version: "1.0.0", Run: func(context.Context, *action.Task) (action.Result, error) {
		return action.Result{}, nil
	}}
	handled := uint64(0)
	for range 2 { // a start and a restart of the program
		e, err := roux.Open(ctx, roux.Options{Dir: dir, Actions: []action.Action{work}})
		if err != nil {
			panic(err)
		}
		if _, err := e.Start(ctx, roux.Request{Recipe: []byte("name: job\nsteps: [{id: a, action: {name: work}}]\n")}); err != nil {
			panic(err)
		}
		for change, err := range e.Feed(ctx, handled) {
			if err != nil {
				panic(err)
			}
			fmt.Println(change.ID, change.Recipe, change.Status)
			handled = change.ID
			if change.Ended {
				break
			}
		}
		if err := e.Close(); err != nil {
			panic(err)
		}
	}
	// Output:
	// 1 job running
	// 2 job completed
	// 3 job running
	// 4 job completed
}

// A number that no change has is refused, and a closed engine ends the loop.
func TestFeedEnds(t *testing.T) {
	e, err := roux.Open(t.Context(), roux.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	ends := func(after uint64) (failed error) {
		for _, err := range e.Feed(t.Context(), after) {
			failed = err
		}
		return failed
	}
	if id, err := e.LastChange(t.Context()); id != 0 || err != nil {
		t.Errorf("the last change of a new engine is %d, %v", id, err)
	}
	if err := ends(1); !errors.Is(err, fault.InputInvalid) {
		t.Errorf("a number that no change has: %v", err)
	}
	run, err := e.Start(t.Context(), roux.Request{Recipe: []byte("name: job\nsteps: [{id: a, transform: {expression: '1'}}]\n")})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := e.Wait(t.Context(), run); err != nil {
		t.Fatal(err)
	}
	if id, err := e.LastChange(t.Context()); id != 1 || err != nil {
		t.Errorf("the last change is %d, %v", id, err)
	}
	closed := make(chan error)
	for change, err := range e.Feed(t.Context(), 0) {
		switch {
		case err != nil:
			if cerr := <-closed; cerr != nil {
				t.Error(cerr)
			}
			return
		case change.Run != run || change.Status != "completed" || !change.Ended || change.Kind != "":
			t.Errorf("the change is %+v", change)
		}
		go func() { closed <- e.Close() }()
	}
	t.Error("the loop ends without an error")
}
